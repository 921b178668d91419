"""An HTTPS webhook server whose answers the sequences give, and which remembers what it was asked.

Each control plane reaches it under a path of its own: /<plane>/<namespace>/<hook>.
"""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from aiohttp import web

from certs import authority
from muster.kube.clock import SystemClock

READY = "ready"
"""A hook that is always there: it denies, and so shows that a configuration is in force."""

_DENIES = {"allowed": False, "status": {"message": READY, "code": 403}}


class Hooks:
    """The server's state. ``url`` is without a slash at its end; ``ca_bundle`` and ``other_bundle`` are base64 of PEM."""

    def __init__(self, url: str, ca_bundle: str, other_bundle: str) -> None:
        self.url = url
        self.ca_bundle = ca_bundle
        self.other_bundle = other_bundle
        self._answers: dict[str, dict[str, Any]] = {}
        self._calls: dict[str, list[Any]] = defaultdict(list)

    def answer(self, plane: str, namespace: str, hook: str, answer: dict[str, Any]) -> None:
        """Set what a hook answers.

        ``response`` (of the review; its ``patch`` a list of operations), or ``body`` as it stands; ``status`` and
        ``headers`` of HTTP; ``delay`` in seconds; ``version`` and ``uid`` of the review that aren't those asked for.
        """
        self._answers[f"/{plane}/{namespace}/{hook}"] = answer

    def calls(self, plane: str, namespace: str, hook: str) -> list[Any]:
        """Return the reviews that a hook was asked for, and forget them."""
        return self._calls.pop(f"/{plane}/{namespace}/{hook}", [])

    async def serve(self, request: web.BaseRequest) -> web.Response:
        review = json.loads(await request.read())
        if request.path.endswith(f"/{READY}"):
            return _reviewed(review, {"response": _DENIES})
        self._calls[request.path].append(review)
        answer = self._answers[request.path]
        await asyncio.sleep(answer.get("delay", 0))
        if "body" in answer:
            return web.Response(
                status=answer.get("status", 200), text=answer["body"], headers=answer.get("headers", {})
            )
        return _reviewed(review, answer)


def _reviewed(review: Any, answer: dict[str, Any]) -> web.Response:
    response = {"uid": answer.get("uid", review["request"]["uid"]), **answer.get("response", {})}
    if isinstance(response.get("patch"), list):
        encoded = base64.b64encode(json.dumps(response["patch"]).encode()).decode()
        response |= {"patch": encoded, "patchType": response.get("patchType", "JSONPatch")}
    version = answer.get("version", review["apiVersion"])
    body = {"apiVersion": version, "kind": answer.get("kind", "AdmissionReview"), "response": response}
    return web.json_response(body, status=answer.get("status", 200), headers=answer.get("headers", {}))


@asynccontextmanager
async def serving(folder: Path) -> AsyncIterator[Hooks]:
    """Serve on loopback."""
    now = SystemClock().now()
    ca, other = authority.new_ca(now), authority.new_ca(now, 2)
    pair = authority.issue(ca, ("127.0.0.1",), now)
    (folder / "hook.crt").write_bytes(pair.certificate)
    (folder / "hook.key").write_bytes(pair.key)
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(folder / "hook.crt", folder / "hook.key")
    hooks = Hooks("", base64.b64encode(ca.certificate).decode(), base64.b64encode(other.certificate).decode())
    runner = web.ServerRunner(web.Server(hooks.serve, access_log=None), shutdown_timeout=0)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls).start()
    hooks.url = f"https://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield hooks
    finally:
        await runner.cleanup()
