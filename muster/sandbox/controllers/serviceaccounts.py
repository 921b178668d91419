"""The initial objects of every namespace: ServiceAccount ``default`` and ConfigMap ``kube-root-ca.crt``."""

from __future__ import annotations

from typing import Any, Final

from muster.sandbox.controllers.controller import Controller
from muster.sandbox.controllers.namespaces import NAMESPACES
from muster.sandbox.controllers.plans import pods as p
from muster.sandbox.core.status import StatusError
from muster.sandbox.core.store import Key, Object, StoreEvent, identity
from muster.sandbox.core.users import service_account
from muster.sandbox.server.requests import ApiServer

SYSTEM_NAMESPACES: Final = ("default", "kube-node-lease", "kube-public", "kube-system")

_ACCOUNTS: Final[Key] = ("", "serviceaccounts")
_CONFIGMAPS: Final[Key] = ("", "configmaps")
_ACCOUNT: Final = "default"
_ROOT_CA: Final = "kube-root-ca.crt"
_DESCRIPTION: Final = (
    "Contains a CA bundle that can be used to verify the kube-apiserver when using internal endpoints such as the"
    " internal service IP or kubernetes.default.svc. No other usage is guaranteed across distributions of Kubernetes"
    " clusters."
)


def namespace(name: str) -> Object:
    """Make a namespace."""
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}


class ServiceAccountController(Controller[str]):
    """Creates in active namespaces what belongs in each, and again when someone deletes it.

    ``root_ca`` is the certificate of the server's authority as PEM text; empty for a server without TLS.
    """

    def __init__(self, server: ApiServer, root_ca: str = "") -> None:
        super().__init__(
            server, service_account("kube-system", "service-account-controller"), "service-account-controller"
        )
        self._root_ca = root_ca

    def observe(self, event: StoreEvent) -> None:
        """A namespace that is there; one whose account or certificate changed or went."""
        if event.key == NAMESPACES and event.type != "DELETED":
            self.queue.add(event.object["metadata"]["name"])
        elif event.key in {_ACCOUNTS, _CONFIGMAPS} and event.object["metadata"]["name"] in {_ACCOUNT, _ROOT_CA}:
            self.queue.add(identity(event.object)[0])

    async def sync(self, name: str) -> None:
        """Make what is missing."""
        current = self.store.get(NAMESPACES, "", name)
        if current is None or p.leaving(current):
            return
        if self.store.get(_ACCOUNTS, name, _ACCOUNT) is None:
            account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": _ACCOUNT}}
            await self._create(_ACCOUNTS, name, account)
        data = {"ca.crt": self._root_ca}
        existing = self.store.get(_CONFIGMAPS, name, _ROOT_CA)
        if existing is None:
            metadata = {"name": _ROOT_CA, "annotations": {"kubernetes.io/description": _DESCRIPTION}}
            certificate: dict[str, Any] = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}
            await self._create(_CONFIGMAPS, name, certificate)
        elif existing.get("data") != data:
            await self.write.patch(_CONFIGMAPS, existing, {"data": data})

    async def _create(self, key: Key, name: str, obj: Object) -> None:
        try:
            await self.write.create(key, name, obj)
        except StatusError as error:
            if error.reason != "AlreadyExists":
                raise
