"""Shared by the commands that use ``muster.whatif``: their options, and the state that they read."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, TypeVar

import click
from msgspec import Struct

from muster.cli import cluster, configuration
from muster.cli.connect import connected, namespace_of
from muster.cli.options import cluster_options, config_option, namespace_option, schedulers_option
from muster.cli.output import DOCUMENTS, UNBROKEN, WIDTH, text_option
from muster.kube.client import Client
from muster.kube.clock import SystemClock
from muster.model import kinds
from muster.model.objects import prepare

if TYPE_CHECKING:
    from muster.cli.configuration import Configuration
    from muster.whatif.cluster_view import ClusterObjects
    from scheduler.engine.policy import Policy

T = TypeVar("T")
Objects = list[dict[str, Any]]
Ready = asyncio.Task[None]
"""Done once what answers the question is imported."""


def question_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of a question about the scheduler's decisions: `Question` has their values."""
    return _with(command, cluster_options, text_option)


def basis_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add those that say what is asked about: all of a `Question` but ``output``."""
    return _with(command, cluster_options)


def _with(command: Callable[..., Any], *first: Callable[..., Any]) -> Callable[..., Any]:
    configured = config_option(
        "The scheduler's configuration (YAML). Default: the cluster's own, else the built-in one."
    )
    for option in (*first, schedulers_option(), configured, _state_option, namespace_option):
        command = option(command)
    return command


def _state_option(command: Callable[..., Any]) -> Callable[..., Any]:
    text = "Use this dump of a cluster (`muster dump`) instead of the cluster; - is stdin."
    return click.option("--state", "state_file", metavar="FILE", help=text)(command)


class AnswerBasis(NamedTuple):
    """What a question is answered from; ``objects`` are those that were read beside the state."""

    state: ClusterObjects
    configuration: Configuration
    objects: Objects

    @property
    def policy(self) -> Policy:
        """What the scheduler follows."""
        return self.configuration.policy


class Question(Struct, frozen=True):
    """The values of `question_options`."""

    namespace: str | None
    state_file: str | None
    configuration: Path | None
    schedulers: tuple[str, ...]
    output: str
    kubeconfig: str | None
    context: str | None

    def where(self) -> str:
        """Return the namespace that is asked about: of a dump it is ``default`` where none is named.

        Raises:
            ConfigError: no usable kubeconfig.
        """
        if self.state_file is not None:
            return self.namespace or "default"
        return namespace_of(self.namespace, self.kubeconfig, self.context)

    @property
    def width(self) -> int:
        """Columns after which lines are broken."""
        return UNBROKEN if self.output == "wide" else WIDTH

    @property
    def document(self) -> bool:
        """Whether the answer is for programs."""
        return self.output in DOCUMENTS

    def basis(self, module: str, beside: Callable[[Client, Ready], Awaitable[Objects]] | None = None) -> AnswerBasis:
        """Read what the answer rests on, while ``module``, which finds it, is imported; print what could not be read.

        Args:
            module: dotted name.
            beside: reads more of the cluster; not called for a dump.

        Raises:
            ClickException: the configuration can't be used, the file isn't a dump, or Muster isn't installed.
            KubeError: the cluster can't be read.
        """
        return reading(self._basis(module, beside))

    async def _basis(self, module: str, beside: Callable[[Client, Ready], Awaitable[Objects]] | None) -> AnswerBasis:
        prepare()
        allowed = asyncio.Event()
        ready = asyncio.create_task(self._prepare_once(allowed, module))
        (state, objects), _ = await asyncio.gather(self._state(allowed, ready, beside), ready)
        tell(state)
        readable = not any(each.startswith(f"{kinds.CONFIGMAPS} ") for each in state.unread)
        found = state.of(kinds.CONFIGMAPS)
        configured = configuration.find(self.configuration, found, readable=readable, home=state.home)
        return AnswerBasis(state, configured, objects)

    async def _state(
        self, allowed: asyncio.Event, ready: Ready, beside: Callable[[Client, Ready], Awaitable[Objects]] | None
    ) -> tuple[ClusterObjects, Objects]:
        if self.state_file is not None:
            from muster.cli.manifests import read_dump

            allowed.set()
            return read_dump(self.state_file), []
        async with connected(self.kubeconfig, self.context) as client:
            await cluster.ensure_readable(client)
            allowed.set()
            state = cluster.read(client, SystemClock().now())
            if beside is None:
                return await state, []
            return await asyncio.gather(state, beside(client, ready))

    async def _prepare_once(self, allowed: asyncio.Event, module: str) -> None:
        """Import what answers the question while the API server writes its answers; not for somebody who may not read these."""
        await allowed.wait()
        await asyncio.to_thread(self._prepare, module)

    def _prepare(self, module: str) -> None:
        import_module(module)
        if self.configuration is None and self.state_file is None:
            import_module("scheduler.configuration.config")


def tell(state: ClusterObjects) -> None:
    """Print on stderr what could not be read."""
    for sentence in (*state.unread, *state.malformed()):
        click.echo(f"note: {sentence}", err=True)


def reading(main: Coroutine[Any, Any, T]) -> T:
    """Run what reads a whole cluster: on the loop that takes half the processor time for long answers over TLS."""
    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(main)


def done(status: int = 0) -> NoReturn:
    """End a command with a status, and the process with it where that is ours.

    Taking apart what was read of a large cluster, object by object, takes longer than to look for an answer.
    """
    context = click.get_current_context()
    end: Callable[[int], NoReturn] = context.obj or context.exit
    end(status)
