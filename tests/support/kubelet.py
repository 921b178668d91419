"""What nodes do for Muster's pods, on loopback: pods become processes, and a Service leads to those that are ready.

`Kubelet` starts the program of each pod of a namespace with the arguments that its manifest has, mounts its Secrets and
ConfigMaps as folders that follow them, reports readiness as /readyz tells it, and ends the process as the manifest says.
Where a Service of the namespace has its address (one of loopback), it listens and leads to the ready pods behind it.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import itertools
import json
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Self

import msgspec
from controlplane import ControlPlane, free_ports
from deployed import _die_with_parent
from plane import RealLoop
from rotating import _Near

from muster.cli.certs import files
from muster.kube import auth, errors
from muster.kube.cache import ObjectCache, ObjectChange
from muster.kube.client import Client
from muster.kube.http import HttpTransport
from muster.kube.reflector import Reflector
from muster.kube.transport import Request
from muster.model import kinds, objects
from muster.model.kinds import Kind

NODE = "loopback"
PORT, PROBES = "webhooks", "probes"
_LOOK = 0.2
_PATIENCE = 2.0
_AGAIN = 0.5
_SPREAD = 0.5
"""Seconds until who leads to pods has noticed that one is ready, or isn't any more."""
_CONTROLLERS = 60.0
_NOBODY = 1  # a port that nobody listens on


class Raw(objects.Object, frozen=True, kw_only=True):
    """An object with all that it has."""

    spec: dict[str, Any] = msgspec.field(default_factory=dict)
    status: dict[str, Any] = msgspec.field(default_factory=dict)
    data: dict[str, str] = msgspec.field(default_factory=dict)
    endpoints: list[dict[str, Any]] | None = None


PODS = Kind("", "v1", "pods", "Pod", Raw)
_SECRETS = Kind("", "v1", "secrets", "Secret", Raw)
_CONFIGMAPS = Kind("", "v1", "configmaps", "ConfigMap", Raw)
_SERVICES = Kind("", "v1", "services", "Service", Raw)
_SLICES = Kind("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice", Raw)


@dataclass(eq=False)
class Running:
    """A pod and its process. ``address`` is what the pod has; ``ports`` are where it really listens, by name."""

    name: str
    spec: Mapping[str, Any]
    address: str
    folder: Path
    ports: Mapping[str, int] = field(default_factory=dict)
    process: asyncio.subprocess.Process | None = None
    ending: bool = False
    starts: int = 0
    living: list[asyncio.Task[None]] = field(default_factory=list)

    @property
    def container(self) -> Mapping[str, Any]:
        return self.spec["containers"][0]


class Kubelet:
    """Runs the pods of a namespace, in a thread of its own, while the context is open.

    Attributes:
        pods: those that run, by name.
        ended: the names of those that were ended, and their programs' statuses.
        log: what all programs wrote.
    """

    def __init__(self, plane: ControlPlane, namespace: str, folder: Path, program: list[str]) -> None:
        self.pods: dict[str, Running] = {}
        self.ended: dict[str, int] = {}
        self.log = folder / "pods.log"
        self._plane = plane
        self._namespace = namespace
        self._folder = folder
        self._program = program
        self._numbers = itertools.count(1)
        self._contents: dict[tuple[str, str], dict[str, bytes]] = {}
        self._listed: dict[str, list[str]] = {}
        self._behind: dict[str, list[str]] = {}
        self._failed: list[BaseException] = []
        self._entered = threading.Event()
        self._thread = threading.Thread(target=self._main, name="kubelet")

    def __enter__(self) -> Self:
        self._thread.start()
        self._entered.wait()
        assert not self._failed, self._failed
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._left.set)
        self._thread.join()
        assert not self._failed, self._failed

    def power(self, *, on: bool) -> None:
        """Kill every program at once and start none; or let them start again."""

        async def switch() -> None:
            if on:
                self._power.set()
            else:
                self._power.clear()
                for pod in self.pods.values():
                    _kill(pod)

        asyncio.run_coroutine_threadsafe(switch(), self._loop).result(30)

    # ── the thread ───────────────────────────────────────────────────────────────────────────────────────────────

    def _main(self) -> None:
        with asyncio.Runner(loop_factory=RealLoop) as runner:
            runner.run(self._run())

    async def _run(self) -> None:
        self._loop, self._left, self._power = asyncio.get_running_loop(), asyncio.Event(), asyncio.Event()
        self._relisted = asyncio.Event()
        self._power.set()
        self._servers: dict[str, asyncio.Server] = {}
        try:
            endpoint = await auth.load(str(self._plane.kubeconfig()))
            async with HttpTransport(endpoint) as transport, asyncio.TaskGroup() as group:
                self._client, self._group = Client(transport), group
                await self._client.create(kinds.NODES, {"metadata": {"name": NODE}})
                tasks = [group.create_task(each.run()) for each in self._reflectors()]
                self._entered.set()
                await self._left.wait()
                for task in (*tasks, *(one for pod in self.pods.values() for one in pod.living)):
                    task.cancel()
                for pod in self.pods.values():
                    _kill(pod)
                    if pod.process is not None:
                        await pod.process.wait()
                for server in self._servers.values():
                    server.close()
        except* Exception as caught:  # noqa: BLE001 - whoever entered is told
            self._failed.extend(caught.exceptions)
        finally:
            self._entered.set()

    def _reflectors(self) -> Iterator[Reflector[Any]]:
        watched: dict[Kind[Raw], Callable[[ObjectChange[Raw]], None]] = {
            _SECRETS: partial(self._on_content, "Secret"),
            _CONFIGMAPS: partial(self._on_content, "ConfigMap"),
            _SERVICES: self._on_service,
            _SLICES: self._on_endpoints,
            PODS: self._on_pod,
        }
        for kind, note in watched.items():
            cache: ObjectCache[Raw] = ObjectCache()
            cache.subscribe(note)
            yield Reflector(self._client, kind, cache, namespace=self._namespace)

    # ── contents ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _on_content(self, kind: str, change: ObjectChange[Raw]) -> None:
        if (found := change.new) is None:
            return
        read = base64.b64decode if kind == "Secret" else str.encode
        self._contents[kind, found.name] = {name: read(text) for name, text in found.data.items()}
        for pod in self.pods.values():
            self._mount(pod)

    def _mount(self, pod: Running) -> None:
        for volume in pod.spec.get("volumes", ()):
            source = volume.get("secret", {}).get("secretName") or volume.get("configMap", {}).get("name")
            kind = "Secret" if "secret" in volume else "ConfigMap"
            folder = pod.folder / volume["name"]
            folder.mkdir(parents=True, exist_ok=True)
            if data := self._contents.get((kind, source)):
                files.write(folder, data)

    # ── pods ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def _on_pod(self, change: ObjectChange[Raw]) -> None:
        found = change.new
        if found is None:
            assert change.old is not None
            if (gone := self.pods.pop(change.old.name, None)) is not None:
                gone.ending = True
                _kill(gone)
            return
        pod = self.pods.get(found.name)
        if pod is None:
            number = next(self._numbers)
            pod = Running(found.name, found.spec, f"10.244.0.{number}", self._folder / found.name)
            self.pods[found.name] = pod
            pod.living.append(self._group.create_task(self._live(pod)))
        if found.metadata.deletion_timestamp is not None and not pod.ending:
            pod.ending = True
            self._group.create_task(self._end(pod))

    async def _live(self, pod: Running) -> None:
        self._mount(pod)
        target = {"metadata": {"name": pod.name}, "target": {"kind": "Node", "name": NODE}}
        path = PODS.path(self._namespace, pod.name, "binding")
        try:
            await self._client.send(Request("POST", path, {}, json.dumps(target).encode()))
            config = await self._kubeconfig(pod.spec["serviceAccountName"])
        except (errors.NotFoundError, errors.ConflictError):
            return  # it goes already, or its account does
        while not pod.ending:
            await self._power.wait()
            if pod.ending:
                return
            status = await self._once(pod, config)
            if pod.spec["restartPolicy"] == "Never" and not pod.ending:
                await self._report(pod, ready=False, phase="Failed" if status else "Succeeded")
                return
            await self._report(pod, ready=False)
            await asyncio.sleep(_AGAIN)

    async def _once(self, pod: Running, kubeconfig: Path) -> int:
        # Anew each time: another program may have taken one meanwhile.
        pod.ports = dict(zip((PORT, PROBES), free_ports(2), strict=True))
        with self.log.open("ab") as log:
            pod.process = await asyncio.create_subprocess_exec(
                *(*self._program, *self._arguments(pod)),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd="/",
                env={"PATH": "/usr/bin:/bin", "KUBECONFIG": str(kubeconfig), "HOSTNAME": pod.name},
                preexec_fn=_die_with_parent,
            )
        pod.starts += 1
        watching = asyncio.create_task(self._watch(pod))
        try:
            return await pod.process.wait()
        finally:
            watching.cancel()

    def _arguments(self, pod: Running) -> list[str]:
        """Return the container's arguments, with its mounts and ports where they are on this machine."""
        given = list(pod.container["args"])
        for mount in pod.container.get("volumeMounts", ()):
            if (folder := pod.folder / mount["name"]).is_dir():
                given = [each.replace(f"={mount['mountPath']}", f"={folder}") for each in given]
        named = {each["name"] for each in pod.container.get("ports", ())}
        if PORT in named:
            given += ["--host", "127.0.0.1", "--port", str(pod.ports[PORT])]
        return given + (["--probe-port", str(pod.ports[PROBES])] if PROBES in named else [])

    async def _watch(self, pod: Running) -> None:
        """Report whether the pod is ready, whenever that changes."""
        reported = None
        while True:
            ready = await _asked(pod.ports[PROBES])
            if ready is not reported:
                await self._report(pod, ready=ready)
                reported = ready
            await asyncio.sleep(_LOOK)

    async def _report(self, pod: Running, *, ready: bool, phase: str = "Running") -> None:
        said = "True" if ready else "False"
        state = {"terminated": {"exitCode": int(phase == "Failed")}} if phase != "Running" else {"running": {}}
        container = {"name": pod.container["name"], "ready": ready, "started": True, "state": state}
        status = {
            "phase": phase,
            "podIP": pod.address,
            "podIPs": [{"ip": pod.address}],
            "conditions": [{"type": kind, "status": said} for kind in ("Ready", "ContainersReady")],
            "containerStatuses": [
                container | {"image": pod.container["image"], "imageID": "", "restartCount": pod.starts}
            ],
        }
        with contextlib.suppress(errors.NotFoundError):
            path = PODS.path(self._namespace, pod.name, "status")
            body, form = json.dumps({"status": status}).encode(), "application/strategic-merge-patch+json"
            await self._client.send(Request("PATCH", path, {}, body, form))

    async def _end(self, pod: Running) -> None:
        """End a pod as its manifest says: first what precedes the signal, then the signal, at last by force."""
        before = pod.container.get("lifecycle", {}).get("preStop", {}).get("sleep", {}).get("seconds", 0)
        # How quick the controllers are on this machine isn't what is looked at: time begins when they have noticed.
        async with asyncio.timeout(_CONTROLLERS):
            while any(pod.address in addresses for addresses in self._listed.values()):
                self._relisted.clear()
                await self._relisted.wait()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(pod.spec["terminationGracePeriodSeconds"]):
                await asyncio.sleep(before)
                if pod.process is not None and pod.process.returncode is None:
                    pod.process.terminate()
                    self.ended[pod.name] = await pod.process.wait()
        _kill(pod)
        for task in pod.living:
            task.cancel()
        with contextlib.suppress(errors.NotFoundError):
            await self._client.send(
                Request("DELETE", PODS.path(self._namespace, pod.name), {"gracePeriodSeconds": "0"})
            )

    async def _kubeconfig(self, account: str) -> Path:
        path = kinds.SERVICEACCOUNTS.path(self._namespace, account, "token")
        request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
        answer = await self._client.send(Request("POST", path, {}, json.dumps(request).encode()))
        return self._plane.kubeconfig(account, json.loads(answer.body)["status"]["token"])

    # ── the way to them ──────────────────────────────────────────────────────────────────────────────────────────

    def _on_service(self, change: ObjectChange[Raw]) -> None:
        if (found := change.new) is not None and found.name not in self._servers:
            self._group.create_task(self._listen(found))
        elif found is None and change.old is not None and (server := self._servers.pop(change.old.name, None)):
            server.close()

    async def _listen(self, service: Raw) -> None:
        turns = self._turns(service.name)
        self._servers[service.name] = await self._loop.create_server(
            lambda: _Near(turns), service.spec["clusterIP"], service.spec["ports"][0]["port"]
        )

    def _turns(self, service: str) -> Iterator[int]:
        for number in itertools.count():
            addresses = self._behind.get(service, [])
            found = [pod.ports[PORT] for pod in self.pods.values() if pod.ports and pod.address in addresses]
            yield found[number % len(found)] if found else _NOBODY

    def _on_endpoints(self, change: ObjectChange[Raw]) -> None:
        found = change.new or change.old
        assert found is not None
        listed = (found.endpoints or ()) if change.new is not None else ()
        ready = [each for each in listed if each.get("conditions", {}).get("ready")]
        addresses = [address for each in ready for address in each["addresses"]]
        service = found.metadata.label("kubernetes.io/service-name")
        self._listed[service] = addresses
        self._relisted.set()
        self._loop.call_later(_SPREAD, self._behind.__setitem__, service, addresses)


def _kill(pod: Running) -> None:
    if pod.process is not None and pod.process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            pod.process.kill()


async def _asked(port: int) -> bool:
    """Ask /readyz."""
    loop = asyncio.get_running_loop()
    # A bare socket: it is closed whenever the look is given up.
    with socket.socket() as line, contextlib.suppress(OSError, TimeoutError):
        line.setblocking(False)
        async with asyncio.timeout(_PATIENCE):
            await loop.sock_connect(line, ("127.0.0.1", port))
            await loop.sock_sendall(line, b"GET /readyz HTTP/1.0\r\n\r\n")
            return b" 200 " in await loop.sock_recv(line, 64)
    return False
