"""The built-in resources, as kube-apiserver 1.37 declares those that the sandbox serves."""

from __future__ import annotations

from typing import Any, Final

from muster.sandbox.core.registry import Resource

CREATE_ONLY: Final = ("create",)
STATUS: Final = frozenset({"status"})
SCALED: Final = frozenset({"status", "scale"})
_COUNTED: Final = ("status.successful",)


def _core(plural: str, kind: str, *short_names: str, **more: Any) -> Resource:
    return _grouped("", plural, kind, *short_names, **more)


def _grouped(group: str, plural: str, kind: str, *short_names: str, **more: Any) -> Resource:
    return Resource(group, "v1", plural, kind, kind.lower(), short_names=short_names, **more)


_EVENT_FIELDS: Final = (
    "involvedObject.kind",
    "involvedObject.namespace",
    "involvedObject.name",
    "involvedObject.uid",
    "involvedObject.apiVersion",
    "involvedObject.resourceVersion",
    "involvedObject.fieldPath",
    "reason",
    "reportingComponent",
    "source",
    "type",
)
_POD_FIELDS: Final = (
    "spec.nodeName",
    "spec.restartPolicy",
    "spec.schedulerName",
    "spec.serviceAccountName",
    "spec.hostNetwork",
    "status.phase",
    "status.podIP",
    "status.nominatedNodeName",
)
_POD_SUBRESOURCES: Final = frozenset({"status", "binding", "eviction", "log"})
_ALL: Final = ("all",)
_EXTENSIONS: Final = ("api-extensions",)
_APPS: Final = "apps"
_DEVICES: Final = "resource.k8s.io"
_RBAC: Final = "rbac.authorization.k8s.io"
_ADMISSION: Final = "admissionregistration.k8s.io"

BUILTIN: Final[tuple[Resource, ...]] = (
    _core("configmaps", "ConfigMap", "cm"),
    _core("endpoints", "Endpoints", "ep"),
    _core("events", "Event", "ev", selectable=_EVENT_FIELDS),
    _core("limitranges", "LimitRange", "limits"),
    _core(
        "namespaces",
        "Namespace",
        "ns",
        namespaced=False,
        subresources=frozenset({"status", "finalize"}),
        selectable=("status.phase",),
    ),
    _core("nodes", "Node", "no", namespaced=False, subresources=STATUS, selectable=("spec.unschedulable",)),
    _core("persistentvolumeclaims", "PersistentVolumeClaim", "pvc", subresources=STATUS),
    _core("persistentvolumes", "PersistentVolume", "pv", namespaced=False, subresources=STATUS),
    _core("pods", "Pod", "po", subresources=_POD_SUBRESOURCES, categories=_ALL, selectable=_POD_FIELDS),
    _core(
        "replicationcontrollers",
        "ReplicationController",
        "rc",
        subresources=SCALED,
        categories=_ALL,
        selectable=("status.replicas",),
    ),
    _core("resourcequotas", "ResourceQuota", "quota", subresources=STATUS),
    _core("secrets", "Secret", selectable=("type",)),
    _core("serviceaccounts", "ServiceAccount", "sa"),
    _core(
        "services",
        "Service",
        "svc",
        subresources=STATUS,
        categories=_ALL,
        selectable=("spec.clusterIP", "spec.type"),
    ),
    _grouped(_APPS, "controllerrevisions", "ControllerRevision"),
    _grouped(_APPS, "daemonsets", "DaemonSet", "ds", subresources=STATUS, categories=_ALL),
    _grouped(_APPS, "deployments", "Deployment", "deploy", subresources=SCALED, categories=_ALL),
    _grouped(
        _APPS, "replicasets", "ReplicaSet", "rs", subresources=SCALED, categories=_ALL, selectable=("status.replicas",)
    ),
    _grouped(_APPS, "statefulsets", "StatefulSet", "sts", subresources=SCALED, categories=_ALL),
    _grouped("batch", "cronjobs", "CronJob", "cj", subresources=STATUS, categories=_ALL),
    _grouped("batch", "jobs", "Job", subresources=STATUS, categories=_ALL, selectable=_COUNTED),
    _grouped("coordination.k8s.io", "leases", "Lease"),
    _grouped("discovery.k8s.io", "endpointslices", "EndpointSlice"),
    _grouped("events.k8s.io", "events", "Event", "ev", selectable=_EVENT_FIELDS, stored_as=("", "events")),
    _grouped("policy", "poddisruptionbudgets", "PodDisruptionBudget", "pdb", subresources=STATUS),
    _grouped(_RBAC, "clusterrolebindings", "ClusterRoleBinding", namespaced=False),
    _grouped(_RBAC, "clusterroles", "ClusterRole", namespaced=False),
    _grouped(_RBAC, "rolebindings", "RoleBinding"),
    _grouped(_RBAC, "roles", "Role"),
    _grouped(_DEVICES, "deviceclasses", "DeviceClass", namespaced=False),
    _grouped(_DEVICES, "resourceclaims", "ResourceClaim", subresources=STATUS),
    _grouped(_DEVICES, "resourceclaimtemplates", "ResourceClaimTemplate"),
    _grouped(
        _DEVICES,
        "resourceslices",
        "ResourceSlice",
        namespaced=False,
        selectable=("spec.nodeName", "spec.driver"),
    ),
    _grouped("scheduling.k8s.io", "priorityclasses", "PriorityClass", "pc", namespaced=False),
    _grouped("storage.k8s.io", "csinodes", "CSINode", namespaced=False),
    _grouped("storage.k8s.io", "storageclasses", "StorageClass", "sc", namespaced=False),
    _grouped(
        _ADMISSION,
        "mutatingwebhookconfigurations",
        "MutatingWebhookConfiguration",
        namespaced=False,
        categories=_EXTENSIONS,
    ),
    _grouped(
        _ADMISSION,
        "validatingadmissionpolicies",
        "ValidatingAdmissionPolicy",
        namespaced=False,
        subresources=STATUS,
        categories=_EXTENSIONS,
    ),
    _grouped(
        _ADMISSION,
        "validatingadmissionpolicybindings",
        "ValidatingAdmissionPolicyBinding",
        namespaced=False,
        categories=_EXTENSIONS,
    ),
    _grouped(
        _ADMISSION,
        "validatingwebhookconfigurations",
        "ValidatingWebhookConfiguration",
        namespaced=False,
        categories=_EXTENSIONS,
    ),
    _grouped(
        "apiextensions.k8s.io",
        "customresourcedefinitions",
        "CustomResourceDefinition",
        "crd",
        "crds",
        namespaced=False,
        subresources=STATUS,
        categories=_EXTENSIONS,
    ),
    _grouped("authentication.k8s.io", "selfsubjectreviews", "SelfSubjectReview", namespaced=False, verbs=CREATE_ONLY),
    _grouped("authentication.k8s.io", "tokenreviews", "TokenReview", namespaced=False, verbs=CREATE_ONLY),
    _grouped(
        "authorization.k8s.io",
        "selfsubjectaccessreviews",
        "SelfSubjectAccessReview",
        namespaced=False,
        verbs=CREATE_ONLY,
    ),
    _grouped(
        "authorization.k8s.io", "subjectaccessreviews", "SubjectAccessReview", namespaced=False, verbs=CREATE_ONLY
    ),
    _grouped(
        "authorization.k8s.io", "selfsubjectrulesreviews", "SelfSubjectRulesReview", namespaced=False, verbs=CREATE_ONLY
    ),
)
