"""The real control plane on loopback: etcd, kube-apiserver, kube-controller-manager and kwok, for one test session.

Everything it starts dies with this process, whatever happens to it (PR_SET_PDEATHSIG), and all it writes is in one
temporary directory.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import secrets
import shutil
import signal
import socket
import ssl
import subprocess
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import binaries
import frontproxy
import yaml
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

HERE = Path(__file__).parent
START_SECONDS = 180.0
_CONTROLLERS = "kube-controller-manager"
_WRITTEN = ("pods", "namespaces", "persistentvolumeclaims", "persistentvolumes")
# What Muster's accounts write is recorded whole, but for Secrets; of all else, who did what.
_WRITES = {
    "level": "Request",
    "userGroups": ["system:serviceaccounts:muster-system"],
    "verbs": ["create", "update", "patch", "delete"],
    "resources": [
        {"group": group, "resources": ["*"]}
        for group in (
            "batch",
            "resource.k8s.io",
            "scheduling.volcano.sh",
            "admissionregistration.k8s.io",
        )
    ]
    + [{"group": "scheduling.k8s.io", "resources": ["podgroups/status"]}]
    + [{"group": "", "resources": [*_WRITTEN, *(f"{each}/*" for each in _WRITTEN)]}],
}
_AGAIN = 1.0  # seconds
_PR_SET_PDEATHSIG = 1
_LOWEST_PORT = 10_000
_LIBC = ctypes.CDLL(None, use_errno=True)


class ControlPlaneError(RuntimeError):
    """A part did not start; the text ends with the last lines that it wrote."""


def _die_with_parent() -> None:
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def free_ports(count: int) -> list[int]:
    """Return ports of loopback that nobody listens on, all different.

    Whoever is told one binds it only later, or again after a crash. So they are of those below what the kernel gives
    to connections, of which there are hundreds meanwhile.
    """
    lowest_given = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    found: list[int] = []
    with contextlib.ExitStack() as stack:
        while len(found) < count:
            port = _LOWEST_PORT + secrets.randbelow(lowest_given - _LOWEST_PORT)
            bound = stack.enter_context(socket.socket())
            with contextlib.suppress(OSError):
                bound.bind(("127.0.0.1", port))
                found.append(port)
    return found


class ControlPlane:
    """A running control plane. Use as a context manager, or `start` and `stop`.

    ``services`` is where Services get their addresses; of loopback, what stands in for a kube-proxy can listen there.
    ``gates``: feature gates that are on; with any, PodGroups of Kubernetes' own are served. ``version``: of Kubernetes.
    ``audited``: whether `audit_log` is written, which costs the API server a twentieth of its time.
    """

    def __init__(
        self,
        *,
        nodes_simulated: bool = True,
        services: str = "10.0.0.0/24",
        gates: Sequence[str] = (),
        version: str = binaries.VERSION,
        audited: bool = False,
    ) -> None:
        self._version, self._gates, self._audited = version, tuple(gates), audited
        self.directory = Path(tempfile.mkdtemp(prefix="muster-controlplane-"))
        self.token = secrets.token_hex(16)
        self.users: dict[str, str] = {"admin": self.token}
        self._nodes_simulated = nodes_simulated
        self._services = services
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._ports: dict[str, int] = dict(zip(("etcd", "peer", "apiserver"), free_ports(3), strict=True))

    @property
    def url(self) -> str:
        """The API server's address."""
        return f"https://127.0.0.1:{self._ports['apiserver']}"

    @property
    def ca_file(self) -> Path:
        """The certificate that the API server shows, which is its own authority."""
        return self.directory / "apiserver" / "apiserver.crt"

    @property
    def audit_log(self) -> Path:
        """One JSON line per finished request: who did what. Of a plane that is ``audited``."""
        return self.directory / "audit.log"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start all parts and wait until the API server is ready."""
        try:
            self._write_files()
            self._start_etcd()
            self.start_apiserver()
            self._start_controllers()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End all parts, last started first, and remove their files."""
        for name in reversed(list(self._processes)):
            self.kill(name)
        shutil.rmtree(self.directory, ignore_errors=True)

    def kill(self, name: str) -> None:
        """End one part at once, as a crash would."""
        process = self._processes.pop(name)
        process.kill()
        process.wait()

    def back_up(self) -> Path:
        """Copy what etcd holds, and give where; etcd and the API server are down meanwhile."""
        copy = Path(tempfile.mkdtemp(prefix="backup-", dir=self.directory)) / "etcd"
        self._kill_all("kube-apiserver", "etcd")
        shutil.copytree(self.directory / "etcd", copy)
        self._start_etcd()
        self.start_apiserver()
        return copy

    def upgrade(self, version: str, gates: Sequence[str] = ()) -> None:
        """Have API server and controllers be of another version from now on, on what etcd holds."""
        self._kill_all(_CONTROLLERS, "kube-apiserver")
        self._version, self._gates = version, tuple(gates)
        self.start_apiserver()
        self._start_controllers()

    def restore(self, backup: Path) -> None:
        """Put etcd back to a backup, and start all parts again; as one does with a cluster that is restored."""
        self._kill_all(*reversed(list(self._processes)))
        shutil.rmtree(self.directory / "etcd")
        shutil.copytree(backup, self.directory / "etcd")
        self._start_etcd()
        self.start_apiserver()
        self._start_controllers()

    def _features(self) -> list[str]:
        gates = ",".join(f"{each}=true" for each in self._gates)
        return [f"--feature-gates={gates}"] if gates else []

    def _kill_all(self, *parts: str) -> None:
        for name in parts:
            self.kill(name)

    def kubeconfig(self, user: str = "admin", token: str | None = None) -> Path:
        """Write a kubeconfig for ``user`` and give its path."""
        path = self.directory / f"{user}.kubeconfig"
        content: dict[str, Any] = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "controlplane",
            "clusters": [
                {"name": "controlplane", "cluster": {"server": self.url, "certificate-authority": str(self.ca_file)}}
            ],
            "users": [{"name": user, "user": {"token": token or self.users[user]}}],
            "contexts": [{"name": "controlplane", "context": {"cluster": "controlplane", "user": user}}],
        }
        path.write_text(yaml.safe_dump(content))
        return path

    def pids(self) -> dict[str, int]:
        """Return the parts that run, and their processes."""
        return {name: process.pid for name, process in self._processes.items()}

    def said(self, name: str = _CONTROLLERS) -> str:
        """Return what a part wrote last."""
        return (self.directory / f"{name}.log").read_text(errors="replace")[-2000:]

    def start_apiserver(self) -> None:
        """Start the API server (again, after `kill`) and wait until it is ready."""
        d = self.directory
        self._spawn(
            "kube-apiserver",
            f"--etcd-servers=http://127.0.0.1:{self._ports['etcd']}",
            f"--secure-port={self._ports['apiserver']}",
            "--bind-address=127.0.0.1",
            f"--cert-dir={d / 'apiserver'}",
            f"--service-account-key-file={d / 'sa.key'}",
            f"--service-account-signing-key-file={d / 'sa.key'}",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-cluster-ip-range={self._services}",
            "--authorization-mode=RBAC",
            f"--token-auth-file={d / 'tokens.csv'}",
            "--endpoint-reconciler-type=none",
            "--max-requests-inflight=3000",
            "--max-mutating-requests-inflight=1000",
            # What stands in for the front proxy of an aggregated API.
            f"--requestheader-client-ca-file={d / 'requestheader-ca.crt'}",
            "--requestheader-allowed-names=front-proxy-client",
            "--requestheader-username-headers=X-Remote-User",
            "--requestheader-group-headers=X-Remote-Group",
            "--requestheader-extra-headers-prefix=X-Remote-Extra-",
            f"--proxy-client-cert-file={d / 'front-proxy-client.crt'}",
            f"--proxy-client-key-file={d / 'front-proxy-client.key'}",
            *self._features(),
            *(["--runtime-config=scheduling.k8s.io/v1beta1=true"] if self._gates else []),
            *(self._audits() if self._audited else []),
        )
        self._wait_ready("kube-apiserver", f"{self.url}/readyz")

    def _audits(self) -> list[str]:
        policy = {"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived"]}
        policy |= {"rules": [_WRITES, {"level": "Metadata"}]}
        path = self.directory / "audit.yaml"
        path.write_text(yaml.safe_dump(policy))
        return [f"--audit-policy-file={path}", f"--audit-log-path={self.audit_log}", "--audit-log-mode=batch"]

    def trust_proxy(self, authority: frontproxy.Authority) -> None:
        """Have the API server, from its next start on, call aggregated APIs with a certificate of this authority."""
        self.proxy_authority = authority
        (self.directory / "requestheader-ca.crt").write_bytes(authority.certificate)
        pair = authority.client("front-proxy-client")
        (self.directory / "front-proxy-client.crt").write_bytes(pair[0])
        (self.directory / "front-proxy-client.key").write_bytes(pair[1])

    def _write_files(self) -> None:
        key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        pem = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
        )
        (self.directory / "sa.key").write_bytes(pem)
        self.trust_proxy(frontproxy.Authority("requestheader-ca"))
        (self.directory / "tokens.csv").write_text(f'{self.token},admin,admin,"system:masters"\n')

    def _start_etcd(self) -> None:
        client, peer = (f"http://127.0.0.1:{self._ports[name]}" for name in ("etcd", "peer"))
        self._spawn(
            "etcd",
            f"--data-dir={self.directory / 'etcd'}",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=default={peer}",
            "--unsafe-no-fsync",
        )
        self._wait_ready("etcd", f"{client}/health")

    def _start_controllers(self) -> None:
        config = self.kubeconfig()
        arguments = (
            f"--kubeconfig={config}",
            f"--service-account-private-key-file={self.directory / 'sa.key'}",
            f"--root-ca-file={self.ca_file}",
            "--leader-elect=false",
            "--use-service-account-credentials=true",
            "--secure-port=0",
            "--horizontal-pod-autoscaler-sync-period=1s",
            # A simulated kubelet that a busy machine leaves no time has not died: nobody is evicted for it.
            "--node-monitor-grace-period=1h",
            "--node-startup-grace-period=1h",
            *self._features(),
        )
        self._spawn(_CONTROLLERS, *arguments)
        threading.Thread(target=self._keep, args=(_CONTROLLERS, *arguments), daemon=True).start()
        if self._nodes_simulated and "kwok" not in self._processes:
            self._spawn(
                "kwok",
                f"--kubeconfig={config}",
                f"--config={HERE / 'stages.yaml'}",
                "--manage-all-nodes",
                "--node-lease-duration-seconds=40",
            )

    def _spawn(self, name: str, *arguments: str) -> None:
        binary = binaries.find(name, self._version)
        if binary is None:
            raise ControlPlaneError(f"{name} is not there: run `make controlplane`")
        with (self.directory / f"{name}.log").open("ab") as log:
            self._processes[name] = subprocess.Popen(
                [str(binary), *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.directory,
                env={**os.environ, "HOME": str(self.directory)},
                preexec_fn=_die_with_parent,  # noqa: PLW1509 - one prctl, and nothing else dies with us surely
            )

    def _keep(self, name: str, *arguments: str) -> None:
        """Start a part again when it ends by itself, as a kubelet would, until it is ended by `kill`.

        The controllers give up where the API server has no time for them as they start.
        """
        while (process := self._processes.get(name)) is not None:
            process.wait()
            time.sleep(_AGAIN)
            if self._processes.get(name) is process:
                self._spawn(name, *arguments)

    def _wait_ready(self, name: str, url: str) -> None:
        context = ssl.create_default_context()
        # Its certificate is not there before it is; the client under test verifies it, this probe need not.
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        request = urllib.request.Request(url, headers={"Authorization": f"Bearer {self.token}"})
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            if self._processes[name].poll() is not None:
                break
            with (
                contextlib.suppress(urllib.error.URLError, OSError),
                urllib.request.urlopen(request, timeout=2, context=context) as answer,
            ):
                if answer.status == 200:
                    return
            time.sleep(0.05)
        raise ControlPlaneError(f"{name} did not become ready; it wrote last:\n{self.said(name)}")
