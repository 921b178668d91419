"""Has kubelets look at the Secrets of the webhook servers at once.

A kubelet compares the volumes of a pod with their Secrets a minute or more apart, and when the pod changes. An annotation
is such a change. Where it can't be written, servers see the Secret at the kubelet's next look by itself.
"""

from __future__ import annotations

import logging
from typing import Final

from muster.kube import errors
from muster.kube.client import Client
from muster.kube.clock import Clock
from muster.model import kinds, names

SERVERS: Final = "app.kubernetes.io/part-of=muster,app.kubernetes.io/component=webhook"

log = logging.getLogger(__name__)


async def refresh(client: Client, clock: Clock, namespace: str) -> None:
    """Annotate the pods that mount a Secret which was just written."""
    written = {"metadata": {"annotations": {names.VOLUMES_WRITTEN: clock.now().isoformat(timespec="microseconds")}}}
    try:
        for pod in (await client.list(kinds.PODS, namespace, labels=SERVERS)).items:
            try:
                await client.patch(kinds.PODS, pod.name, written, namespace)
            except errors.NotFoundError:
                continue
    except errors.KubeError as error:
        log.info("servers see the new Secret when their kubelets look by themselves, in about a minute: %s", error)
