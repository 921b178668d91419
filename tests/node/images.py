"""Images of what runs on a real node, as archives: Muster's from its Dockerfile, and one for workloads.

No registry is asked. The base of the Dockerfile's image is made of Debian's packages, once, and like all archives kept
in the cache by a hash of what makes it.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import shlex
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import binaries

import muster

ROOT = Path(__file__).parents[2]
MUSTER = f"muster:{muster.__version__}"
FORMER = "muster:former"
BASE = "localhost/base:made"
WORKLOADS = ("docker.io/library/busybox:1.37", "localhost/pause:1")
"""One image by two names: what the documents' examples run, and what holds a pod's namespaces."""
_INCLUDED = "python3,python3-venv,python-is-python3,ca-certificates"
_SOURCES = ("/etc/apt/sources.list.d/debian.sources", "/etc/apt/sources.list")
_COPIED = ("Dockerfile", "pyproject.toml", "README.md", "LICENSE", "requirements", "muster", "webhooks", "scheduler")
_COPIED += ("certs", "deploy/__init__.py", "deploy/crds", "deploy/policies", "deploy/rbac", "deploy/share")
# What a machine's own pip and TLS heed, where it has them: a build sees them, and the image doesn't hold them.
_OF_THE_MACHINE = ("/etc/ssl/certs/ca-certificates.crt", "/etc/pip.conf")
_KEPT = 3
_FIRST = "4a3d82a4cbcc54e327004bd7991b390a4b5e6b43"
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class ImageError(RuntimeError):
    """An image could not be made; the text ends with what was said last."""


def archives() -> list[Path]:
    """Return the archives that every node loads, made where they aren't there yet."""
    return [_workload(), _muster()]


def former(folder: Path) -> Path:
    """Unpack the sources of the version before this one into a folder; return the archive of its image, `FORMER`.

    That version is the last tag before this commit, and where there is none the commit at which tags were to begin.
    """
    told = subprocess.run(
        ["git", "describe", "--tags", "--abbrev=0", "HEAD^"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    commit = told.stdout.strip() if told.returncode == 0 else _FIRST
    packed = folder / "sources.tar"
    _run("git", "archive", f"--output={packed}", commit)
    with tarfile.open(packed) as archive:
        archive.extractall(folder, filter="data")
    base = _base()

    def make(target: Path) -> None:
        _build(base, target, folder, FORMER, commit)

    return _made("former", [base.name.encode(), commit.encode(), FORMER.encode()], make)


def _folder() -> Path:
    folder = binaries.cache().parents[1] / "node"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _made(name: str, parts: Iterable[bytes], make: Callable[[Path], None]) -> Path:
    """Return the file that is made of these parts; older ones of its name go."""
    digest = hashlib.sha256(b"\0".join(parts)).hexdigest()[:16]
    target = _folder() / f"{name}-{digest}.tar"
    if target.exists():
        target.touch()
        return target
    unfinished = target.with_suffix(f".{os.getpid()}")
    try:
        make(unfinished)
        unfinished.replace(target)
    finally:
        unfinished.unlink(missing_ok=True)
    for old in sorted(_folder().glob(f"{name}-*.tar"), key=lambda each: each.stat().st_mtime)[:-_KEPT]:
        old.unlink()
    return target


def _run(*command: str, stdin: str | None = None, cwd: Path = ROOT, **environment: str) -> None:
    done = subprocess.run(
        command, input=stdin, cwd=cwd, env=os.environ | environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise ImageError(f"{' '.join(command[:3])} failed: {(done.stdout + done.stderr)[-3000:]}")


# ── workloads ────────────────────────────────────────────────────────────────────────────────────────────────────


def _workload() -> Path:
    return _made("workload", [b"busybox", repr(WORKLOADS).encode()], _make_workload)


def _make_workload(target: Path) -> None:
    """Make an image of Debian's static busybox alone."""
    with tempfile.TemporaryDirectory(prefix="muster-busybox-") as name:
        folder = Path(name)
        shutil.chown(folder, "_apt")
        _run("apt-get", "download", "busybox-static", cwd=folder)
        (package,) = folder.glob("*.deb")
        _run("dpkg-deb", "--extract", str(package), name)
        program = next(each for each in (folder / "bin" / "busybox", folder / "usr/bin/busybox") if each.exists())
        listed = subprocess.run([program, "--list"], capture_output=True, text=True, check=True).stdout.split()
        layer = _layer(program.read_bytes(), listed)
    _write_archive(target, WORKLOADS, layer, {"Env": ["PATH=/bin"], "Cmd": ["sleep", "2147483647"]})


def _write_archive(target: Path, tags: Iterable[str], layer: bytes, config: dict[str, list[str]]) -> None:
    """Write an image of one layer as `docker save` does."""
    digest = f"sha256:{hashlib.sha256(layer).hexdigest()}"
    image = {"architecture": _architecture(), "os": "linux", "config": config}
    image |= {"rootfs": {"type": "layers", "diff_ids": [digest]}, "history": [{"created_by": "tests/node/images.py"}]}
    manifest = [{"Config": "config.json", "RepoTags": list(tags), "Layers": ["layer.tar"]}]
    with tarfile.open(target, "w") as archive:
        _add(archive, "config.json", json.dumps(image).encode())
        _add(archive, "layer.tar", layer)
        _add(archive, "manifest.json", json.dumps(manifest).encode())


def _architecture() -> str:
    return subprocess.run(["dpkg", "--print-architecture"], capture_output=True, text=True, check=True).stdout.strip()


def _layer(busybox: bytes, commands: Iterable[str]) -> bytes:
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w") as layer:
        _add(layer, "bin/busybox", busybox, mode=0o755)
        for each in commands:
            link = tarfile.TarInfo(f"bin/{each}")
            link.type, link.linkname = tarfile.SYMTYPE, "busybox"
            if each != "busybox":
                layer.addfile(link)
        for name, mode in (("tmp", 0o1777), ("etc", 0o755), ("proc", 0o555), ("sys", 0o555), ("dev", 0o755)):
            folder = tarfile.TarInfo(name)
            folder.type, folder.mode = tarfile.DIRTYPE, mode
            layer.addfile(folder)
    return written.getvalue()


def _add(archive: tarfile.TarFile, name: str, data: bytes, mode: int = 0o644) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(data), mode
    archive.addfile(entry, io.BytesIO(data))


# ── Muster ───────────────────────────────────────────────────────────────────────────────────────────────────────


def _base() -> Path:
    release = Path("/etc/os-release").read_bytes()
    return _made("base", [release, _INCLUDED.encode()], _make_base)


def _make_base(target: Path) -> None:
    """Make what python:3.11-slim is, of Debian's packages."""
    sources = next((path for each in _SOURCES if (path := Path(each)).exists() and path.read_text().strip()), None)
    if sources is None:
        raise ImageError(f"no sources of Debian packages in {' or '.join(_SOURCES)}")
    with tempfile.TemporaryDirectory(prefix="muster-base-") as folder:
        tree = Path(folder) / "base.tar"
        command = ("mmdebstrap", "--mode=root", "--variant=apt", f"--include={_INCLUDED}", "--format=tar", "")
        _run(*command, str(tree), "-", stdin=sources.read_text())
        _write_archive(target, [BASE], tree.read_bytes(), {"Env": [f"PATH={_PATH}"]})


def _muster() -> Path:
    base = _base()
    return _made("muster", [base.name.encode(), *_sources()], lambda target: _make_muster(base, target))


def _sources() -> Iterable[bytes]:
    for each in _COPIED:
        path = ROOT / each
        for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
            if file.is_file() and "__pycache__" not in file.parts:
                yield str(file.relative_to(ROOT)).encode()
                yield file.read_bytes()


def _make_muster(base: Path, target: Path) -> None:
    described = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    _build(base, target, ROOT, MUSTER, described.stdout.strip())


def _build(base: Path, target: Path, sources: Path, tag: str, revision: str) -> None:
    """Build the Dockerfile of these sources as it is, upon the base."""
    with tempfile.TemporaryDirectory(prefix="muster-engine-") as folder, engine(Path(folder), base) as buildah:
        build = ("build", f"--build-arg=BASE={BASE}", f"--build-arg=REVISION={revision}", "--tag", tag, ".")
        _run(str(buildah), *build, cwd=sources)
        _run(str(buildah), "push", f"localhost/{tag}", f"docker-archive:{target}:{tag}")


@contextlib.contextmanager
def engine(folder: Path, base: Path | None = None) -> Iterator[Path]:
    """Write a program into a folder that is buildah with a storage of its own, which has the base by the name `BASE`.

    It builds as this machine can: without namespaces of its own, and with what pip and TLS heed here.
    """
    storage, registries, program = _folder() / "storage", _folder() / "registries.conf", folder / "buildah"
    registries.write_text("unqualified-search-registries = []\n")
    mounted = [f"--volume={each}:{each}:ro" for each in _OF_THE_MACHINE if Path(each).exists()]
    called = shlex.join(["buildah", "--root", str(storage), "--runroot", str(storage / "run")])
    program.write_text(
        f"#!/bin/sh\nexport BUILDAH_ISOLATION=chroot STORAGE_DRIVER=overlay REGISTRIES_CONFIG_PATH={shlex.quote(str(registries))}\n"
        f'if [ "$1" = build ]; then shift; set -- build --layers {shlex.join(mounted)} "$@"; fi\nexec {called} "$@"\n'
    )
    program.chmod(0o700)
    try:
        _run(str(program), "pull", f"docker-archive:{base or _base()}")
        yield program
    finally:
        # Layers of sources that are gone; those of what the last build used stay.
        _run(str(program), "rm", "--all")
        _run(str(program), "rmi", "--prune")
