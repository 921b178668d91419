"""The real kubectl, each version at hand, against the sandbox and against the real control plane.

What passes on one and not on the other is the sandbox's fault. Runs in real time, since kubectl does.
"""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
import os
import shutil
import ssl
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
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
from muster.sandbox import http
from muster.sandbox.compose import Sandbox
from muster.sandbox.controllers.plans import pod_lifecycle
from muster.sandbox.core.users import ADMIN

SECONDS = 120
NODE = "kubectl-node"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
TOKEN = "of-the-tests"
_NUMBERS = itertools.count()


def _clients() -> dict[str, Path]:
    """Return the kubectl on PATH and the one built for the control plane, those that there are."""
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
class Server:
    """An API server, as a kubeconfig tells of it: kubectl asks it, and tests do directly for what isn't kubectl's."""

    name: str
    kubeconfig: Path

    def config(self, namespace: str) -> dict[str, Any]:
        """Return the kubeconfig with a namespace to work in."""
        config: dict[str, Any] = yaml.safe_load(self.kubeconfig.read_text())
        for context in config["contexts"]:
            context["context"]["namespace"] = namespace
        return config

    def send(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        """Return what it answers, None for what isn't there; what is there already may be."""
        config = self.config("")
        ((cluster,), (user,)) = config["clusters"], config["users"]
        request = urllib.request.Request(cluster["cluster"]["server"] + path, method=method)
        request.add_header("Authorization", f"Bearer {user['user']['token']}")
        if body is not None:
            request.add_header("Content-Type", "application/json")
            request.data = json.dumps(body).encode()
        try:
            with urllib.request.urlopen(request, timeout=SECONDS, context=_trusting(cluster["cluster"])) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                if error.code not in {404, 409}:
                    raise
            return None

    def until(self, path: str, holds: Callable[[Any], Any]) -> None:
        """Ask until something is so of the answer."""
        _until(lambda: holds(self.send("GET", path)), path)


def _trusting(cluster: dict[str, Any]) -> ssl.SSLContext:
    data = base64.b64decode(cluster.get("certificate-authority-data", "")).decode()
    return ssl.create_default_context(cafile=cluster.get("certificate-authority"), cadata=data or None)


def _until(holds: Callable[[], Any], what: str) -> None:
    deadline = time.monotonic() + SECONDS
    while not holds():
        assert time.monotonic() < deadline, f"{what}: not so within {SECONDS} s"
        time.sleep(0.05)


@dataclass(frozen=True)
class Kubectl:
    """Runs kubectl in a namespace and a home of its own, with the caches of its module."""

    binary: Path
    home: Path
    caches: Path
    namespace: str
    server: Server

    @property
    def environment(self) -> dict[str, str]:
        """Nothing of the machine's own configuration."""
        own = {
            "HOME": str(self.home),
            "KUBECACHEDIR": str(self.caches),
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
        front = http.HttpFront(sandbox.server, users={TOKEN: ADMIN}, tls=tls)
        url = await front.start()
        await sandbox.add_node(NODE, "8", "16Gi")
        ready.set_result(http.kubeconfig(url, TOKEN, ca.certificate))
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


@pytest.fixture(scope="module")
def sandbox_kubeconfig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A sandbox that runs, as the path of a kubeconfig; kubectl is not to wait for its pods to start and to stop."""
    with pytest.MonkeyPatch.context() as quick, _sandbox(tmp_path_factory.mktemp("sandbox")) as path:
        for name in ("START_SECONDS", "STOP_SECONDS"):
            quick.setattr(pod_lifecycle, name, 0.1)
        yield path


def _pairs() -> list[Any]:
    """The kubectl on PATH asks the sandbox, the one built with it the real control plane, which proves the tests."""
    clients = [*CLIENTS]
    pairs = [("sandbox", client) for client in clients[:1]] + [("kubernetes", client) for client in clients[-1:]]
    ids = [pytest.param(pair, id="-".join(pair)) for pair in pairs]
    return ids or [pytest.param(None, marks=pytest.mark.skip(reason="kubectl: not run, none on PATH and none built"))]


@pytest.fixture(scope="module")
def caches(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the kubectls of a module keep what servers have told them of their kinds."""
    return tmp_path_factory.mktemp("caches")


@pytest.fixture(params=_pairs())
def kubectl(request: pytest.FixtureRequest, tmp_path: Path, caches: Path) -> Iterator[Kubectl]:
    """kubectl in a new namespace of a server that has controllers."""
    server_name, binary_name = request.param
    fixture = "sandbox_kubeconfig" if server_name == "sandbox" else "real_control_plane"
    found = request.getfixturevalue(fixture)
    server = Server(server_name, found if isinstance(found, Path) else found.kubeconfig())
    namespace = f"kubectl-{next(_NUMBERS)}"
    (tmp_path / "config").write_text(yaml.safe_dump(server.config(namespace)))
    server.send("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})
    yield Kubectl(CLIENTS[binary_name], tmp_path, caches / server_name, namespace, server)
    server.send("DELETE", f"/api/v1/namespaces/{namespace}")


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
    if kubectl.server.send("POST", DEFINITIONS, yaml.safe_load(CART)):
        # It is established before it is in all that is told of kinds.
        _until(lambda: kubectl.run("explain", "cart.spec.wheels").status == 0, "explain cart")
    return kubectl


@pytest.fixture
def node(kubectl: Kubectl) -> str:
    """Name of a node on which pods run."""
    metadata = {"name": NODE, "annotations": {"kwok.x-k8s.io/node": "fake"}}
    kubectl.server.send("POST", "/api/v1/nodes", {"metadata": metadata})
    kubectl.server.until(f"/api/v1/nodes/{NODE}", _ready)
    kubectl.server.until(f"/api/v1/namespaces/{kubectl.namespace}/serviceaccounts/default", lambda found: found)
    return NODE


def _ready(node: Any) -> bool:
    conditions = node["status"].get("conditions", ())
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)
