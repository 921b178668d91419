"""The real kubectl, each version at hand, against the sandbox and against the real control plane.

What passes on one and not on the other is the sandbox's fault. Runs in real time, since kubectl does.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import shutil
import ssl
import subprocess
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import binaries
import pytest
import yaml

from certs import authority
from muster.kube.clock import SystemClock
from muster.sandbox import apiserver
from muster.sandbox.sandbox import Sandbox
from muster.sandbox.users import ADMIN

SECONDS = 120
NODE = "kubectl-node"
TOKEN = "of-the-tests"
_NUMBERS = itertools.count()


def _clients() -> dict[str, Path]:
    """Give the kubectl on PATH and the one built for the control plane, those that there are."""
    on_path = shutil.which("kubectl")
    found = {"path": Path(on_path) if on_path else None, "built": binaries.find("kubectl")}
    return {name: path for name, path in found.items() if path is not None}


CLIENTS = _clients()


@dataclass(frozen=True)
class Done:
    """What a command printed and how it ended."""

    status: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        """Rows of stdout."""
        return self.out.splitlines()

    @property
    def words(self) -> list[list[str]]:
        """Rows of stdout, each as its cells (of one word each)."""
        return [line.split() for line in self.lines]


@dataclass(frozen=True)
class Background:
    """A command that runs."""

    process: subprocess.Popen[str]

    def line(self) -> list[str]:
        """Await a line of its stdout; give its words, none when it has ended."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().split()

    def end(self) -> int:
        """Await its end; give its exit status, negative when it was ended for lasting too long."""
        return self.process.wait()


@dataclass(frozen=True)
class Kubectl:
    """Runs kubectl in a namespace of its own, with a home and caches of its own."""

    binary: Path
    home: Path
    namespace: str
    server: str
    """``sandbox`` or ``kubernetes``."""

    @property
    def environment(self) -> dict[str, str]:
        """Nothing of the machine's own configuration."""
        own = {
            "HOME": str(self.home),
            "KUBECACHEDIR": str(self.home / "cache"),
            "KUBECONFIG": str(self.home / "config"),
        }
        return {"PATH": os.environ["PATH"]} | own

    def run(self, *arguments: str, stdin: str = "", **environment: str) -> Done:
        """Run to the end, however it ends."""
        done = subprocess.run(
            [str(self.binary), *arguments],
            input=stdin,
            env=self.environment | environment,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        return Done(done.returncode, done.stdout, done.stderr)

    def __call__(self, *arguments: str, stdin: str = "", **environment: str) -> Done:
        """Run and expect success without a word on stderr."""
        done = self.run(*arguments, stdin=stdin, **environment)
        assert done.status == 0, f"kubectl {' '.join(arguments)}: {done.err}{done.out}"
        assert not done.err, f"kubectl {' '.join(arguments)}: {done.err}"
        return done

    def fails(self, *arguments: str, stdin: str = "", **environment: str) -> str:
        """Run, expect failure, give what it says."""
        done = self.run(*arguments, stdin=stdin, **environment)
        assert done.status == 1, f"kubectl {' '.join(arguments)} ended with {done.status}: {done.out}{done.err}"
        return done.err.strip()

    @contextmanager
    def started(self, *arguments: str) -> Iterator[Background]:
        """Run in the background, until the end of the block or for `SECONDS` at the most."""
        process = subprocess.Popen(
            [str(self.binary), *arguments],
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
        )
        watchdog = threading.Timer(SECONDS, process.kill)
        watchdog.start()
        try:
            yield Background(process)
        finally:
            watchdog.cancel()
            process.kill()
            process.communicate()

    def file(self, name: str, text: str) -> str:
        """Write a file and give its path."""
        path = self.home / name
        path.write_text(text)
        return str(path)


@contextmanager
def _sandbox(folder: Path) -> Iterator[Path]:
    """Run a sandbox over HTTPS in a thread with a loop of its own; give the path of its kubeconfig."""
    ready: Future[str] = Future()
    ending = threading.Event()

    async def serve() -> None:
        now = SystemClock().now()
        ca = authority.new_ca(now)
        pair = authority.issue(ca, ("127.0.0.1",), now)
        (folder / "tls.crt").write_bytes(pair.certificate)
        (folder / "tls.key").write_bytes(pair.key)
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(folder / "tls.crt", folder / "tls.key")
        sandbox = Sandbox(SystemClock(), root_ca=ca.certificate.decode())
        await sandbox.start()
        front = apiserver.HttpFront(sandbox.server, users={TOKEN: ADMIN}, tls=tls)
        url = await front.start()
        await sandbox.add_node(NODE, "8", "16Gi")
        ready.set_result(apiserver.kubeconfig(url, TOKEN, ca.certificate))
        await asyncio.to_thread(ending.wait)
        await front.stop()
        await sandbox.stop()

    with ThreadPoolExecutor(1) as pool:
        serving = pool.submit(asyncio.run, serve())
        serving.add_done_callback(lambda done: ready.cancel() if done.exception() else None)
        try:
            (folder / "kubeconfig").write_text(ready.result())
            yield folder / "kubeconfig"
        finally:
            ending.set()
            serving.result()


@pytest.fixture(scope="session")
def sandbox_kubeconfig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A sandbox that runs, as the path of a kubeconfig."""
    with _sandbox(tmp_path_factory.mktemp("sandbox")) as path:
        yield path


def _pairs() -> list[Any]:
    """The kubectl on PATH asks the sandbox, the one built with it the real control plane, which proves the tests."""
    clients = [*CLIENTS]
    pairs = [("sandbox", client) for client in clients[:1]] + [("kubernetes", client) for client in clients[-1:]]
    ids = [pytest.param(pair, id="-".join(pair)) for pair in pairs]
    return ids or [pytest.param(None, marks=pytest.mark.skip(reason="kubectl: not run, none on PATH and none built"))]


@pytest.fixture(params=_pairs())
def kubectl(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Kubectl]:
    """kubectl as someone has it who has just been given a kubeconfig; its server has controllers."""
    server, name = request.param
    if server == "kubernetes":
        kubeconfig = request.getfixturevalue("real_control_plane").kubeconfig()
    else:
        kubeconfig = request.getfixturevalue("sandbox_kubeconfig")
    namespace = f"kubectl-{next(_NUMBERS)}"
    config = yaml.safe_load(kubeconfig.read_text())
    for context in config["contexts"]:
        context["context"]["namespace"] = namespace
    (tmp_path / "config").write_text(yaml.safe_dump(config))
    client = Kubectl(CLIENTS[name], tmp_path, namespace, server)
    client("create", "namespace", namespace)
    yield client
    client.run("delete", "namespace", namespace, "--wait=false")


CART = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: carts.shop.example.com}
spec:
  group: shop.example.com
  scope: Namespaced
  names: {kind: Cart, plural: carts, singular: cart, shortNames: [ct], categories: [shopping]}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}, scale: {specReplicasPath: .spec.wheels, statusReplicasPath: .status.wheels}}
    additionalPrinterColumns:
    - {name: Wheels, type: integer, jsonPath: .spec.wheels}
    - {name: Colour, type: string, jsonPath: .spec.colour}
    - {name: Ready, type: string, jsonPath: '.status.conditions[?(@.type=="Ready")].status'}
    - {name: Owner, type: string, jsonPath: .spec.owner, priority: 1}
    - {name: Age, type: date, jsonPath: .metadata.creationTimestamp}
    schema:
      openAPIV3Schema:
        description: Something to push around.
        type: object
        properties:
          spec:
            description: What the cart is like.
            type: object
            required: [wheels]
            properties:
              wheels: {type: integer, minimum: 0, maximum: 8, description: How many wheels it has.}
              colour: {type: string, default: red, enum: [red, blue, green]}
              owner: {type: string}
              items:
                type: array
                items: {type: string}
              tags: {type: object, additionalProperties: {type: string}}
          status:
            type: object
            properties:
              wheels: {type: integer}
              conditions:
                type: array
                items:
                  type: object
                  properties: {type: {type: string}, status: {type: string}}
"""


@pytest.fixture
def carts(kubectl: Kubectl) -> Kubectl:
    """kubectl on a server that has a custom resource with printer columns, status and scale."""
    kubectl.run("create", "-f", "-", stdin=CART)
    kubectl("wait", "--for=condition=Established", "crd/carts.shop.example.com", "--timeout=100s")
    return kubectl


@pytest.fixture
def node(kubectl: Kubectl) -> str:
    """Name of a node on which pods run."""
    manifest = f"{{apiVersion: v1, kind: Node, metadata: {{name: {NODE}, annotations: {{kwok.x-k8s.io/node: fake}}}}}}"
    kubectl.run("create", "-f", "-", stdin=manifest)
    kubectl("wait", "--for=condition=Ready", f"node/{NODE}", "--timeout=100s")
    kubectl("wait", "--for=create", "serviceaccount/default", "--timeout=100s")
    return NODE
