"""From the options of a command to a client, and from what goes wrong to one line for the person."""

from __future__ import annotations

import asyncio
import functools
import gc
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, NoReturn, ParamSpec, TypeVar

import click

from muster.kube import errors
from muster.kube.client import Client

P = ParamSpec("P")
T = TypeVar("T")


class FailedError(click.ClickException):
    """A command couldn't do its work, and ends with ``status``."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.exit_code = status  # type: ignore[misc] # click's own exceptions have it on the class only


@asynccontextmanager
async def connected(kubeconfig: str | None, context: str | None) -> AsyncIterator[Client]:
    """Return a client for the cluster that the options name; closed at the end.

    Raises:
        ConfigError: no usable kubeconfig.
    """
    # What reads kubeconfigs and speaks HTTP takes a while to import: not before it is needed.
    from muster.kube import auth
    from muster.kube.http import HttpTransport

    endpoint = await auth.load(kubeconfig, context)
    async with HttpTransport(endpoint) as transport:
        yield Client(transport)


@contextmanager
def uncollected() -> Iterator[None]:
    """Let nobody look for garbage meanwhile: what is read and decided in a second or two is needed to the end of it."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def done(status: int = 0) -> NoReturn:
    """End a command with a status, and the process with it where that is ours.

    Taking apart what was read of a large cluster, object by object, takes longer than to look for an answer.
    """
    context = click.get_current_context()
    end: Callable[[int], NoReturn] = context.obj or context.exit
    end(status)


def runs(command: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, T]:
    """Run an async command to its end, and turn errors that a person can act on into one line."""

    @functools.wraps(command)
    @explaining(1)
    def run(*args: P.args, **kwargs: P.kwargs) -> T:
        return asyncio.run(command(*args, **kwargs))

    return run


def reading(main: Coroutine[Any, Any, T]) -> T:
    """Run what reads a whole cluster to its end: on the loop that takes half the processor time for long answers over TLS."""
    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(main)


def explaining(status: int) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Turn errors that a person can act on into one line, and into this exit status."""

    def decorate(command: Callable[P, T]) -> Callable[P, T]:
        @functools.wraps(command)
        def run(*args: P.args, **kwargs: P.kwargs) -> T:
            try:
                return command(*args, **kwargs)
            except BrokenPipeError:
                raise  # whoever reads the answer has seen enough of it
            except (errors.KubeError, OSError) as error:
                raise FailedError(explained(error), status) from error
            except click.UsageError:
                raise
            except click.ClickException as error:
                raise FailedError(error.message, status) from error

        return run

    return decorate


def explained(error: Exception) -> str:
    """Say in one line what went wrong and what to do, for an error from the client or the system."""
    text = " ".join(str(error).split())
    if isinstance(error, errors.NotFoundError) and "could not find the requested resource" in text:
        return f"this cluster doesn't know Muster's kinds: run `muster install` ({text})"
    if isinstance(error, errors.ForbiddenError) and not text.startswith("admission webhook"):
        return f"the cluster doesn't allow it: {text}"
    if isinstance(error, errors.UnreachableError):
        return f"the API server doesn't answer: {text}"
    return text or type(error).__name__
