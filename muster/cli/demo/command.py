"""``muster demo``: starts ``muster up`` and plays the story against it like a terminal session, checking each step."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
import shutil
import signal
import sys
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final, Protocol

import click

from muster.cli.connect import runs
from muster.cli.demo.story import STORY, CommandResult, StoryStep
from muster.cli.options import examples

_READY_SECONDS: Final = 60
_COMMAND_SECONDS: Final = 90
_STOP_SECONDS: Final = 30
_ROTATED_AFTER: Final = len(STORY) - 1
"""The part of the story whose Job runs while the CA is replaced."""


class Terminal(Protocol):
    """What runs a kubectl command line."""

    async def run(self, words: list[str], folder: Path) -> CommandResult:
        """Run ``kubectl …`` in ``folder``."""
        ...


class Kubectl:
    """The real kubectl."""

    def __init__(self, binary: str, kubeconfig: Path, cache: Path) -> None:
        self._binary = binary
        # Its own cache: discovery of another server that once had this port would be believed.
        self._environment = os.environ | {"KUBECONFIG": str(kubeconfig), "KUBECACHEDIR": str(cache)}

    async def run(self, words: list[str], folder: Path) -> CommandResult:
        """Run ``kubectl …`` in ``folder``."""
        process = await asyncio.create_subprocess_exec(
            self._binary,
            *words[1:],
            cwd=folder,
            env=self._environment,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        try:
            async with asyncio.timeout(_COMMAND_SECONDS):
                output, _ = await process.communicate()
        except TimeoutError:
            process.kill()
            await process.wait()
            return CommandResult(124, f"no answer within {_COMMAND_SECONDS} s")
        return CommandResult(process.returncode or 0, output.decode(errors="replace"))


@click.command(epilog=examples("muster demo", "muster demo --kubeconfig kind.kubeconfig"))
@click.option(
    "--kubeconfig",
    metavar="FILE",
    help="Run the steps on this cluster instead of an embedded one. Its nodes must be simulated (kwok).",
)
@click.option("--installed", is_flag=True, help="Muster is installed in that cluster: do not start it.")
@runs
async def demo(kubeconfig: str | None, *, installed: bool) -> None:
    """Run the steps of the README, and check each answer.

    The command starts `muster up` (unless --installed) and runs each step with kubectl, or sends the same requests if
    there is no kubectl. Exit status 0 means that every answer was as expected.
    """
    if installed and kubeconfig is None:
        raise click.UsageError("--installed needs --kubeconfig: which cluster it is installed in")
    with tempfile.TemporaryDirectory(prefix="muster-demo-") as folder:
        async with _everything(Path(folder), kubeconfig, installed=installed) as config:
            terminal = await _terminal(config, Path(folder) / "cache")
            for number, step in enumerate(STORY, 1):
                await _play(step, number, terminal, Path(folder))
                if kubeconfig is None and number == _ROTATED_AFTER:
                    # Elsewhere the waits of a rotation are those of a real cluster: 12 minutes.
                    from muster.cli.demo.rotation import rotate

                    click.secho("\n# Meanwhile the webhooks' CA is replaced under load.", fg="cyan")
                    await rotate(config)
    click.secho(f"\nAll {len(STORY)} parts of the story were as they should be.", fg="green")


@contextlib.asynccontextmanager
async def _everything(folder: Path, kubeconfig: str | None, *, installed: bool) -> AsyncIterator[Path]:
    """Run ``muster up`` beside us, unless Muster is installed; gives the kubeconfig when it is ready."""
    config = Path(kubeconfig) if kubeconfig else folder / "kubeconfig"
    if installed:
        yield config
        return
    options = ["--kubeconfig", kubeconfig] if kubeconfig else ["--nodes", "0", "--kubeconfig-out", str(config)]
    click.secho("$ muster up &", bold=True)
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "muster.cli",
        "up",
        *options,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        await _await_ready(process.stdout)
        yield config
    finally:
        await _stop(process)


async def _await_ready(output: asyncio.StreamReader) -> None:
    try:
        async with asyncio.timeout(_READY_SECONDS):
            async for line in output:
                click.echo(line.decode().rstrip())
                if line.startswith(b"ready:"):
                    return
    except TimeoutError as error:
        raise click.ClickException(f"`muster up` was not ready within {_READY_SECONDS} s; run it by itself") from error
    raise click.ClickException("`muster up` ended before it was ready; its words are above")


async def _stop(process: asyncio.subprocess.Process) -> None:
    if process.returncode is not None:
        return
    process.send_signal(signal.SIGTERM)
    try:
        async with asyncio.timeout(_STOP_SECONDS):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()


async def _terminal(config: Path, cache: Path) -> Terminal:
    binary = shutil.which("kubectl")
    if binary:
        return Kubectl(binary, config, cache)
    from muster.cli.demo.requests import ClientTerminal

    click.secho(
        "kubectl isn't installed, so the same requests are sent through Muster's own client.\n"
        "To get it: https://kubernetes.io/docs/tasks/tools/",
        fg="yellow",
    )
    return ClientTerminal(config)


async def _play(step: StoryStep, number: int, terminal: Terminal, folder: Path) -> None:
    click.secho(f"\n# {number}. {step.title}", fg="cyan")
    for name, text in step.files.items():
        (folder / name).write_text(text)
        click.secho(f"$ cat {name}", bold=True)
        click.secho(text.rstrip(), dim=True)
    for command in step.commands:
        click.secho(f"$ {command.line}", bold=True)
        result = await terminal.run(shlex.split(command.line), folder)
        click.echo(result.text.rstrip())
        complaint = command.check(result)
        if complaint:
            raise click.ClickException(f"part {number} of the story is not so: `{command.line}` {complaint}")
