"""The API resource of each struct: the group, version, plural and scope of every kind that Muster uses."""

from __future__ import annotations

from typing import Any, Final, Generic, NamedTuple, TypeVar

from msgspec import Struct

from muster.model import names, objects

T = TypeVar("T", bound=objects.Object)


class Kind(Struct, Generic[T], frozen=True):
    """An API resource and the struct that its objects decode to."""

    group: str
    version: str
    plural: str
    name: str
    struct: type[T]
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        """``group/version``, or ``version`` for the core group."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """Return the URL path; without a namespace, that of all namespaces."""
        root = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        scope = f"/namespaces/{namespace}" if self.namespaced and namespace else ""
        return root + scope + "".join(f"/{part}" for part in (self.plural, name, subresource) if part)

    def __str__(self) -> str:
        """Write it as kubectl does: ``podgroups.scheduling.volcano.sh``."""
        return f"{self.plural}.{self.group}" if self.group else self.plural


class ObjectKey(NamedTuple):
    """Which object: what a work queue holds for those of several kinds."""

    kind: Kind[Any]
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}"


NAMESPACES: Final = Kind("", "v1", "namespaces", "Namespace", objects.Namespace, namespaced=False)
NODES: Final = Kind("", "v1", "nodes", "Node", objects.Node, namespaced=False)
PODS: Final = Kind("", "v1", "pods", "Pod", objects.Pod)
EVENTS: Final = Kind("", "v1", "events", "Event", objects.Event)
CONFIGMAPS: Final = Kind("", "v1", "configmaps", "ConfigMap", objects.ConfigMap)
SECRETS: Final = Kind("", "v1", "secrets", "Secret", objects.Secret)
RESOURCEQUOTAS: Final = Kind("", "v1", "resourcequotas", "ResourceQuota", objects.ResourceQuota)
VOLUMES: Final = Kind("", "v1", "persistentvolumes", "PersistentVolume", objects.PersistentVolume, namespaced=False)
CLAIMS: Final = Kind("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim", objects.PersistentVolumeClaim)
STORAGECLASSES: Final = Kind(
    "storage.k8s.io", "v1", "storageclasses", "StorageClass", objects.StorageClass, namespaced=False
)
CSINODES: Final = Kind("storage.k8s.io", "v1", "csinodes", "CSINode", objects.CSINode, namespaced=False)
_DEVICES: Final = "resource.k8s.io"
RESOURCECLAIMS: Final = Kind(_DEVICES, "v1", "resourceclaims", "ResourceClaim", objects.ResourceClaim)
RESOURCECLAIMTEMPLATES: Final = Kind(
    _DEVICES, "v1", "resourceclaimtemplates", "ResourceClaimTemplate", objects.ResourceClaimTemplate
)
DEVICECLASSES: Final = Kind(_DEVICES, "v1", "deviceclasses", "DeviceClass", objects.DeviceClass, namespaced=False)
RESOURCESLICES: Final = Kind(_DEVICES, "v1", "resourceslices", "ResourceSlice", objects.ResourceSlice, namespaced=False)
JOBS: Final = Kind("batch", "v1", "jobs", "Job", objects.Job)
DEPLOYMENTS: Final = Kind("apps", "v1", "deployments", "Deployment", objects.Workload)
REPLICASETS: Final = Kind("apps", "v1", "replicasets", "ReplicaSet", objects.Workload)
STATEFULSETS: Final = Kind("apps", "v1", "statefulsets", "StatefulSet", objects.Workload)
LEASES: Final = Kind("coordination.k8s.io", "v1", "leases", "Lease", objects.Lease)
PRIORITYCLASSES: Final = Kind(
    "scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", objects.PriorityClass, namespaced=False
)
DISRUPTIONBUDGETS: Final = Kind(
    "policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget", objects.PodDisruptionBudget
)
CRDS: Final = Kind(
    "apiextensions.k8s.io",
    "v1",
    "customresourcedefinitions",
    "CustomResourceDefinition",
    objects.CustomResourceDefinition,
    namespaced=False,
)
_REGISTRATION: Final = "admissionregistration.k8s.io"
VALIDATING: Final = Kind(
    _REGISTRATION,
    "v1",
    "validatingwebhookconfigurations",
    "ValidatingWebhookConfiguration",
    objects.WebhookConfiguration,
    namespaced=False,
)
MUTATING: Final = Kind(
    _REGISTRATION,
    "v1",
    "mutatingwebhookconfigurations",
    "MutatingWebhookConfiguration",
    objects.WebhookConfiguration,
    namespaced=False,
)
POLICIES: Final = Kind(
    _REGISTRATION, "v1", "validatingadmissionpolicies", "ValidatingAdmissionPolicy", objects.Object, namespaced=False
)
POLICYBINDINGS: Final = Kind(
    _REGISTRATION,
    "v1",
    "validatingadmissionpolicybindings",
    "ValidatingAdmissionPolicyBinding",
    objects.Object,
    namespaced=False,
)
SERVICEACCOUNTS: Final = Kind("", "v1", "serviceaccounts", "ServiceAccount", objects.Object)
_RBAC: Final = "rbac.authorization.k8s.io"
CLUSTERROLES: Final = Kind(_RBAC, "v1", "clusterroles", "ClusterRole", objects.Object, namespaced=False)
CLUSTERROLEBINDINGS: Final = Kind(
    _RBAC, "v1", "clusterrolebindings", "ClusterRoleBinding", objects.Object, namespaced=False
)
ROLES: Final = Kind(_RBAC, "v1", "roles", "Role", objects.Object)
ROLEBINDINGS: Final = Kind(_RBAC, "v1", "rolebindings", "RoleBinding", objects.Object)

PODGROUPS: Final = Kind(names.VOLCANO_GROUP, "v1beta1", "podgroups", "PodGroup", objects.PodGroup)
NATIVE_PODGROUPS: Final = Kind(names.KUBERNETES_GROUP, "v1beta1", "podgroups", "PodGroup", objects.NativePodGroup)
QUEUES: Final = Kind(names.VOLCANO_GROUP, "v1beta1", "queues", "Queue", objects.Queue, namespaced=False)
HYPERNODES: Final = Kind(
    names.TOPOLOGY_GROUP, "v1alpha1", "hypernodes", "HyperNode", objects.HyperNode, namespaced=False
)
QUOTALEDGERS: Final = Kind(names.MUSTER_GROUP, "v1alpha1", "quotaledgers", "QuotaLedger", objects.QuotaLedger)

_LEGACY_VERSIONS: Final = {names.INCUBATOR_GROUP: "v1alpha1", names.SIGS_GROUP: "v1alpha2"}
LEGACY_PODGROUPS: Final = tuple(
    Kind(group, version, "podgroups", "PodGroup", objects.PodGroup) for group, version in _LEGACY_VERSIONS.items()
)
LEGACY_QUEUES: Final = tuple(
    Kind(group, version, "queues", "Queue", objects.Queue, namespaced=False)
    for group, version in _LEGACY_VERSIONS.items()
)
