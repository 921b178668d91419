"""The last part of the demo: the CA of the webhooks is replaced while they review requests, and no review fails."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Final

import click

from muster.kube import auth, errors
from muster.kube.client import Client
from muster.kube.http import HttpTransport
from muster.model import kinds

_GROUP: Final = {"metadata": {"generateName": "load-"}, "spec": {"minMember": 1, "queue": "nightly"}}
_REVIEWED: Final = 'queue "nightly" (spec.queue) does not exist'
_WORDS: Final = ("certs", "rotate-ca")


async def rotate(config: Path) -> None:
    """Rotate the CA under load, and print what happens.

    Raises:
        ClickException: the rotation failed, or a request wasn't reviewed.
    """
    click.secho(f"$ muster {' '.join(_WORDS)}     # while PodGroups are created", bold=True)
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "muster.cli", *_WORDS, "--kubeconfig", str(config), stdout=asyncio.subprocess.PIPE
    )
    load = asyncio.create_task(_reviews(config, process))
    assert process.stdout is not None
    async for line in process.stdout:
        click.echo(line.decode().rstrip())
    status, answers = await process.wait(), await load
    failed = [each for each in answers if _REVIEWED not in each]
    if status or failed or not answers:
        raise click.ClickException(f"the rotation ended with status {status}; of {len(answers)} requests {len(failed)} weren't reviewed: {failed[:1]}")  # fmt: skip
    click.echo(f"{len(answers)} requests were reviewed meanwhile, 0 failed")


async def _reviews(config: Path, process: asyncio.subprocess.Process) -> list[str]:
    """Have requests reviewed until the process ends; return the answers."""
    answers = []
    async with HttpTransport(await auth.load(str(config), None)) as transport:
        while process.returncode is None:
            try:
                await Client(transport).create(kinds.PODGROUPS, _GROUP, "default", dry_run=True)
                answers.append("stored")
            except errors.KubeError as error:
                answers.append(str(error))
    return answers
