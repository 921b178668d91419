"""Files of Kubernetes objects that commands are given; ``-`` is standard input."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from muster.model import manifests
from muster.model.manifests import Manifest, ManifestError, ParsedObject

if TYPE_CHECKING:
    from muster.whatif.cluster_view import ClusterObjects


_SUFFIXES: Final = (".json", ".yaml", ".yml")
_URL_SECONDS: Final = 30.0


def read(files: Iterable[str]) -> list[Mapping[str, Any]]:
    """Read all objects of ``files``, in order.

    Raises:
        ClickException: a file can't be read, isn't YAML (with line and column), or holds things that are no objects.
    """
    return [body for _, body in _sound((file, each) for file in files for each in _objects(file, text_of(file)))]


def read_for(files: Iterable[str], namespace: str, kustomize: str = "") -> list[Manifest]:
    """Read all objects of ``files`` to be applied, or of a folder for ``kustomize``; ``namespace`` is for those that name none.

    Raises:
        ClickException: as `read`; or there is none, or some have no name or apiVersion, a line for each.
    """
    files = list(files)
    found = [(file, text_of(file)) for file in files] + ([(kustomize, kustomized(kustomize))] if kustomize else [])
    files += [kustomize] if kustomize else []
    bodies = _sound(
        (file, manifests.head_checked(each, shown(file))) for file, text in found for each in _objects(file, text)
    )
    if not bodies:
        raise click.ClickException(f"no objects in {', '.join(shown(file) for file in files)}")
    return [Manifest(body, file, str(body["metadata"].get("namespace") or namespace)) for file, body in bodies]


def read_dump(file: str) -> ClusterObjects:
    """Read the state of a cluster that `muster dump` wrote.

    Raises:
        ClickException: the file can't be read, isn't a dump, or is one of another version.
    """
    from muster.whatif import dump

    text, name = text_of(file), shown(file)
    try:
        return dump.parse(text, name)
    except ManifestError as error:
        raise click.ClickException(str(error)) from error


def _sound(found: Iterable[tuple[str, ParsedObject]]) -> list[tuple[str, Mapping[str, Any]]]:
    every = list(found)
    faults = [each.fault for _, each in every if each.fault]
    if faults:
        raise click.ClickException("\n".join(faults))
    return [(file, each.body) for file, each in every]


def _objects(file: str, text: str) -> Iterator[ParsedObject]:
    # Not before a file is read: --help answers sooner without it.
    from muster.whatif import dump

    name = shown(file)
    try:
        documents = manifests.documents(text, name)
        for each in documents:
            if dump.is_dump(each):
                dump.check(each, name)
    except ManifestError as error:
        raise click.ClickException(str(error)) from error
    return manifests.objects(documents, name)


def files_of(names: Iterable[str], *, recursive: bool = False) -> list[str]:
    """Return what names mean, as kubectl takes them: a file, a URL and ``-`` themselves, a directory its YAML and JSON files.

    Raises:
        ClickException: a directory holds none.
    """
    found: list[str] = []
    for name in names:
        folder = Path(name)
        if name == "-" or _is_url(name) or not folder.is_dir():
            found.append(name)
            continue
        every = folder.rglob("*") if recursive else folder.glob("*")
        files = sorted(str(each) for each in every if each.suffix in _SUFFIXES and each.is_file())
        if not files:
            raise click.ClickException(f"{name}: no file in it ends in {', '.join(_SUFFIXES)}")
        found += files
    return found


def kustomized(folder: str) -> str:
    """Return what ``kubectl kustomize`` makes of a folder.

    Raises:
        ClickException: there is no kubectl, or it says why it can't.
    """
    command = ["kubectl", "kustomize", folder]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - their own folder, no shell
    except FileNotFoundError as error:
        raise click.ClickException("-k runs `kubectl kustomize`, and there is no kubectl in the PATH") from error
    if done.returncode:
        raise click.ClickException(f"`kubectl kustomize {folder}`: {' '.join(done.stderr.split())}")
    return done.stdout


def _is_url(name: str) -> bool:
    return name.startswith(("http://", "https://"))


def _downloaded(url: str) -> str:
    from urllib.error import HTTPError
    from urllib.request import urlopen

    try:
        with urlopen(url, timeout=_URL_SECONDS) as answer:  # noqa: S310 - `_is_url` lets http and https pass
            return str(answer.read().decode())
    except HTTPError as error:
        with error:  # it holds the connection
            raise click.ClickException(f"{url}: {error.code} {error.reason}") from error
    except (OSError, ValueError) as error:
        raise click.ClickException(f"{url}: {getattr(error, 'reason', None) or error}") from error


def text_of(file: str) -> str:
    """Read a file, a URL, or standard input.

    Raises:
        ClickException: it can't be read.
    """
    if _is_url(file):
        return _downloaded(file)
    try:
        return sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise click.ClickException(
            f"{shown(file)} isn't text in UTF-8: byte {error.start + 1} can't be read"
        ) from error
    except OSError as error:
        raise click.ClickException(f"{shown(file)}: {error.strerror}") from error


def shown(file: str) -> str:
    """Return what people call a file."""
    return "standard input" if file == "-" else file
