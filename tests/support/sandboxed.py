"""A sandbox as a process of its own, for Muster's programs beside it: python sandboxed.py FOLDER. It ends with its input."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from typing import Self

from commands import cluster
from deployed import Deployed

from muster.model import names
from muster.sandbox.core.users import User, service_account

USERS: dict[str, User] = {
    "mallory": service_account("open", "mallory"),
    **{
        name: service_account(names.SYSTEM_NAMESPACE, name)
        for name in ("muster-certs", "muster-scheduler", "muster-webhook")
    },
}


class SandboxProcess:
    """What `Deployed` needs of a control plane: where it is, and for whom."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __enter__(self) -> Self:
        # It imports what this process does.
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        command = [sys.executable, __file__, str(self._folder)]
        self._process = subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self._process.stdout is not None
        said = self._process.stdout.readline()
        if said != b"ready\n":
            self._process.communicate()
            raise AssertionError(f"the sandbox said {said!r}")
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()

    def kubeconfig(self, name: str = "") -> Path:
        """Return the kubeconfig of an account, or the administrator's."""
        return self._folder / (f"{name}.kubeconfig" if name else "kubeconfig")


class DeployedOnSandbox(Deployed):
    """Muster beside a sandbox, whose accounts have their tokens from the start."""

    plane: SandboxProcess

    async def kubeconfig_of(self, account: str, namespace: str) -> Path:
        """Return the kubeconfig of a service account."""
        assert USERS[account] == service_account(namespace, account)
        return self.plane.kubeconfig(account)


async def _serve(folder: Path) -> None:
    async with cluster(folder, USERS):
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(_serve(Path(sys.argv[1])))
