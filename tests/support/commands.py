"""Commands of ours against a sandbox behind real TLS, all in this process."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import ssl
import sys
import warnings
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

from click.testing import CliRunner

from certs import authority
from muster.cli import main
from muster.kube.client import Client
from muster.kube.clock import SystemClock
from muster.sandbox.compose import Sandbox
from muster.sandbox.core.users import ADMIN, User
from muster.sandbox.http import HttpFront, HttpWebhookCaller, kubeconfig

QUICK = (
    sys.executable,
    "-c",
    (
        "import certs.controller, certs.serving; certs.controller.LOOK = certs.serving.POLL = 0.2;"
        " from muster.cli.main import main; main()"
    ),
)
"""`muster` in a process of its own, which looks at replicas and at files more often than every other second."""


@contextlib.asynccontextmanager
async def cluster(folder: Path, users: Mapping[str, User] | None = None) -> AsyncIterator[Client]:
    """Run an API server; its administrator's kubeconfig is the file of that name in ``folder``.

    ``users`` are others, each with a kubeconfig ``<name>.kubeconfig``.
    """
    clock = SystemClock()
    ca = authority.new_ca(clock.now())
    pair = authority.issue(ca, ("127.0.0.1",), clock.now())
    (folder / "server.pem").write_bytes(pair.certificate + pair.key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "server.pem")
    caller = HttpWebhookCaller()
    sandbox = Sandbox(clock, caller=caller, root_ca=ca.certificate.decode())
    await sandbox.start()
    everybody = {"token": ADMIN, **(users or {})}
    front = HttpFront(sandbox.server, users=everybody, tls=context, host="127.0.0.1", port=0)
    url = await front.start()
    for name in users or ():
        (folder / f"{name}.kubeconfig").write_text(kubeconfig(url, name, ca.certificate))
    (folder / "kubeconfig").write_text(kubeconfig(url, "token", ca.certificate))
    yield Client(sandbox.transport())
    await front.stop()
    await caller.close()
    await sandbox.stop()


async def muster(*words: str) -> tuple[int, str]:
    """Run a command in a thread; give its status and what it said."""
    # A command ends before its TLS connections have said goodbye, and its process with it; here the process goes on.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        done = await asyncio.to_thread(CliRunner().invoke, main.muster, words)
        # Of everything, also of what another command left that runs at the same time.
        gc.collect()
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.exit_code, done.output
