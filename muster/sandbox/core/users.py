"""The user of a request. The sandbox authenticates by token and authorises everybody for everything: RBAC objects are kept only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from msgspec import Struct, field


class User(Struct, frozen=True):
    """The authenticated user, as admission webhooks are told."""

    name: str
    uid: str = ""
    groups: tuple[str, ...] = ("system:authenticated",)
    extra: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def info(self) -> dict[str, Any]:
        """Return it as ``authentication.k8s.io`` UserInfo."""
        info: dict[str, Any] = {"username": self.name, "groups": list(self.groups)}
        if self.uid:
            info["uid"] = self.uid
        if self.extra:
            info["extra"] = {key: list(values) for key, values in self.extra.items()}
        return info


ADMIN: Final = User("kubernetes-admin", groups=("system:masters", "system:authenticated"))
ANONYMOUS: Final = User("system:anonymous", groups=("system:unauthenticated",))


def service_account(namespace: str, name: str, uid: str = "") -> User:
    """Return the user that a service account's token stands for."""
    groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated")
    return User(f"system:serviceaccount:{namespace}:{name}", uid, groups)


GARBAGE_COLLECTOR: Final = service_account("kube-system", "generic-garbage-collector")
NAMESPACE_CONTROLLER: Final = service_account("kube-system", "namespace-controller")
JOB_CONTROLLER: Final = service_account("kube-system", "job-controller")
REPLICASET_CONTROLLER: Final = service_account("kube-system", "replicaset-controller")
STATEFULSET_CONTROLLER: Final = service_account("kube-system", "statefulset-controller")
DAEMONSET_CONTROLLER: Final = service_account("kube-system", "daemon-set-controller")
CRONJOB_CONTROLLER: Final = service_account("kube-system", "cronjob-controller")
RESOURCECLAIM_CONTROLLER: Final = service_account("kube-system", "resource-claim-controller")
DEPLOYMENT_CONTROLLER: Final = service_account("kube-system", "deployment-controller")


def kubelet(node: str) -> User:
    """Return the user that the kubelet of ``node`` is."""
    return User(f"system:node:{node}", groups=("system:nodes", "system:authenticated"))
