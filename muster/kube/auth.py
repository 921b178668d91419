"""The address of the API server and this process's credentials: from a kubeconfig, from inside a pod, or given."""

from __future__ import annotations

import asyncio
import math
import os
import ssl
import tempfile
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Final, Self

from msgspec import Struct
from msgspec.structs import replace

from muster.kube.errors import ConfigError
from muster.kube.settings import NO_OVERRIDES, ConnectionSettings, Overrides

SYSTEM_DEFAULT: Final = "~/.kube/config"

_RETRY: Final = 5.0  # seconds; a plugin that fails isn't run again for each request that waits for it


async def _no_headers() -> Mapping[str, str]:
    return {}


async def _never(_refused: Mapping[str, str]) -> bool:
    return False


class Endpoint(Struct, frozen=True):
    """An API server as seen by one identity.

    Attributes:
        server: URL without a slash at its end.
        tls: for ``https``; new connections use whatever certificates it holds then.
        headers: gives the headers that prove who we are; asked for each request. May raise `ConfigError`.
        renew: told the headers that the server answered with 401; whether others are to be had now. May raise
            `ConfigError`, which then explains more than the 401.
        server_name: what the certificate must name, where that isn't the host of the URL; empty otherwise.
        proxy: URL of an HTTP proxy; empty for none.
        impersonation: headers of every request that say as whom to act: names may repeat.
        identity: for messages: where the credentials come from, and whose they are.
    """

    server: str
    tls: ssl.SSLContext | None = None
    headers: Callable[[], Awaitable[Mapping[str, str]]] = _no_headers
    renew: Callable[[Mapping[str, str]], Awaitable[bool]] = _never
    server_name: str = ""
    proxy: str = ""
    impersonation: tuple[tuple[str, str], ...] = ()
    identity: str = ""

    @classmethod
    def with_token(cls, server: str, authority: str, token: str) -> Self:
        """Describe a server by its URL, its CA certificate (PEM) and a bearer token."""
        headers = {"Authorization": f"Bearer {token}"}

        async def same() -> Mapping[str, str]:
            return headers

        return cls(server, ssl.create_default_context(cadata=authority), same)


async def load(
    kubeconfig: str | None = None, context: str | None = None, overrides: Overrides = NO_OVERRIDES
) -> Endpoint:
    """Find the cluster as kubectl does: ``kubeconfig``, else KUBECONFIG, else ~/.kube/config, else inside a pod.

    ``overrides`` are what kubectl's global flags state instead.

    Raises:
        ConfigError: there is no usable one; the text names the file and says what to do.
    """
    _at_home()
    # A process that was given its endpoint needs no reader of files.
    from muster.kube.kubeconfig import read_files, read_service_account, read_stated

    paths = kubeconfig or os.environ.get("KUBECONFIG") or SYSTEM_DEFAULT

    async def read() -> ConnectionSettings:
        return await read_files(paths, context, overrides)

    async def read_flags() -> ConnectionSettings:
        return read_stated(overrides)

    async def read_pod() -> ConnectionSettings:
        return read_service_account()

    if paths != SYSTEM_DEFAULT or _has_default():
        return _acting(await connect(read), overrides)
    if overrides.server and not context:
        return _acting(await connect(read_flags), overrides)
    if "KUBERNETES_SERVICE_HOST" in os.environ:
        if context:
            raise ConfigError(f"--context {context} needs a kubeconfig: inside a pod there is one cluster only")
        return _acting(await connect(read_pod), overrides)
    raise ConfigError(
        f"no cluster to talk to: {SYSTEM_DEFAULT} doesn't exist and KUBECONFIG is not set; name a file with "
        "--kubeconfig, or start a cluster on this machine with `muster up`"
    )


def _acting(endpoint: Endpoint, overrides: Overrides) -> Endpoint:
    """Have every request say as whom to act."""
    if overrides.groups and not overrides.impersonate:
        raise ConfigError("--as-group needs --as: an API server takes groups together with a user only")
    if not overrides.impersonate:
        return endpoint
    groups = [("Impersonate-Group", group) for group in overrides.groups]
    identity = f"{endpoint.identity}, as {overrides.impersonate}"
    return replace(endpoint, impersonation=(("Impersonate-User", overrides.impersonate), *groups), identity=identity)


def namespace(kubeconfig: str | None = None, context: str | None = None) -> str:
    """Return the namespace that a command is about where none is given: the context's, as with kubectl.

    Raises:
        ConfigError: there is no such file or context.
    """
    _at_home()
    from muster.kube.kubeconfig import context_namespace

    paths = kubeconfig or os.environ.get("KUBECONFIG") or SYSTEM_DEFAULT
    return context_namespace(paths, context) if paths != SYSTEM_DEFAULT or _has_default() else "default"


def _at_home() -> None:
    """Have a home directory: paths that begin with ``~`` need one, and users of containers have none."""
    try:
        Path.home()
    except RuntimeError:
        os.environ["HOME"] = "/"


def _has_default() -> bool:
    return Path(SYSTEM_DEFAULT).expanduser().exists()


async def connect(read: Callable[[], Awaitable[ConnectionSettings]]) -> Endpoint:
    """Make an endpoint whose credentials are read again when they are old or refused."""
    settings = await read()
    tls = _context(settings) if settings.server.startswith("https:") else None
    credentials = _Credentials(read, settings, tls)
    return Endpoint(
        settings.server,
        tls,
        credentials.headers,
        credentials.renew,
        settings.server_name,
        settings.proxy,
        identity=", ".join(filter(None, (settings.source, settings.identity))),
    )


class _Credentials:
    """Headers that stay valid. One reading at a time, however many requests wait for it."""

    def __init__(
        self,
        read: Callable[[], Awaitable[ConnectionSettings]],
        settings: ConnectionSettings,
        tls: ssl.SSLContext | None,
    ) -> None:
        self._read = read
        self._tls = tls
        self._lock = asyncio.Lock()
        self._failure: tuple[float, ConfigError] | None = None
        self._headers: Mapping[str, str] = {}
        self._stale_at = math.inf
        self._settings = settings
        self._use(settings)

    async def headers(self) -> Mapping[str, str]:
        """Return the headers, read again first if they are old. When that fails the old ones may still do."""
        if _now() >= self._stale_at:
            async with self._lock:
                if _now() >= self._stale_at:
                    try:
                        await self._refresh()
                    except ConfigError:
                        # The server decides: its 401 leads to renew(), which says what is wrong.
                        self._stale_at = _now() + _RETRY
        return self._headers

    async def renew(self, refused: Mapping[str, str]) -> bool:
        """Read again after a 401, unless another request has done so in the meantime."""
        async with self._lock:
            if refused is not self._headers:
                return True
            before = self._settings
            await self._refresh()
            # Lest a request be sent again with what was refused.
            return replace(self._settings, fresh_for=None) != replace(before, fresh_for=None)

    async def _refresh(self) -> None:
        if self._failure is not None and _now() < self._failure[0]:
            raise ConfigError(str(self._failure[1])) from self._failure[1]
        try:
            settings = await self._read()
            if self._tls is not None:
                _identify(self._tls, settings)
        except ConfigError as error:
            self._failure = (_now() + _RETRY, error)
            raise
        self._use(settings)

    def _use(self, settings: ConnectionSettings) -> None:
        self._settings = settings
        self._headers = {"Authorization": settings.authorization} if settings.authorization else {}
        self._stale_at = math.inf if settings.fresh_for is None else _now() + settings.fresh_for


def _context(settings: ConnectionSettings) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cadata=settings.authority or None)
    except (ssl.SSLError, ValueError) as error:
        raise ConfigError(f"the certificate-authority of {settings.source} is no PEM certificate: {error}") from error
    if not settings.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    _identify(context, settings)
    return context


def _identify(context: ssl.SSLContext, settings: ConnectionSettings) -> None:
    """Return the context the client certificate, where there is one."""
    if not settings.certificate:
        return
    # ssl reads private keys from files only. This one is there for a moment, for us alone, and never left behind.
    with tempfile.TemporaryDirectory() as folder:
        pair = Path(folder, "pair.pem")
        pair.touch(mode=0o600)
        pair.write_text(f"{settings.certificate}\n{settings.key}\n")
        try:
            context.load_cert_chain(pair)
        except ssl.SSLError as error:
            raise ConfigError(
                f"the client certificate and key of {settings.source} can't be used: {error}; they must be PEM, "
                "unencrypted, and belong together"
            ) from error


def _now() -> float:
    return asyncio.get_running_loop().time()
