"""Keeps the APIService of the visibility API: there while a replica answers, with the bundle of the webhooks, and deleted otherwise.

An APIService that nobody answers for holds up the deletion of every namespace, so there is none then. Its bundle is the one that API
servers trust the webhooks by, whoever writes that.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import logging
from typing import Any, Final

import msgspec
from msgspec import Struct

from certs import replicas
from certs.replicas import Prober
from certs.targets import WebhookService
from muster.kube import errors
from muster.kube.client import Client
from muster.kube.errors import KubeError
from muster.kube.transport import JSON, MERGE_PATCH, Request
from muster.model import kinds

NAME: Final = "v1alpha1.visibility.muster.sh"
SERVICE: Final = "muster-visibility"
PORT: Final = 9444
POLL: Final = 2.0
"""Seconds between two looks. A namespace is to be deleted within ten seconds of the last replica's end."""
_PATH: Final = "/apis/apiregistration.k8s.io/v1/apiservices"

log = logging.getLogger(__name__)


class Registration(Struct, frozen=True):
    """Where the API is served: a Service, and the name of the webhook configurations whose bundle counts."""

    namespace: str
    configuration: str = "muster"
    service: str = SERVICE
    port: int = PORT
    probes: tuple[str, ...] = ()

    def manifest(self, bundle: bytes) -> dict[str, Any]:
        """Return the APIService: below every group that has a name of kubectl's, so that none changes its meaning."""
        return {
            "apiVersion": "apiregistration.k8s.io/v1",
            "kind": "APIService",
            "metadata": {"name": NAME, "labels": {"app.kubernetes.io/part-of": "muster"}},
            "spec": {
                "group": "visibility.muster.sh",
                "version": "v1alpha1",
                "groupPriorityMinimum": 100,
                "versionPriority": 10,
                "caBundle": base64.b64encode(bundle).decode(),
                "service": {"namespace": self.namespace, "name": self.service, "port": self.port},
            },
        }


class ApiServiceKeeper:
    """Registers the API while it is served, for as long as this process leads. What goes wrong is logged once, and tried again."""

    def __init__(self, client: Client, registration: Registration, prober: Prober = replicas.probe) -> None:
        self._client = client
        self._registration = registration
        self._prober = prober
        self._said = ""

    async def run(self) -> None:
        """Work until cancelled."""
        while True:
            try:
                self._say(logging.INFO, await self.take_step())
            except KubeError as error:
                self._say(logging.WARNING, f"the APIService {NAME} can't be kept: {error}")
            await asyncio.sleep(POLL)

    async def take_step(self) -> str:
        """Register the API or not, as it is served or not; return what holds now.

        Raises:
            KubeError: the API server can't be read or doesn't allow it.
        """
        bundle, served = await self._bundle(), await self._is_served()
        found = await self._find()
        if not (bundle and served):
            why = "no replica answers" if bundle else "the webhooks have no bundle yet"
            if found is not None:
                await remove(self._client)
            return f"the visibility API isn't registered: {why}"
        wanted = self._registration.manifest(bundle)
        if found is None:
            await self._send("POST", "", wanted)
        elif any(found.get(key) != value for key, value in wanted["spec"].items()):
            await self._send("PATCH", f"/{NAME}", {"spec": wanted["spec"]})
        return "the visibility API is registered"

    async def _bundle(self) -> bytes:
        """Return what API servers trust the webhooks by (PEM); nothing where there are none."""
        found = await self._client.find(kinds.VALIDATING, self._registration.configuration)
        configs = [each.get("clientConfig") for each in (found.webhooks if found is not None else None) or ()]
        bundles = [config.get("caBundle") for config in configs if isinstance(config, dict)]
        return next((base64.b64decode(each) for each in bundles if isinstance(each, str) and each), b"")

    async def _is_served(self) -> bool:
        """Whether a replica shows a certificate."""
        registration = self._registration
        service = WebhookService(registration.namespace, registration.service)
        addresses = await replicas.find(self._client, [service], registration.probes)
        name = f"{registration.service}.{registration.namespace}.svc"
        shown = await replicas.look(self._prober, addresses or (), name)
        return any(each.chain for each in shown.values())

    async def _find(self) -> dict[str, Any] | None:
        try:
            answer = await self._client.send(Request("GET", f"{_PATH}/{NAME}"))
        except errors.NotFoundError:
            return None
        found: dict[str, Any] = msgspec.json.decode(answer.body)["spec"]
        return found

    async def _send(self, method: str, path: str, body: dict[str, Any]) -> None:
        form = MERGE_PATCH if method == "PATCH" else JSON
        await self._client.send(Request(method, _PATH + path, {}, msgspec.json.encode(body), form))

    def _say(self, level: int, text: str) -> None:
        if text != self._said:
            log.log(level, "%s", text)
        self._said = text


async def remove(client: Client) -> None:
    """Delete the APIService; fine where there is none.

    Raises:
        KubeError: the API server doesn't allow it.
    """
    with contextlib.suppress(errors.NotFoundError):
        await client.send(Request("DELETE", f"{_PATH}/{NAME}"))
