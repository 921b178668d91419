"""Files that only their owner may read: keys, and paths that are secret."""

from __future__ import annotations

import os
from pathlib import Path

from certs.bundle import KeyPair


def write_pair(pair: KeyPair, folder: Path) -> Path:
    """Write certificate and key into a folder, which is made. Return the folder."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_private(folder / "tls.key", pair.key.decode())
    (folder / "tls.crt").write_bytes(pair.certificate)
    return folder


def write_private(file: Path, text: str) -> None:
    """Write a file that its owner alone may read, from the first moment on."""
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    file.unlink(missing_ok=True)
    with open(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as opened:  # noqa: PTH123 - a mode from the first moment on
        opened.write(text)
