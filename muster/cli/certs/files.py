"""Certificates as files, changed all at once as the kubelet changes a mounted Secret: by one link, ``..data``."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from certs import path_secret, stored
from certs.observation import Observation, RefusedError
from certs.paths import Segments
from muster.model.names import SEGMENTS_FILE

_DATA: Final = "..data"
_NEXT: Final = "..data_tmp"


def content(observation: Observation, segments: Segments | None = None, *, authority: bool) -> dict[str, bytes]:
    """Return what there is to write, by file name; of the paths, the segments that are accepted, where there are any.

    Raises:
        RefusedError: there is no certificate.
    """
    if not observation.served.pair.key:
        raise RefusedError(f"Secret {stored.TLS} holds no certificate: run `muster certs init`")
    pair = observation.served.pair
    files = {"tls.crt": pair.certificate, "tls.key": pair.key, "ca.crt": observation.served.trusted}
    if segments is not None:
        files[SEGMENTS_FILE] = path_secret.file(segments)
    if authority:
        if observation.keys is None or not observation.keys.current.key:
            raise RefusedError(f"Secret {stored.CA} holds no CA of ours: run `muster certs init`")
        files |= {"authority.crt": observation.keys.current.certificate, "authority.key": observation.keys.current.key}
    return files


def read(file: Path) -> bytes:
    """Return what a file of a person's holds.

    Raises:
        OSError: it can't be read.
    """
    return file.read_bytes()


def write(folder: Path, files: Mapping[str, bytes], *, dry_run: bool = False) -> list[str]:
    """Put files into a folder, private and all at once; return the names of those that were different.

    Raises:
        OSError: it can't be written.
    """
    changed = [name for name, data in files.items() if not _holds(folder / name, data)]
    if dry_run or not changed:
        return changed
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    version = folder / f"..{hashlib.sha256(b''.join(files.values())).hexdigest()[:16]}"
    before = (folder / _DATA).resolve() if (folder / _DATA).is_symlink() else None
    if before != version.resolve():
        # One that a killed run left half written is written anew.
        shutil.rmtree(version, ignore_errors=True)
        version.mkdir(mode=0o700)
        for name, data in files.items():
            _private(version / name, data)
    _link(folder / _DATA, version.name, folder / _NEXT)
    for name in files:
        _link(folder / name, f"{_DATA}/{name}", folder / f"..{name}")
    if before is not None and before != version.resolve():
        shutil.rmtree(before, ignore_errors=True)
    return changed


def _holds(file: Path, data: bytes) -> bool:
    try:
        return file.read_bytes() == data
    except FileNotFoundError:
        return False


def _private(file: Path, data: bytes) -> None:
    with open(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as opened:  # noqa: PTH123 - a mode from the first moment on
        opened.write(data)


def _link(link: Path, target: str, by: Path) -> None:
    """Make a link that never is missing, nor points elsewhere than before or after."""
    if link.is_symlink() and os.readlink(link) == target:  # noqa: PTH115 - a text, as it was written
        return
    by.unlink(missing_ok=True)
    by.symlink_to(target)
    by.replace(link)
