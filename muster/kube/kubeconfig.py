"""Reading kubeconfig files and a pod's service account. What is wrong with them is a `ConfigError` that says where."""

from __future__ import annotations

import base64
import binascii
import os
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec
import yaml
from msgspec import Struct

from muster.kube import execplugin
from muster.kube.clock import SystemClock
from muster.kube.errors import ConfigError, bounded
from muster.kube.settings import NO_OVERRIDES, ConnectionSettings, Overrides

SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Where a pod finds its token and the cluster's certificate."""

_TOKEN_FRESH: Final = 60.0  # seconds; token files are rotated in place by whoever put them there
_NO_PROVIDERS: Final = (
    "a user in kubeconfig {} has an auth-provider, which takes the Python package kubernetes: it isn't installed here; "
    "use an exec plugin instead, as kubectl does since 1.26"
)
_PARTS: Final = {"clusters": "cluster", "users": "user", "contexts": "context"}


class _Entry(Struct, frozen=True):
    """A cluster, user or context, and the folder that its paths start from."""

    value: dict[str, Any]
    folder: Path

    def content(self, key: str, paths: str) -> str:
        """Return what ``key-data`` holds, or what the file holds that ``key`` names; empty where there is neither."""
        data, path = self.value.get(f"{key}-data"), self.value.get(key)
        if data:
            return _decoded(data, f"{key}-data", paths)
        return self.read(str(path)) if path else ""

    def read(self, path: str) -> str:
        return (self.folder / Path(path).expanduser()).read_text(encoding="utf-8")


class _Config(Struct, frozen=True):
    """Several files as one: of each name the first counts, as for kubectl."""

    entries: dict[str, dict[str, _Entry]]
    current: str


async def read_files(paths: str, context: str | None, overrides: Overrides = NO_OVERRIDES) -> ConnectionSettings:
    """Return the connection settings of a context; None for the current one. What ``overrides`` states comes first.

    ``paths`` has one file, or several joined with a colon, of which the first counts, as with kubectl. Runs the context's
    credential plugin, if there is one. Source: ``k8s.io/client-go/tools/clientcmd``.

    Raises:
        ConfigError: see `muster.kube.auth.load`.
    """
    config = _merged(paths)
    chosen = _chosen(config, paths, context)
    cluster, user = _overridden(*_parts(config, paths, chosen, overrides), overrides)
    server = str(cluster.value.get("server") or "").rstrip("/")
    if urlsplit(server).scheme not in {"http", "https"} or not urlsplit(server).hostname:
        raise ConfigError(bounded(f"kubeconfig {paths} names the server {server!r}; it must be an https:// URL"))
    fresh_for = await _run_plugin(cluster, user, paths) if "exec" in user.value else None
    if user.value.get("tokenFile"):
        fresh_for = _TOKEN_FRESH
    try:
        authorization = await _authorization_of(user, paths)
        return ConnectionSettings(
            source=paths,
            server=server,
            authority=cluster.content("certificate-authority", paths),
            certificate=user.content("client-certificate", paths),
            key=user.content("client-key", paths),
            authorization=authorization,
            server_name=str(cluster.value.get("tls-server-name") or ""),
            proxy=_proxy(str(cluster.value.get("proxy-url") or ""), server, paths),
            verify=not cluster.value.get("insecure-skip-tls-verify"),
            fresh_for=fresh_for,
            identity=_identity(config, chosen, overrides),
        )
    except (OSError, ValueError) as error:
        raise ConfigError(bounded(f"context {chosen!r} of kubeconfig {paths} can't be used: {error}")) from error


def read_stated(overrides: Overrides) -> ConnectionSettings:
    """Return the connection settings that flags alone state: a server, and how to speak to it.

    Raises:
        ConfigError: the URL is none, or a file can't be read.
    """
    source, server = "--server", overrides.server.rstrip("/")
    if urlsplit(server).scheme not in {"http", "https"} or not urlsplit(server).hostname:
        raise ConfigError(bounded(f"--server is {server!r}; it must be an https:// URL"))
    try:
        authority = Path(overrides.authority).expanduser().read_text(encoding="utf-8") if overrides.authority else ""
    except (OSError, ValueError) as error:
        raise ConfigError(f"--certificate-authority {overrides.authority} can't be read: {error}") from error
    return ConnectionSettings(
        source=source,
        server=server,
        authority=authority,
        authorization=_bearer(overrides.token, "--token"),
        server_name=overrides.server_name,
        proxy=_proxy("", server, source),
        verify=not overrides.insecure,
    )


def context_namespace(paths: str, context: str | None) -> str:
    """Return the namespace of a context, as kubectl uses it where no other is given.

    Raises:
        ConfigError: there is no such file or context.
    """
    config = _merged(paths)
    return str(config.entries["contexts"][_chosen(config, paths, context)].value.get("namespace") or "default")


def read_service_account() -> ConnectionSettings:
    """Return the connection settings of the service account of the pod that this process runs in.

    Raises:
        ConfigError: its files aren't there or are empty.
    """
    source = "the pod's service account"
    host, port = (os.environ.get(f"KUBERNETES_SERVICE_{name}", "") for name in ("HOST", "PORT"))
    server = f"https://{f'[{host}]' if ':' in host else host}:{port or 443}"
    try:
        token, authority = ((SERVICE_ACCOUNT / name).read_text(encoding="utf-8") for name in ("token", "ca.crt"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{source} can't be used: {error}; see automountServiceAccountToken of the pod") from error
    if not token.strip() or not authority.strip():
        raise ConfigError(f"{source} can't be used: its token or ca.crt in {SERVICE_ACCOUNT} is empty")
    return ConnectionSettings(
        source=source,
        server=server,
        authority=authority,
        authorization=_bearer(token, source),
        proxy=_proxy("", server, source),
        fresh_for=_TOKEN_FRESH,
    )


# ── files ────────────────────────────────────────────────────────────────────────────────────────────────────────


def _merged(paths: str) -> _Config:
    entries: dict[str, dict[str, _Entry]] = {section: {} for section in _PARTS}
    current = ""
    # As for kubectl, a file of several may be missing.
    present = [path for path in paths.split(os.pathsep) if path and Path(path).expanduser().exists()]
    if not present:
        raise ConfigError(f"kubeconfig {paths} doesn't exist; name another with --kubeconfig or KUBECONFIG")
    for path in present:
        content, folder = _content(path), Path(path).expanduser().parent
        for section, part in _PARTS.items():
            for name, value in _named(content.get(section), part, path):
                entries[section].setdefault(name, _Entry(value, folder))
        current = current or str(content.get("current-context") or "")
    return _Config(entries, current)


def _content(path: str) -> Mapping[str, Any]:
    try:
        content = yaml.safe_load(Path(path).expanduser().read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(bounded(f"kubeconfig {path} isn't YAML: {error}")) from error
    except OSError as error:
        raise ConfigError(f"kubeconfig {path} can't be read: {error.strerror}") from error
    if not isinstance(content, dict):
        raise _no_kubeconfig(path)
    return content


def _named(section: Any, part: str, path: str) -> list[tuple[str, dict[str, Any]]]:
    if not isinstance(section or [], list):
        raise _no_kubeconfig(path)
    found = []
    for each in section or []:
        value = (each.get(part) or {}) if isinstance(each, dict) else None
        if not isinstance(value, dict) or "name" not in each:
            raise _no_kubeconfig(path)
        found.append((str(each["name"]), value))
    return found


def _no_kubeconfig(path: str) -> ConfigError:
    return ConfigError(f"{path} isn't a kubeconfig: it must hold clusters, contexts and users")


def _chosen(config: _Config, paths: str, context: str | None) -> str:
    known = config.entries["contexts"]
    chosen = context or config.current
    if chosen in known:
        return chosen
    choice = f"it has {', '.join(known)}" if known else "it has none at all"
    if not chosen:
        raise ConfigError(bounded(f"kubeconfig {paths} has no current-context; choose one with --context: {choice}"))
    raise ConfigError(bounded(f"kubeconfig {paths} has no context {chosen!r}; {choice}"))


def _parts(config: _Config, paths: str, chosen: str, overrides: Overrides) -> tuple[_Entry, _Entry]:
    """Return the cluster and the user of a context, or those that are named instead."""
    context = config.entries["contexts"][chosen].value
    found = []
    for section, key, other in (("clusters", "cluster", overrides.cluster), ("users", "user", overrides.user)):
        entry = config.entries[section].get(other or str(context.get(key) or ""))
        if entry is None and other:
            known = ", ".join(config.entries[section])
            raise ConfigError(bounded(f"kubeconfig {paths} has no {key} {other!r}; it has {known}"))
        if entry is None:
            raise ConfigError(
                bounded(f"context {chosen!r} of kubeconfig {paths} needs a {key} that is described under {section}")
            )
        found.append(entry)
    return found[0], found[1]


def _overridden(cluster: _Entry, user: _Entry, overrides: Overrides) -> tuple[_Entry, _Entry]:
    value = dict(cluster.value)
    if overrides.server:
        value["server"] = overrides.server
    if overrides.authority:
        value.pop("certificate-authority-data", None)
        value["certificate-authority"] = str(Path(overrides.authority).expanduser().resolve())
    if overrides.insecure:
        value["insecure-skip-tls-verify"] = True
    if overrides.server_name:
        value["tls-server-name"] = overrides.server_name
    given = {"token": overrides.token} if overrides.token else user.value
    return _Entry(value, cluster.folder), _Entry(given, user.folder)


def _identity(config: _Config, chosen: str, overrides: Overrides) -> str:
    user = overrides.user or config.entries["contexts"][chosen].value.get("user")
    return f"context {chosen}, " + ("the token of --token" if overrides.token else f"user {user}")


# ── credentials ──────────────────────────────────────────────────────────────────────────────────────────────────


async def _run_plugin(cluster: _Entry, user: _Entry, paths: str) -> float | None:
    """Let the user's plugin fill in what it knows; give for how long that is good."""
    try:
        plugin = msgspec.convert(user.value["exec"], execplugin.ExecPlugin)
    except msgspec.ValidationError as error:
        raise ConfigError(bounded(f"the exec section of a user in kubeconfig {paths} is wrong: {error}")) from error
    credential = await execplugin.run(plugin, cluster.value, user.folder)
    if credential.token:
        user.value["token"] = credential.token
        user.value.pop("tokenFile", None)
    if credential.client_certificate_data:
        user.value["client-certificate-data"] = base64.b64encode(credential.client_certificate_data.encode())
        user.value["client-key-data"] = base64.b64encode(credential.client_key_data.encode())
    return _fresh_for(credential.expiration_timestamp)


def _fresh_for(expires: datetime | None) -> float | None:
    """Return the seconds for which a credential may be used: up to a minute short of its end, or a quarter of its life."""
    if expires is None:
        return None
    left = max(0.0, (expires - SystemClock().now()).total_seconds())
    return left - min(60.0, left / 4)


def _decoded(data: str | bytes, key: str, paths: str) -> str:
    try:
        return base64.b64decode(data, validate=True).decode()
    except (binascii.Error, ValueError, TypeError) as error:
        raise ConfigError(f"{key} in kubeconfig {paths} isn't base64: {error}") from error


async def _authorization_of(user: _Entry, paths: str) -> str:
    """Return the header by which a user is known: a provider's token, that of a file or of the user, or a password."""
    value = user.value
    if "auth-provider" in value:
        # Of the old kind, before plugins: the kubernetes package knows how to get a token from them. Importing it
        # takes a third of a second, which nobody else has to wait for.
        try:
            from muster.kube import authproviders
        except ModuleNotFoundError as error:
            raise ConfigError(_NO_PROVIDERS.format(paths)) from error
        return _bearer(await authproviders.token(value["auth-provider"], user.folder, paths), paths)
    if value.get("tokenFile"):
        # The file is the newer of the two.
        return _bearer(user.read(str(value["tokenFile"])), paths)
    if value.get("token"):
        return _bearer(str(value["token"]), paths)
    if value.get("username"):
        pair = f"{value['username']}:{value.get('password') or ''}"
        return f"Basic {base64.b64encode(pair.encode()).decode()}"
    return ""


def _bearer(token: str, source: str) -> str:
    # Files end with a newline, headers must not.
    token = token.strip()
    if not token.isprintable() or " " in token:
        raise ConfigError(f"the token of {source} holds characters that no token has; write it again")
    return f"Bearer {token}" if token else ""


def _proxy(configured: str, server: str, source: str) -> str:
    """Return the proxy for ``server``: the kubeconfig's, else the environment's as kubectl reads it."""
    host = urlsplit(server).hostname or ""
    proxy = configured
    if not proxy and any(name.lower().endswith("_proxy") for name in os.environ):
        # What knows the rules of these variables takes a while to import, and few have any.
        from urllib import request

        if not request.proxy_bypass_environment(host):  # type: ignore[attr-defined]
            proxy = request.getproxies_environment().get(urlsplit(server).scheme, "")
    if proxy and urlsplit(proxy).scheme not in {"http", "https"}:
        raise ConfigError(f"the proxy {proxy} of {source} isn't supported; only http:// and https:// proxies are")
    return proxy
