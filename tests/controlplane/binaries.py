"""Get the binaries of the real control plane: find them, or build them with Go from module proxies.

Looks in $KUBEBUILDER_ASSETS, then in the cache, and builds what is missing there. Says what it does and how long it
will take; a second run does nothing. Standard library only: it runs before anything is installed. With the argument
`node`, what real nodes need is built, too: kubelet, kube-proxy and kube-scheduler of the same version, etcdutl, and what we need of cert-manager.

$MUSTER_KUBERNETES names another version of Kubernetes than the newest: one of `VERSIONS`. With the argument `versions`,
all of them are built.

Exit status: 0 all there; 3 Go is missing; 1 a build failed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

VERSIONS = {"v1.37.2": "kubernetes", "v1.36.3": "kubernetes-1.36", "v1.30.14": "kubernetes-1.30"}
"""The Go module of ours that pins each version of Kubernetes; the first is what tests run on if nothing is said."""

VERSION = os.environ.get("MUSTER_KUBERNETES") or next(iter(VERSIONS))
if VERSION not in VERSIONS:
    sys.exit(f"MUSTER_KUBERNETES={VERSION}: not one of {', '.join(VERSIONS)}")
HERE = Path(__file__).parent
_STAMP = "k8s.io/component-base/version"
_MAJOR, _MINOR = VERSION.removeprefix("v").split(".")[:2]
_KUBERNETES = VERSIONS[VERSION]
_KUBERNETES_FLAGS = (
    f"-s -w -X {_STAMP}.gitVersion={VERSION} -X {_STAMP}.gitMajor={_MAJOR} -X {_STAMP}.gitMinor={_MINOR}"
)


@dataclass(frozen=True)
class Binary:
    """One program: the Go module of ours that pins it, its package, linker flags, and what a cold build takes."""

    name: str
    module: str
    package: str
    flags: str = "-s -w"
    minutes: float = 1

    def folder(self, version: str = VERSION) -> Path:
        """Return where it is kept: what isn't of Kubernetes serves all its versions."""
        return cache(version) if self.module == _KUBERNETES else cache().parent / "tools"


BINARIES = (
    Binary("etcd", "etcd", "go.etcd.io/etcd/server/v3", minutes=0.5),
    Binary("kube-apiserver", _KUBERNETES, "k8s.io/kubernetes/cmd/kube-apiserver", _KUBERNETES_FLAGS, 6),
    Binary("kube-controller-manager", _KUBERNETES, "k8s.io/kubernetes/cmd/kube-controller-manager", _KUBERNETES_FLAGS),
    Binary("kubectl", _KUBERNETES, "k8s.io/kubernetes/cmd/kubectl", _KUBERNETES_FLAGS, 0.5),
    Binary("helm", "helm", "helm.sh/helm/v4/cmd/helm", "-s -w -X helm.sh/helm/v4/internal/version.version=v4.3.1", 2.5),
    Binary("kwok", "kwok", "sigs.k8s.io/kwok/cmd/kwok", minutes=1.5),
)
OF_A_NODE = (
    Binary("kubelet", _KUBERNETES, "k8s.io/kubernetes/cmd/kubelet", _KUBERNETES_FLAGS, 2),
    Binary("kube-proxy", _KUBERNETES, "k8s.io/kubernetes/cmd/kube-proxy", _KUBERNETES_FLAGS),
    Binary("kube-scheduler", _KUBERNETES, "k8s.io/kubernetes/cmd/kube-scheduler", _KUBERNETES_FLAGS),
    Binary("etcdutl", "etcd", "go.etcd.io/etcd/etcdutl/v3", minutes=0.5),
    Binary("cert-manager", "cert-manager", "muster.sh/tests/controlplane/cert-manager", minutes=3),
)


def cache(version: str = VERSION) -> Path:
    """Return the directory that binaries of a version of Kubernetes are kept in."""
    root = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(root) / "muster" / "controlplane" / version


def find(name: str, version: str = VERSION) -> Path | None:
    """Return the path of a binary, or None where it has yet to be built."""
    assets = os.environ.get("KUBEBUILDER_ASSETS")
    folders = [each.folder(version) for each in (*BINARIES, *OF_A_NODE) if each.name == name]
    for folder in ([Path(assets)] if assets else []) + folders:
        if os.access(folder / name, os.X_OK):
            return folder / name
    return None


def _build(binary: Binary) -> bool:
    target = binary.folder() / binary.name
    target.parent.mkdir(parents=True, exist_ok=True)
    # Built beside its place and moved there whole: an interrupted build must not look like a finished one.
    unfinished = target.with_suffix(".unfinished")
    command = ["go", "build", "-mod=readonly", "-trimpath", "-buildvcs=false", "-ldflags", binary.flags]
    environment = os.environ | {"CGO_ENABLED": "0"}
    command += ["-o", str(unfinished), binary.package]
    built = subprocess.run(command, cwd=HERE / binary.module, env=environment, check=False)
    if built.returncode == 0:
        unfinished.replace(target)
    return built.returncode == 0


def main(*parts: str) -> int:
    """Build what is missing."""
    if "versions" in parts:
        rest = [each for each in parts if each != "versions"]
        command = [sys.executable, __file__, *rest]
        return max(
            subprocess.run(command, env=os.environ | {"MUSTER_KUBERNETES": each}, check=False).returncode
            for each in VERSIONS
        )
    wanted = BINARIES + (OF_A_NODE if "node" in parts else ())
    missing = [binary for binary in wanted if find(binary.name) is None]
    if not missing:
        print(f"control plane {VERSION}: all binaries are there ({find('kube-apiserver')})")
        return 0
    if shutil.which("go") is None:
        print(f"control plane {VERSION}: {', '.join(b.name for b in missing)} not found, and no Go to build with;")
        print("install Go 1.26 or newer, or set KUBEBUILDER_ASSETS to a directory that has them")
        return 3
    minutes = sum(binary.minutes for binary in missing)
    names = ", ".join(binary.name for binary in missing)
    print(
        f"control plane {VERSION}: building {names} into {cache().parent}; about {minutes:.0f} minutes on two cores, once"
    )
    for number, binary in enumerate(missing, 1):
        begun = time.monotonic()
        print(f"  [{number}/{len(missing)}] {binary.name} …", flush=True)
        if not _build(binary):
            print(f"building {binary.name} failed; the compiler's words are above")
            return 1
        print(f"  [{number}/{len(missing)}] {binary.name} built in {time.monotonic() - begun:.0f} s", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
