"""Muster in a cluster as `deploy/` has it: installed, its programs processes of their own under their own accounts."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import json
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from auditlog import PREFIX
from controlplane import ControlPlane, free_ports

from certs import authority
from muster.cli.installation import permissions
from muster.kube import auth
from muster.kube.client import Client
from muster.kube.clock import SystemClock
from muster.kube.http import HttpTransport
from muster.kube.transport import Request
from muster.model import kinds, names
from scheduler.configuration import config

READY_SECONDS = 120.0
_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None, use_errno=True)


def _die_with_parent() -> None:
    # The parent is a thread: whoever starts a program from another than the main one sees it die early.
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


class Program:
    """A command of ours that runs; what it writes is in ``log``."""

    def __init__(self, log: Path, probes: int, *arguments: str, wait: bool = True) -> None:
        self.log = log
        self.probes = probes
        with log.open("ab") as written:
            self._process = subprocess.Popen(
                [sys.executable, "-m", *arguments, "--probe-port", str(probes)],
                stdin=subprocess.DEVNULL,
                stdout=written,
                stderr=written,
                preexec_fn=_die_with_parent,  # noqa: PLW1509 - one prctl, and nothing else dies with us surely
            )
        if wait:
            self._wait_ready()

    @property
    def pid(self) -> int:
        return self._process.pid

    def kill(self) -> None:
        """End it as a crash would."""
        self._process.kill()
        self._process.wait()

    def end(self) -> int:
        """End it as Kubernetes would, and give its status."""
        if self._process.poll() is None:
            self._process.terminate()
        return self._process.wait(timeout=READY_SECONDS)

    def _wait_ready(self) -> None:
        deadline = time.monotonic() + READY_SECONDS
        said = "nothing"
        while self._process.poll() is None and time.monotonic() < deadline:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{self.probes}/readyz", timeout=2):
                    return
            except urllib.error.HTTPError as error:
                said = error.read().decode()
            except OSError as error:
                said = str(error)
            time.sleep(0.05)
        self.kill()
        raise AssertionError(f"not ready: {said}\n{self.log.read_text()[-4000:]}")


class Deployed:
    """Muster beside a control plane. ``webhook`` and ``scheduler`` are the programs that were started last.

    The API server calls ``port``.
    """

    webhook: Program
    scheduler: Program
    certificates: Program
    visibility: Program
    visibility_port: int
    metrics_port: int

    def __init__(self, plane: ControlPlane, folder: Path, *, programs: bool = True) -> None:
        self.plane = plane
        self.folder = folder
        self.port = free_ports(1)[0]
        self._legacy: tuple[str, ...] = ()
        now = SystemClock().now()
        ca = authority.new_ca(now)
        pair = authority.issue(ca, ("127.0.0.1",), now)
        for name, content in (("ca.crt", ca.certificate), ("tls.crt", pair.certificate), ("tls.key", pair.key)):
            (folder / name).write_bytes(content)
        (folder / "scheduler.yaml").write_text(config.DEFAULT.replace("allocate,", "allocate, preempt,"))
        self._install()
        self._kubeconfigs = {
            account: str(asyncio.run(self.kubeconfig_of(account, names.SYSTEM_NAMESPACE)))
            for account in ("muster-webhook", "muster-scheduler", "muster-certs")
        }
        if programs:
            self.start_webhook()
            self.start_scheduler()

    def start_webhook(self, port: int | None = None, *, wait: bool = True) -> Program:
        """Start an admission server, where the API server calls unless told otherwise."""
        self.webhook = Program(
            self.folder / "webhook.log",
            *(free_ports(1)[0], "muster.cli", "webhook", "--kubeconfig", self._kubeconfigs["muster-webhook"]),
            *(
                "--host",
                "127.0.0.1",
                "--port",
                str(port or self.port),
                "--certificates",
                str(self.folder),
                "--drain",
                "0",
            ),
            *("--account", f"{PREFIX}muster-scheduler", *self._legacy),
            wait=wait,
        )
        return self.webhook

    def start_scheduler(self, *, wait: bool = True) -> Program:
        """Start a worker, which leads or stands by."""
        self.scheduler = Program(
            self.folder / "scheduler.log",
            *(free_ports(1)[0], "muster.cli", "scheduler", "--kubeconfig", self._kubeconfigs["muster-scheduler"]),
            *("--config", str(self.folder / "scheduler.yaml"), *self._legacy),
            wait=wait,
        )
        return self.scheduler

    def start_certificates(self) -> Program:
        """Start what keeps the certificates, which waits until there are some."""
        self.metrics_port = free_ports(1)[0]
        self.certificates = Program(
            self.folder / "certs.log",
            *(free_ports(1)[0], "muster.cli", "certs", "run", "--kubeconfig", self._kubeconfigs["muster-certs"]),
            *("--metrics-port", str(self.metrics_port), "--metrics-tls", str(self.folder)),
        )
        return self.certificates

    def prepare_visibility(self) -> None:
        """Make the account of what answers tenants' questions, which `muster install` leaves to the chart."""
        self.visibility_port = free_ports(1)[0]
        self._kubeconfigs["muster-visibility"] = str(asyncio.run(self._make_visibility_account()))

    async def _make_visibility_account(self) -> Path:
        async with HttpTransport(await auth.load(str(self.plane.kubeconfig()))) as transport:
            await permissions.apply(Client(transport), permissions.roles(legacy_apis=False, visibility=True))
        return await self.kubeconfig_of("muster-visibility", names.SYSTEM_NAMESPACE)

    def start_visibility(self, *, wait: bool = True) -> Program:
        """Start what answers tenants' questions, once its account is prepared."""
        self.visibility = Program(
            self.folder / "visibility.log",
            *(free_ports(1)[0], "muster.cli", "visibility", "--kubeconfig", self._kubeconfigs["muster-visibility"]),
            *("--host", "127.0.0.1", "--port", str(self.visibility_port), "--certificates", str(self.folder)),
            *("--config", str(self.folder / "scheduler.yaml"), "--drain", "0"),
            wait=wait,
        )
        return self.visibility

    def serve_legacy_apis(self) -> None:
        """Install the kinds of kube-batch's groups too, and start both programs again to serve them."""
        assert [program.end() for program in (self.scheduler, self.webhook)] == [0, 0]
        self._legacy = ("--legacy-apis",)
        self._install()
        self.start_webhook()
        self.start_scheduler()

    @property
    def address(self) -> str:
        """Where the admission server listens."""
        return f"127.0.0.1:{self.port}"

    def certs(self, *words: str) -> str:
        """Run ``muster certs`` as an administrator; give what was said."""
        return self._muster("certs", *words)

    def uninstall(self) -> str:
        """Take it out of the cluster; give what was said."""
        return self._muster("uninstall")

    def _install(self) -> None:
        authority_file = str(self.folder / "ca.crt")
        self._muster("install", "--url", f"https://127.0.0.1:{self.port}", "--ca-file", authority_file, *self._legacy)

    async def kubeconfig_of(self, account: str, namespace: str) -> Path:
        """Return a kubeconfig of a service account, with a token of its own."""
        request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
        async with HttpTransport(await auth.load(str(self.plane.kubeconfig()))) as transport:
            path = kinds.SERVICEACCOUNTS.path(namespace, account, "token")
            answer = await Client(transport).send(Request("POST", path, {}, json.dumps(request).encode()))
        return self.plane.kubeconfig(f"{namespace}-{account}", json.loads(answer.body)["status"]["token"])

    def _muster(self, *words: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "muster.cli", *words, "--kubeconfig", str(self.plane.kubeconfig())],
            capture_output=True,
            text=True,
            check=False,
            timeout=READY_SECONDS,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


@contextlib.contextmanager
def with_all_programs(folder: Path, *gates: str) -> Iterator[Deployed]:
    """Muster on a control plane of its own with feature ``gates``, with what answers tenants, too, until the block ends."""
    with ControlPlane(gates=list(gates)) as plane:
        deployed = Deployed(plane, folder)
        deployed.prepare_visibility()
        deployed.start_visibility()
        yield deployed
        for program in (deployed.webhook, deployed.scheduler, deployed.visibility):
            program.kill()
