"""A real cluster in namespaces of this machine: control plane, and nodes with kubelet, containerd and kube-proxy.

All that it starts ends with this process, whatever happens to it. What it leaves on the machine is one temporary folder
and empty cgroups, which `stop` removes, and those of others that were killed with it.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import socket
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import addresses
import binaries
import frontproxy
import images
import machine
import yaml
from controlplane import _die_with_parent
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

HERE = Path(__file__).parent
SPACE = "muster-system"
"""The namespace of Muster."""
SECONDS = machine.SECONDS
_ENDING = 10.0
_GROUPS = Path("/sys/fs/cgroup")
_NAME = "muster-node-"
_MOUNTED = (Path("/var/lib/kubelet"), Path("/var/lib/cni"))
_CONTAINERD = """
version = 2
root = "{folder}/containerd/root"
state = "{folder}/containerd/state"
[grpc]
  address = "{folder}/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "localhost/pause:1"
  disable_apparmor = true
  # Without CAP_SYS_RESOURCE no process' oom_score_adj can be lowered.
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{plugins}"
    conf_dir = "{folder}/cni"
[plugins."io.containerd.internal.v1.opt"]
  path = "{folder}/containerd/opt"
"""


class NodeError(RuntimeError):
    """The cluster didn't come up; the text says which part, with the last lines that it wrote."""


class Nodes:
    """A running cluster. Use as a context manager, or `start` and `stop`.

    ``families``: the IP families of nodes, pods and Services, 4 or 6; that of Services comes first. ``more``: archives of images
    beside Muster's and the workloads'.
    """

    def __init__(self, count: int = 2, *, families: Sequence[int] = (4,), more: Sequence[Path] = ()) -> None:
        remove_strays()
        self.folder = Path(tempfile.mkdtemp(prefix=_NAME))
        (self.folder / "owner").write_text(str(os.getpid()))
        self.names = [f"node-{number}" for number in range(1, count + 1)]
        self._families = [addresses.FAMILIES[each] for each in families]
        self._more = list(more)
        self.figures: dict[str, float] = {}
        """What was measured meanwhile, by name."""
        self.untouched: set[str] = set()
        """All objects that were there before the chart, as `everything` returns them."""
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def kubeconfig(self) -> Path:
        """What leads an administrator to it, from this machine."""
        return self.folder / "kubeconfig"

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start all parts, and wait until every node is ready."""
        archives = [*images.archives(), *self._more]
        with socket.create_server(("127.0.0.1", 0)) as listening:
            self._write_files(listening.getsockname()[1])
            missing = [each for each in _MOUNTED if not each.exists()]
            (self.folder / "made").write_text("".join(f"{each}\n" for each in missing))
            for each in missing:
                each.mkdir()
            settings = {
                "R": str(self.folder),
                "B": str(self.folder / "bin"),
                "HERE": str(HERE),
                "GROUP": self.folder.name,
                "NODES": str(len(self.names)),
                "ARCHIVES": " ".join(map(str, archives)),
                "LISTENING": str(listening.fileno()),
                "FAMILIES": " ".join(str(each.number) for each in self._families),
                "SERVICES": ",".join(each.services for each in self._families),
            }
            with (self.folder / "logs" / "inside.log").open("wb") as log:
                self._process = subprocess.Popen(
                    ["unshare", *machine.NAMESPACES, "--propagation=private", "bash", str(HERE / "inside.sh")],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env={"PATH": machine.PATH, "LANG": "C.UTF-8", **settings},
                    pass_fds=[listening.fileno()],
                    start_new_session=True,
                    preexec_fn=_die_with_parent,  # noqa: PLW1509 - one prctl, and nothing else dies with us surely
                )
        self._wait_ready()

    def stop(self) -> None:
        """End all parts, and remove what they left."""
        if self._process is not None:
            # With its first process, the kernel ends all of the namespace.
            self._process.kill()
            self._process.wait()
        deadline = time.monotonic() + _ENDING
        while _remove_groups(self.folder.name) and time.monotonic() < deadline:
            time.sleep(0.1)
        _remove_files(self.folder)

    def command(self, *words: str, node: str | None = None) -> list[str]:
        """Return the command line that runs a command inside, in the network of the control plane or of a node."""
        assert self._process is not None
        children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children").read_text().split()
        entered = ["nsenter", "-t", children[0], "--net", "--mount", "--pid", "--uts"]
        beside = (self.folder / node / "inside").read_text().split() if node else []
        return [*entered, *beside, *words]

    def inside(self, *words: str, node: str | None = None) -> str:
        """Run a command inside; give what it printed."""
        done = subprocess.run(self.command(*words, node=node), capture_output=True, text=True, check=False)
        if done.returncode:
            raise NodeError(f"{' '.join(words)}: {done.stderr}")
        return done.stdout

    def kill(self, *parts: str) -> None:
        """End parts at once, as a crash would."""
        numbers = [(self.folder / "parts" / each).read_text().strip() for each in parts]
        self.inside(
            "bash",
            "-c",
            f"kill -KILL {' '.join(numbers)}; while kill -0 {' '.join(numbers)}; do sleep 0.1; done 2> /dev/null",
        )

    def add(self, part: str, *words: str) -> None:
        """Start a part more beside the control plane; `kill` ends it."""
        (self.folder / "parts" / f"{part}.sh").write_text(f"exec {shlex.join(words)}")
        self.begin(part)

    def begin(self, *parts: str) -> None:
        """Start parts again that were killed; who needs the API server waits for it."""
        for each in parts:
            command, log = self.folder / "parts" / f"{each}.sh", self.folder / "logs" / f"{each}.log"
            started = f"bash {command} < /dev/null >> {log} 2>&1 & echo $!"
            number = self.inside("env", "-i", f"PATH={machine.PATH}", f"HOME={self.folder}", "bash", "-c", started)
            (self.folder / "parts" / each).write_text(number)

    def kubectl(self, *words: str, stdin: str | None = None) -> str:
        """Run kubectl as an administrator; give what it printed."""
        done = self.run("kubectl", *words, stdin=stdin)
        if done.returncode:
            raise NodeError(f"kubectl {' '.join(words)}: {done.stdout}{done.stderr}")
        return done.stdout

    def run(self, name: str, *words: str, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
        """Run one of the control plane's programs as an administrator."""
        places = {f"HELM_{each}_HOME": str(self.folder / "helm") for each in ("CACHE", "CONFIG", "DATA")}
        environment = {"PATH": machine.PATH, "HOME": str(self.folder), "KUBECONFIG": str(self.kubeconfig), **places}
        return subprocess.run(
            [str(binaries.find(name)), *words],
            input=stdin,
            cwd=images.ROOT,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )

    def install(self, *words: str) -> None:
        """Install the chart with its defaults, and wait until everything is ready."""
        arguments = ("--namespace", SPACE, "--create-namespace", "--wait", "--timeout", "5m")
        done = self.run("helm", "install", "muster", "deploy/helm/muster", *arguments, *words)
        if done.returncode:
            said = self.kubectl("get", "pods,events", "--namespace", SPACE)
            raise NodeError(f"helm install: {done.stdout}{done.stderr}\n{said}")
        self.kubectl("wait", "queue/default", "--for=create", "--timeout=300s")

    def everything(self) -> set[str]:
        """Return the kind, namespace and name of every object, but of events."""
        kinds = self.kubectl("api-resources", "--verbs=list,get", "--output=name").split()
        kinds = [each for each in kinds if not each.startswith(("events", "componentstatuses"))]
        shown = '{range .items[*]}{.kind} {.metadata.namespace}/{.metadata.name}{"\\n"}{end}'
        return set(self.kubectl("get", ",".join(kinds), "--all-namespaces", f"--output=jsonpath={shown}").splitlines())

    # ── files ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _write_files(self, port: int) -> None:
        for each in ("etcd", "apiserver", "logs", "bin", "parts"):
            (self.folder / each).mkdir()
        for binary in (*binaries.BINARIES, *binaries.OF_A_NODE):
            (self.folder / "bin" / binary.name).symlink_to(str(binaries.find(binary.name)))
        key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        pem = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
        )
        (self.folder / "sa.key").write_bytes(pem)
        # By these an aggregated API knows that the API server calls.
        authority = frontproxy.Authority("requestheader-ca")
        certificate, private = authority.client("front-proxy-client")
        (self.folder / "requestheader-ca.crt").write_bytes(authority.certificate)
        (self.folder / "front-proxy-client.crt").write_bytes(certificate)
        (self.folder / "front-proxy-client.key").write_bytes(private)
        self._write_kubeconfig("kubeconfig", "admin", f"https://localhost:{port}")
        self._write_kubeconfig("inside.kubeconfig", "admin")
        self._write_kubeconfig("proxy.kubeconfig", "proxy")
        users = ['admin,admin,admin,"system:masters"', "proxy,system:kube-proxy,proxy,"]
        for number, name in enumerate(self.names, 1):
            users.append(f'{name},system:node:{name},{name},"system:nodes"')
            self._write_kubeconfig(f"{name}.kubeconfig", name)
            self._write_node(self.folder / name, number)
        # The tokens are good inside, and on this machine's loopback for whoever may read the folder, which is root's.
        (self.folder / "tokens.csv").write_text("".join(f"{each}\n" for each in users))

    def _write_kubeconfig(self, name: str, token: str, server: str = "") -> None:
        server = server or f"https://{self._families[0].in_url(1)}:6443"
        cluster = {"server": server, "certificate-authority": str(self.folder / "apiserver" / "apiserver.crt")}
        content: dict[str, Any] = {"apiVersion": "v1", "kind": "Config", "current-context": "node"}
        content["clusters"] = [{"name": "node", "cluster": cluster}]
        content["users"] = [{"name": token, "user": {"token": token}}]
        content["contexts"] = [{"name": "node", "context": {"cluster": "node", "user": token}}]
        (self.folder / name).write_text(yaml.safe_dump(content))

    def _write_node(self, folder: Path, number: int) -> None:
        for each in ("cni", "kubelet", "pki"):
            (folder / each).mkdir(parents=True)
        (folder / "containerd.toml").write_text(_CONTAINERD.format(folder=folder, plugins=machine.PLUGINS))
        ranges = [[{"subnet": each.pods(number)}] for each in self._families]
        given = {
            "type": "host-local",
            "ranges": ranges,
            "routes": [{"dst": each.everywhere} for each in self._families],
        }
        given["dataDir"] = str(folder / "addresses")
        bridge = {"type": "bridge", "bridge": "cni0", "isGateway": True, "hairpinMode": True, "ipam": given}
        network = {"cniVersion": "1.0.0", "name": "node", "plugins": [bridge]}
        (folder / "cni" / "10-bridge.conflist").write_text(json.dumps(network))
        kubelet = {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "failCgroupV1": False,
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": f"/{self.folder.name}/{number}",
            "failSwapOn": False,
            "imagePullCredentialsVerificationPolicy": "NeverVerify",
            "containerRuntimeEndpoint": f"unix://{folder}/containerd.sock",
            "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
            "authorization": {"mode": "AlwaysAllow"},
            "resolvConf": "",
            "podLogsDir": f"{folder}/podlogs",
            "imageGCHighThresholdPercent": 100,
            "evictionHard": {"memory.available": "100Mi"},
        }
        (folder / "kubelet.yaml").write_text(yaml.safe_dump(kubelet))
        proxy = {
            "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
            "kind": "KubeProxyConfiguration",
            "mode": "iptables" if [each.number for each in self._families] == [4] else "nftables",
            "clientConnection": {"kubeconfig": str(self.folder / "proxy.kubeconfig")},
            "clusterCIDR": ",".join(each.all_pods for each in self._families),
            "hostnameOverride": folder.name,
            "conntrack": {"maxPerCore": 0},
        }
        (folder / "proxy.yaml").write_text(yaml.safe_dump(proxy))

    # ── readiness ────────────────────────────────────────────────────────────────────────────────────────────────

    def _wait_ready(self) -> None:
        assert self._process is not None
        deadline = time.monotonic() + SECONDS
        while time.monotonic() < deadline and self._process.poll() is None:
            done = self.run("kubectl", "get", "nodes", "--output=json")
            if done.returncode == 0 and len(_ready(json.loads(done.stdout)["items"])) == len(self.names):
                return
            time.sleep(0.2)
        raise NodeError(f"the nodes did not become ready\n{self.said()}")

    def said(self) -> str:
        """Return what every part wrote last."""
        logs = sorted((self.folder / "logs").glob("*.log"))
        return "\n".join(f"--- {each.stem}\n{each.read_text(errors='replace')[-1500:]}" for each in logs)


def _ready(nodes: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        each
        for each in nodes
        if any(c["type"] == "Ready" and c["status"] == "True" for c in each.get("status", {}).get("conditions", ()))
    ]


def remove_strays() -> None:
    """Remove cgroups and folders of clusters that were killed before they could."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_NAME}*"):
        owner = folder / "owner"
        if owner.exists() and not Path(f"/proc/{owner.read_text()}").exists() and not _remove_groups(folder.name):
            _remove_files(folder)


def _remove_files(folder: Path) -> None:
    made = folder / "made"
    for each in made.read_text().split() if made.exists() else ():
        with contextlib.suppress(OSError):
            Path(each).rmdir()
    subprocess.run(["rm", "-rf", "--one-file-system", str(folder)], check=False)


def _remove_groups(name: str) -> list[Path]:
    """Remove the cgroups of a cluster that nothing runs in; give those that are left."""
    found = [
        each
        for hierarchy in _GROUPS.iterdir()
        for each in sorted((hierarchy / name).rglob("*"), reverse=True)
        if each.is_dir()
    ]
    found += [hierarchy / name for hierarchy in _GROUPS.iterdir() if (hierarchy / name).is_dir()]
    for each in found:
        with contextlib.suppress(OSError):
            each.rmdir()
    return [each for each in found if each.exists()]
