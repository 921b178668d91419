"""The kubeconfig that ``muster up`` writes: locked while its cluster runs, so that two never share one."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator
from pathlib import Path

import click

from muster.sandbox.http import KUBECONFIG_NAME


def check(file: Path) -> None:
    """Refuse a file that another `muster up` has written and still runs for, or that isn't of one.

    Raises:
        ClickException: it is such a file.
        OSError: it can't be read.
    """
    with contextlib.ExitStack() as stack:
        try:
            opened = stack.enter_context(file.open(encoding="utf-8"))
        except FileNotFoundError:
            return
        try:
            fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            text = f"{file} is the kubeconfig of another muster up, which still runs; name another file with --kubeconfig-out"
            raise click.ClickException(text) from error
        if not _ours(opened.read()):
            text = (
                f"{file} exists and wasn't written by muster up; remove it, or name another file with --kubeconfig-out"
            )
            raise click.ClickException(text)


def _ours(text: str) -> bool:
    try:
        return not text or bool(json.loads(text)["current-context"] == KUBECONFIG_NAME)
    except (ValueError, TypeError, LookupError):
        return False


@contextlib.contextmanager
def written(file: Path, text: str) -> Iterator[None]:
    """Write the file whole, for its owner only, and keep it while the context is open.

    Raises:
        ClickException: another `muster up` was quicker.
        OSError: it can't be written.
    """
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = file.with_name(f".{file.name}-{os.getpid()}")
    draft.unlink(missing_ok=True)
    with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as opened:  # noqa: PTH123 - a mode from the first moment on
        try:
            # Locked before it can be seen under its name.
            fcntl.flock(opened, fcntl.LOCK_EX)
            opened.write(text)
            opened.flush()
            check(file)
            file.unlink(missing_ok=True)
            try:
                # Unlike a rename it doesn't replace what another one has put there meanwhile.
                os.link(draft, file)
            except FileExistsError:
                check(file)
                raise
        finally:
            draft.unlink(missing_ok=True)
        try:
            yield
        finally:
            file.unlink(missing_ok=True)
