"""The handler of each kind of object that changes the cluster's state. Groups and queues, which exist in several API groups, aren't among them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Any, Final

from muster.model import kinds
from muster.model.kinds import Kind
from scheduler.state.cluster import Cluster

_METHODS: Final[Mapping[Kind[Any], str]] = {
    kinds.NODES: "node",
    kinds.PODS: "pod",
    kinds.JOBS: "batch_job",
    kinds.PRIORITYCLASSES: "priority_class",
    kinds.HYPERNODES: "network.hypernode",
    kinds.NAMESPACES: "namespace",
    kinds.DISRUPTIONBUDGETS: "budget",
    kinds.RESOURCEQUOTAS: "quota",
    kinds.CLAIMS: "storage.claim",
    kinds.VOLUMES: "storage.volume",
    kinds.STORAGECLASSES: "storage.storage_class",
    kinds.CSINODES: "storage.csi_node",
    kinds.RESOURCECLAIMS: "devices.claim",
    kinds.DEVICECLASSES: "devices.device_class",
    kinds.RESOURCESLICES: "devices.slice",
    kinds.RESOURCECLAIMTEMPLATES: "devices.claim_template",
}
WATCHED: Final = tuple(_METHODS)
DEVICES: Final[frozenset[Kind[Any]]] = frozenset(
    {kinds.RESOURCECLAIMS, kinds.RESOURCECLAIMTEMPLATES, kinds.DEVICECLASSES, kinds.RESOURCESLICES}
)
"""What a cluster may not serve."""


def handlers(cluster: Cluster) -> dict[Kind[Any], Callable[..., None]]:
    """Return, by kind, what is called with each new version of an object, or with the last one and ``gone``."""
    return {kind: attrgetter(path)(cluster) for kind, path in _METHODS.items()}
