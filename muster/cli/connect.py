"""From the options of a command to a client, and from an error to one line for the person."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, ParamSpec, TypeVar

import click

from muster.kube import errors
from muster.kube.client import Client

P = ParamSpec("P")
T = TypeVar("T")


class CommandError(click.ClickException):
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


def namespace_of(given: str | None, kubeconfig: str | None, context: str | None) -> str:
    """Return the namespace that a command is about: the given one, else the context's.

    Raises:
        ConfigError: none is given, and there is no usable kubeconfig.
    """
    from muster.kube import auth

    return given or auth.namespace(kubeconfig, context)


def runs(command: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, T]:
    """Run an async command to its end, and turn errors that a person can act on into one line."""

    @functools.wraps(command)
    @explaining(1)
    def run(*args: P.args, **kwargs: P.kwargs) -> T:
        return asyncio.run(command(*args, **kwargs))

    return run


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
                raise CommandError(explained(error), status) from error
            except click.UsageError:
                raise
            except click.ClickException as error:
                raise CommandError(error.message, status) from error

        return run

    return decorate


def explained(error: Exception) -> str:
    """Say in one line what went wrong and what to do, for an error from the client or the system."""
    text = " ".join(str(error).split())
    if isinstance(error, errors.NotFoundError) and "could not find the requested resource" in text:
        return f"this cluster does not have Muster's CRDs: run `muster install` ({text})"
    if isinstance(error, errors.ForbiddenError) and not text.startswith("admission webhook"):
        return f"the cluster denies permission: {text}"
    if isinstance(error, errors.UnreachableError):
        return f"the API server does not answer: {text}"
    return text or type(error).__name__
