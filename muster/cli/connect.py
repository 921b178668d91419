"""From the options of a command to a client, and from an error to one line for the person."""

from __future__ import annotations

import asyncio
import functools
import re
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar

import click

from muster.kube import errors
from muster.kube.client import Client

if TYPE_CHECKING:
    from muster.kube.settings import Overrides
    from muster.kube.transport import Request, Response, Transport
    from muster.model.kinds import Kind
    from muster.model.objects import Object

_NOT_SERVED: Final = ("could not find the requested resource", "404 page not found")
"""What an API server answers about a group of which it serves no such resource, and about one that it doesn't know."""
_MISSING: Final = "this cluster does not have Muster's CRDs: run `muster install`"
_REQUESTS: Final = 6
"""The level of ``-v`` from which kubectl prints requests."""
_NO_LIMIT: Final = 86_400.0
_WARNING: Final = re.compile(r'299 \S+ "((?:[^"\\]|\\.)*)"')
_ESCAPED: Final = re.compile(r"\\(.)")
_UNESCAPED: Final = r"\1"
P = ParamSpec("P")
T = TypeVar("T")
S = TypeVar("S", bound="Object")


class CommandError(click.ClickException):
    """A command couldn't do its work, and ends with ``status``."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.exit_code = status  # type: ignore[misc] # click's own exceptions have it on the class only


class NotInstalledError(click.ClickException):
    """The cluster doesn't serve Muster's kinds."""

    def __init__(self) -> None:
        super().__init__(_MISSING)


@asynccontextmanager
async def connected(kubeconfig: str | None, context: str | None) -> AsyncIterator[Client]:
    """Return a client for the cluster that the options name; closed at the end.

    Raises:
        ConfigError: no usable kubeconfig.
    """
    # What reads kubeconfigs and speaks HTTP takes a while to import: not before it is needed.
    from muster.kube import auth
    from muster.kube.client import TIMEOUT
    from muster.kube.http import HttpTransport

    flags = _flags()
    endpoint = await auth.load(
        kubeconfig or flags.get("--kubeconfig"), context or flags.get("--context"), _overrides(flags)
    )
    within = _timeout(flags["--request-timeout"]) if "--request-timeout" in flags else TIMEOUT
    async with HttpTransport(endpoint) as transport:
        try:
            told = RequestLog(transport) if flags.get("--v", 0) >= _REQUESTS else transport
            yield Client(WarningTransport(told), within=within)
        except errors.UnauthorizedError as error:
            text = f"the API server doesn't accept the credentials of {endpoint.identity}: {error}"
            raise errors.ConfigError(text) from error


def _flags() -> dict[str, Any]:
    """Return kubectl's global flags as they were given, before the command's name or behind it."""
    from muster.cli.flags import CLUSTER_FLAGS

    current = click.get_current_context(silent=True)
    found: dict[str, Any] = current.meta.get(CLUSTER_FLAGS, {}) if current is not None else {}
    return found


def _overrides(flags: dict[str, Any]) -> Overrides:
    from muster.kube.settings import Overrides

    return Overrides(
        cluster=flags.get("--cluster", ""),
        user=flags.get("--user", ""),
        server=flags.get("--server", ""),
        token=flags.get("--token", ""),
        authority=flags.get("--certificate-authority", ""),
        insecure=flags.get("--insecure-skip-tls-verify", False),
        server_name=flags.get("--tls-server-name", ""),
        impersonate=flags.get("--as", ""),
        groups=tuple(flags.get("--as-group", ())),
    )


def _timeout(text: str) -> float:
    """Return the seconds of ``--request-timeout``: a number of seconds or a duration; 0 is no limit, as for kubectl."""
    from muster.model import durations

    try:
        seconds = float(text) if text.isascii() and text.isdigit() else durations.seconds(text)
    except (ValueError, OverflowError) as error:
        raise click.UsageError(f"--request-timeout {text!r} is no time like 30s, 1m30s or 10") from error
    return seconds or _NO_LIMIT


class RequestLog:
    """Passes requests on, and prints a line for each on stderr, as ``-v=6`` has kubectl do."""

    def __init__(self, inner: Transport) -> None:
        self._inner = inner

    async def request(self, request: Request, *, within: float) -> Response:
        """Send a request; print it with the status of its answer and the time that it took."""
        began = time.monotonic()
        response = await self._inner.request(request, within=within)
        self._tell(request, f"{response.status} in {(time.monotonic() - began) * 1000:.0f} milliseconds")
        return response

    def watch(self, request: Request, *, idle: float) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """Pass a watch on; print it."""
        self._tell(request, "watching")
        return self._inner.watch(request, idle=idle)

    @staticmethod
    def _tell(request: Request, text: str) -> None:
        query = "&".join(f"{key}={value}" for key, value in request.query.items())
        click.echo(f"{request.method} {request.path}{'?' if query else ''}{query} {text}", err=True)


class WarningTransport:
    """Passes requests on, and prints the warnings that the API server sends with its answers, each once."""

    def __init__(self, inner: Transport) -> None:
        self._inner = inner
        self._told: set[str] = set()

    async def request(self, request: Request, *, within: float) -> Response:
        """Send a request; print what its answer warns of."""
        response = await self._inner.request(request, within=within)
        for text in _WARNING.findall(response.headers.get("warning", "")):
            if text not in self._told:
                self._told.add(text)
                click.echo("Warning: " + _ESCAPED.sub(_UNESCAPED, text), err=True)
        return response

    def watch(self, request: Request, *, idle: float) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """Pass a watch on."""
        return self._inner.watch(request, idle=idle)


def namespace_of(given: str | None, kubeconfig: str | None, context: str | None) -> str:
    """Return the namespace that a command is about: the given one, else the context's.

    Raises:
        ConfigError: none is given, and there is no usable kubeconfig.
    """
    from muster.kube import auth

    flags = _flags()
    return given or auth.namespace(kubeconfig or flags.get("--kubeconfig"), context or flags.get("--context"))


async def served(client: Client, wanted: Sequence[Kind[S]]) -> tuple[Kind[S], ...]:
    """Return those of ``wanted`` whose group discovery shows; to those who may not see that, the first alone.

    API servers deny permission before they say that they don't serve a group.

    Raises:
        NotInstalledError: the first of them isn't served.
        KubeError: discovery can't be read.
    """
    import msgspec

    from muster.kube.transport import Request

    try:
        answer = await client.send(Request("GET", "/apis"))
    except errors.ForbiddenError:
        return tuple(wanted[:1])  # whether it is served, the answer about its objects says
    groups = msgspec.json.decode(answer.body).get("groups") or ()
    shown = {each["name"] for each in groups}
    found = tuple(each for each in wanted if each.group in shown)
    if wanted[0] not in found:
        raise NotInstalledError
    return found


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
    if isinstance(error, errors.NotFoundError) and any(each in text for each in _NOT_SERVED):
        return f"{_MISSING} ({text})"
    if isinstance(error, errors.ForbiddenError) and not text.startswith("admission webhook"):
        return f"the cluster denies permission: {text}"
    if isinstance(error, errors.UnreachableError):
        return f"the API server does not answer: {text}"
    return text or type(error).__name__
