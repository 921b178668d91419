"""The cluster's autoscaler: a program that makes nodes for pods that lack them, known by what it leaves in the API."""

from __future__ import annotations

from typing import Final

from muster.kube.client import Client
from muster.kube.errors import NotFoundError
from muster.kube.transport import Request
from muster.model import kinds

CLUSTER_AUTOSCALER: Final = "Cluster Autoscaler"
KARPENTER: Final = "Karpenter"
GROUP: Final = "karpenter.sh"
"""Karpenter's API group. It is served once Karpenter's CRDs are there; every account may ask for that."""
STATUS: Final = "cluster-autoscaler-status"
"""The ConfigMap in which Cluster Autoscaler reports, every ten seconds."""
NAMESPACES: Final = ("kube-system", "cluster-autoscaler")
"""Where it writes that: by its own default, and where its documentation installs it apart."""


async def find(client: Client) -> str:
    """Return the name of the autoscaler that the cluster has: `CLUSTER_AUTOSCALER`, `KARPENTER`, or empty for none.

    Costs one to three reads. Other autoscalers leave nothing in the API, and aren't found.

    Raises:
        KubeError: one of the reads failed, so that nothing is known.
    """
    try:
        await client.send(Request("GET", f"/apis/{GROUP}"))
    except NotFoundError:
        pass
    else:
        return KARPENTER
    for namespace in NAMESPACES:
        if await client.find(kinds.CONFIGMAPS, STATUS, namespace) is not None:
            return CLUSTER_AUTOSCALER
    return ""
