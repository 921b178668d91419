"""The least that a webhook in Python does: aiohttp's low-level server over TLS, which allows everything. It judges nothing.

It is the limit beside which Muster's reviews and creations are to be read. ``constant`` answers the same bytes whatever it is
asked, which no API server would take; without it the answer has the uid of the question. With a ledger it writes that, once for each
pod that it is asked about, before it answers: the least that keeps a count of pods.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from pathlib import Path
from typing import Any

import msgspec
import uvloop
from aiohttp import web

from muster.kube import auth
from muster.kube.client import Client
from muster.kube.http import HttpTransport
from muster.model import kinds, names
from muster.model.objects import QuotaLedger


class _Request(msgspec.Struct):
    uid: str


class _Review(msgspec.Struct):
    request: _Request


_ANSWER = '{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{"uid":"%s","allowed":true}}'
_DECODER = msgspec.json.Decoder(_Review)


async def _constant(request: web.BaseRequest) -> web.StreamResponse:
    await request.read()
    return web.Response(body=_ANSWER % "705ab4f5-6393-11e8-b7cc-42010a800002", content_type="application/json")


async def _allowed(request: web.BaseRequest) -> web.StreamResponse:
    uid = _DECODER.decode(await request.read()).request.uid
    return web.Response(body=_ANSWER % uid, content_type="application/json")


class _Writing:
    """Allows everything, and writes a ledger before it allows a pod. Of one question at a time."""

    def __init__(self, client: Client, ledger: QuotaLedger) -> None:
        self._client = client
        self._ledger = ledger

    async def __call__(self, request: web.BaseRequest) -> web.StreamResponse:
        uid = _DECODER.decode(await request.read()).request.uid
        if request.path.endswith("/validate/pods"):
            meta = msgspec.structs.replace(self._ledger.metadata, annotations={"example.com/asked": uid})
            changed = msgspec.structs.replace(self._ledger, metadata=meta)
            self._ledger = await self._client.replace(kinds.QUOTALEDGERS, changed, self._ledger.namespace)
        return web.Response(body=_ANSWER % uid, content_type="application/json")


def run(folder: Path, started: Any, *, constant: bool = False, ledger: tuple[Path, str] | None = None) -> None:
    """Serve with the pair that is in ``folder``, and send the port to ``started``; until the process is ended.

    ``ledger``: whom to write to, as a kubeconfig, and the namespace whose ledger is written.
    """

    async def serve() -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(folder / "tls.crt", folder / "tls.key")
        async with contextlib.AsyncExitStack() as stack:
            answer: Any = _constant if constant else _allowed
            if ledger is not None:
                kubeconfig, namespace = ledger
                client = Client(await stack.enter_async_context(HttpTransport(await auth.load(str(kubeconfig)))))
                answer = _Writing(client, await client.get(kinds.QUOTALEDGERS, names.LEDGER_NAME, namespace))
            server = web.Server(answer, access_log=None)
            listener = await asyncio.get_running_loop().create_server(server, "127.0.0.1", 0, ssl=context)
            started.send(listener.sockets[0].getsockname()[1])
            await listener.serve_forever()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve())
