"""A whole cluster in one process: the API server, its admission and the controllers, with simulated nodes.

In virtual time for tests, through `Sandbox.transport`; in real time behind the HTTP front for
``muster up``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final

from muster.kube.clock import Clock
from muster.sandbox.admission import AdmissionChain, WebhookCaller
from muster.sandbox.controllers.controller import Controller
from muster.sandbox.controllers.cronjobs import CronJobController
from muster.sandbox.controllers.daemonsets import DaemonSetController
from muster.sandbox.controllers.default_scheduler import DefaultScheduler
from muster.sandbox.controllers.deployments import DeploymentController
from muster.sandbox.controllers.disruption import DisruptionController
from muster.sandbox.controllers.event_ttl import EventTtl
from muster.sandbox.controllers.garbage_collector import GarbageCollector
from muster.sandbox.controllers.jobs import JobController
from muster.sandbox.controllers.kubelet import Kubelet
from muster.sandbox.controllers.namespaces import NAMESPACES, NamespaceController
from muster.sandbox.controllers.node_lifecycle import NodeLifecycleController
from muster.sandbox.controllers.plans import nodes
from muster.sandbox.controllers.plans.nodes import NODES
from muster.sandbox.controllers.quota import QuotaController
from muster.sandbox.controllers.replicasets import ReplicaSetController
from muster.sandbox.controllers.resourceclaims import ResourceClaimController
from muster.sandbox.controllers.serviceaccounts import SYSTEM_NAMESPACES, ServiceAccountController, namespace
from muster.sandbox.controllers.statefulsets import StatefulSetController
from muster.sandbox.controllers.writer import Writer
from muster.sandbox.core.users import ADMIN, User
from muster.sandbox.inprocess import InProcessTransport
from muster.sandbox.server.requests import ApiServer

_DISK: Final = "100Gi"


class Sandbox:
    """An in-memory cluster. Its state is gone when it stops.

    ``caller`` reaches admission webhooks; without one none can be called. ``root_ca`` is the PEM text of the authority
    that signed the server's certificate, for pods to read; empty without TLS.
    """

    def __init__(self, clock: Clock, *, caller: WebhookCaller | None = None, root_ca: str = "") -> None:
        self.server = ApiServer(clock)
        self.server.writes.admission = AdmissionChain(self.server, caller)
        self._root_ca = root_ca
        self._write = Writer(self.server, ADMIN)
        self._nodes = 0
        self._running: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Make the system's namespaces and start the controllers."""
        for name in SYSTEM_NAMESPACES:
            await self._write.create(NAMESPACES, "", namespace(name))
        self._running = asyncio.create_task(self._control(), name="sandbox controllers")

    async def stop(self) -> None:
        """Stop the controllers.

        Raises:
            ExceptionGroup: one of them had ended with an error before.
        """
        if self._running is None:
            return
        running, self._running = self._running, None
        running.cancel()
        await asyncio.wait([running])
        if not running.cancelled():
            running.result()

    async def wait(self) -> None:
        """Wait until a controller ends with an error, which none should.

        Raises:
            ExceptionGroup: that error.
        """
        if self._running is not None:
            await asyncio.shield(self._running)

    async def add_node(
        self, name: str, cpu: str, memory: str, pods: int = 110, labels: Mapping[str, str] | None = None
    ) -> dict[str, Any]:
        """Add a simulated node that is ready; amounts as Kubernetes writes them. Give it as stored.

        Raises:
            StatusError: there is a node of that name, or an amount is none.
        """
        self._nodes += 1
        capacity = {"cpu": cpu, "ephemeral-storage": _DISK, "memory": memory, "pods": str(pods)}
        status = nodes.status(name, capacity, nodes.address(0, self._nodes), self.server.clock.now())
        made = await self._write.create(NODES, "", {**nodes.node(name, labels or {}), "status": status})
        # The server taints every new node; its controller would remove the taint, a little later.
        return await self._write.patch(NODES, made, {"spec": {"taints": nodes.taints(made) or None}})

    def transport(self, user: User = ADMIN) -> InProcessTransport:
        """Return a way in for a client in this process."""
        return InProcessTransport(self.server, user)

    def _controllers(self) -> list[Controller[Any]]:
        server = self.server
        return [
            ServiceAccountController(server, self._root_ca),
            NamespaceController(server),
            GarbageCollector(server),
            NodeLifecycleController(server),
            Kubelet(server),
            DefaultScheduler(server),
            JobController(server),
            ReplicaSetController(server),
            DeploymentController(server),
            StatefulSetController(server),
            DaemonSetController(server),
            CronJobController(server),
            DisruptionController(server),
            ResourceClaimController(server),
            QuotaController(server),
            EventTtl(server),
        ]

    async def _control(self) -> None:
        async with asyncio.TaskGroup() as group:
            for controller in self._controllers():
                group.create_task(controller.run(), name=type(controller).__name__)
