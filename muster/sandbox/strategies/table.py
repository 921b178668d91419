"""The strategy of each resource."""

from __future__ import annotations

from typing import Final

from muster.sandbox.core.registry import Resource
from muster.sandbox.strategies import batch, core, devices, registration, workloads
from muster.sandbox.strategies.base import Strategy
from muster.sandbox.strategies.definitions import CustomStrategy, DefinitionStrategy
from muster.sandbox.strategies.pods import PodStrategy
from muster.sandbox.strategies.quotas import ResourceQuotaStrategy

_PLAIN: Final = Strategy()
_KEPT: Final = core.KeptStrategy()
_EVENTS: Final = core.EventStrategy()
_DEVICES: Final = devices.DeviceClassStrategy()
_VOLUMES: Final = core.VolumeStrategy()

_BY_KEY: Final[dict[tuple[str, str], Strategy]] = {
    ("", "configmaps"): core.ConfigMapStrategy(),
    ("", "endpoints"): _KEPT,
    ("", "events"): _EVENTS,
    ("", "limitranges"): core.LimitRangeStrategy(),
    ("", "namespaces"): core.NamespaceStrategy(),
    ("", "nodes"): core.NodeStrategy(),
    ("", "persistentvolumeclaims"): _VOLUMES,
    ("", "persistentvolumes"): _VOLUMES,
    ("", "pods"): PodStrategy(),
    ("", "replicationcontrollers"): core.ReplicationControllerStrategy(),
    ("", "resourcequotas"): ResourceQuotaStrategy(),
    ("", "secrets"): core.SecretStrategy(),
    ("", "serviceaccounts"): core.ServiceAccountStrategy(),
    ("", "services"): core.ServiceStrategy(),
    ("admissionregistration.k8s.io", "mutatingwebhookconfigurations"): registration.MutatingWebhooksStrategy(),
    ("admissionregistration.k8s.io", "validatingadmissionpolicies"): registration.PolicyStrategy(),
    ("admissionregistration.k8s.io", "validatingadmissionpolicybindings"): registration.PolicyBindingStrategy(),
    ("admissionregistration.k8s.io", "validatingwebhookconfigurations"): registration.WebhooksStrategy(),
    ("apiextensions.k8s.io", "customresourcedefinitions"): DefinitionStrategy(),
    ("apps", "controllerrevisions"): workloads.RevisionStrategy(),
    ("apps", "daemonsets"): workloads.DaemonSetStrategy(),
    ("apps", "deployments"): workloads.DeploymentStrategy(),
    ("apps", "replicasets"): workloads.ReplicaSetStrategy(),
    ("apps", "statefulsets"): workloads.StatefulSetStrategy(),
    ("batch", "cronjobs"): batch.CronJobStrategy(),
    ("batch", "jobs"): batch.JobStrategy(),
    ("coordination.k8s.io", "leases"): core.LeaseStrategy(),
    ("policy", "poddisruptionbudgets"): core.DisruptionBudgetStrategy(),
    ("rbac.authorization.k8s.io", "clusterrolebindings"): _KEPT,
    ("rbac.authorization.k8s.io", "clusterroles"): _KEPT,
    ("rbac.authorization.k8s.io", "rolebindings"): _KEPT,
    ("rbac.authorization.k8s.io", "roles"): _KEPT,
    ("resource.k8s.io", "deviceclasses"): _DEVICES,
    ("resource.k8s.io", "resourceclaims"): devices.ResourceClaimStrategy(),
    ("resource.k8s.io", "resourceclaimtemplates"): devices.ResourceClaimTemplateStrategy(),
    ("resource.k8s.io", "resourceslices"): _DEVICES,
    ("scheduling.k8s.io", "priorityclasses"): core.PriorityClassStrategy(),
}


def strategy_of(resource: Resource) -> Strategy:
    """Return the strategy of a resource."""
    if resource.custom:
        return CustomStrategy(resource)
    return _BY_KEY.get(resource.key, _PLAIN)
