"""The columns of the built-in kinds, their order, and the source of each."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any, Final

from msgspec import Struct

from muster.sandbox.core.registry import Column
from muster.sandbox.printers import network, pods, workloads

Cells = Callable[[dict[str, Any], datetime], list[Any]]

NAME: Final = Column("Name", format="name", description="Name of the object, unique among its kind in its namespace.")
_CREATED: Final = Column("Created At", type="date")


class Printer(Struct, frozen=True):
    """Columns of a kind and their filling. ``cells`` gives those after the name, or all when ``whole``."""

    columns: tuple[Column, ...]
    cells: Cells
    whole: bool = False

    def row(self, obj: dict[str, Any], now: datetime) -> list[Any]:
        """Return the cells of one object."""
        rest = self.cells(obj, now)
        return rest if self.whole else [obj["metadata"].get("name", ""), *rest]


def printer(group: str, plural: str) -> Printer:
    """Return the printer of a built-in kind; of those without columns of their own, name and creation time."""
    return _PRINTERS.get((group, plural), _PLAIN)


def _printer(names: str, fill: Cells) -> Printer:
    return Printer((NAME, *_columns(names)), fill)


def _columns(names: str) -> list[Column]:
    """Read ``Ready Age Up-to-date:integer *Node``: `*` marks wide columns, `_` stands for a space."""
    columns = []
    for text in names.split():
        name, _, kind = text.lstrip("*").replace("_", " ").partition(":")
        columns.append(Column(name, type=kind or "string", priority=int(text.startswith("*"))))
    return columns


_CONTENT: Final = "*Containers *Images"
_SELECTED: Final = f"{_CONTENT} *Selector"
_REPLICAS: Final = "Desired:integer Current:integer Ready:integer"
_BINDING: Final = "Role Age *Users *Groups *ServiceAccounts"
_EVENT: Final = Printer(
    (
        *_columns("Last_Seen Type Reason Object *Subobject *Source Message *First_Seen *Count"),
        Column("Name", format="name", priority=1),
    ),
    workloads.event,
    whole=True,
)
_PLAIN: Final = Printer((NAME, _CREATED), workloads.created)

_PRINTERS: Final[dict[tuple[str, str], Printer]] = {
    ("", "pods"): _printer("Ready Status Restarts Age *IP *Node *Nominated_Node *Readiness_Gates", pods.pod),
    ("", "nodes"): _printer(
        "Status Roles Age Version *Internal-IP *External-IP *OS-Image *Kernel-Version *Container-Runtime",
        workloads.node,
    ),
    ("", "namespaces"): _printer("Status Age", workloads.namespace),
    ("", "events"): _EVENT,
    ("events.k8s.io", "events"): _EVENT,
    ("", "resourcequotas"): _printer("Request Limit Age", workloads.quota),
    ("", "services"): _printer("Type Cluster-IP External-IP Port(s) Age *Selector", network.service),
    ("", "configmaps"): _printer("Data Age", workloads.configmap),
    ("", "secrets"): _printer("Type Data Age", workloads.secret),
    ("", "serviceaccounts"): _printer("Age", workloads.just_age),
    ("", "persistentvolumeclaims"): _printer(
        "Status Volume Capacity Access_Modes StorageClass VolumeAttributesClass Age *VolumeMode", network.claim
    ),
    ("", "persistentvolumes"): _printer(
        "Capacity Access_Modes Reclaim_Policy Status Claim StorageClass VolumeAttributesClass Reason Age *VolumeMode",
        network.volume,
    ),
    ("storage.k8s.io", "storageclasses"): Printer(
        (NAME, *_columns("Provisioner ReclaimPolicy VolumeBindingMode AllowVolumeExpansion Age")),
        network.storage_class,
        whole=True,
    ),
    ("resource.k8s.io", "resourceclaims"): _printer("State Age", network.resource_claim),
    ("resource.k8s.io", "resourceslices"): _printer("Node Driver Pool Age", network.resource_slice),
    ("resource.k8s.io", "resourceclaimtemplates"): _printer("Age", workloads.just_age),
    ("resource.k8s.io", "deviceclasses"): _printer("Age", workloads.just_age),
    ("batch", "jobs"): _printer(f"Status Completions Duration Age {_SELECTED}", workloads.job),
    ("batch", "cronjobs"): _printer(
        f"Schedule Timezone Suspend:boolean Active:integer Last_Schedule Age {_SELECTED}", workloads.cronjob
    ),
    ("apps", "deployments"): _printer(f"Ready Up-to-date Available Age {_SELECTED}", workloads.deployment),
    ("apps", "replicasets"): _printer(f"{_REPLICAS} Age {_SELECTED}", workloads.replicaset),
    ("apps", "statefulsets"): _printer(f"Ready Age {_CONTENT}", workloads.statefulset),
    ("apps", "daemonsets"): _printer(
        f"{_REPLICAS} Up-to-date:integer Available:integer Node_Selector Age {_SELECTED}", workloads.daemonset
    ),
    ("policy", "poddisruptionbudgets"): _printer(
        "Min_Available Max_Unavailable Allowed_Disruptions:integer Age", workloads.disruption_budget
    ),
    ("coordination.k8s.io", "leases"): _printer("Holder Age", workloads.lease),
    ("scheduling.k8s.io", "priorityclasses"): _printer(
        "Value:integer Global-Default:boolean Age PreemptionPolicy", workloads.priority_class
    ),
    ("admissionregistration.k8s.io", "mutatingwebhookconfigurations"): _printer(
        "Webhooks:integer Age", workloads.webhooks
    ),
    ("admissionregistration.k8s.io", "validatingwebhookconfigurations"): _printer(
        "Webhooks:integer Age", workloads.webhooks
    ),
    ("admissionregistration.k8s.io", "validatingadmissionpolicies"): _printer(
        "Validations:integer ParamKind Age", workloads.policy
    ),
    ("admissionregistration.k8s.io", "validatingadmissionpolicybindings"): _printer(
        "PolicyName ParamRef Age", workloads.policy_binding
    ),
    ("rbac.authorization.k8s.io", "rolebindings"): _printer(_BINDING, workloads.role_binding),
    ("rbac.authorization.k8s.io", "clusterrolebindings"): _printer(_BINDING, workloads.role_binding),
}
