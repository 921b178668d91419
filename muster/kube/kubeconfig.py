"""Reading kubeconfig files and a pod's service account, with the kubernetes package's loader.

What the package leaves as a stack trace, a log line or a silent default is made a `ConfigError` here.
"""

from __future__ import annotations

import base64
import binascii
import os
import tempfile
import urllib.request
from datetime import datetime
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec
import yaml
from kubernetes.aio import config as package
from kubernetes.aio.client import Configuration
from kubernetes.aio.config import ConfigException, kube_config

from muster.kube import execplugin
from muster.kube.clock import SystemClock
from muster.kube.errors import ConfigError, bounded
from muster.kube.settings import Settings

# Not annotated in the package.
_load_incluster_config: Any = package.load_incluster_config
_Loader: Any = kube_config.KubeConfigLoader
_Merger: Any = kube_config.KubeConfigMerger

_TOKEN_FRESH: Final = 60.0  # seconds; token files are rotated in place by whoever put them there

# What the loader raises at files that aren't as it expects.
_LOADER_ERRORS: Final = (ConfigException, OSError, ValueError, TypeError, KeyError, AttributeError)


async def read(paths: str, context: str | None) -> Settings:
    """Read what a context of the kubeconfig files ``paths`` (several joined with a colon) says.

    Raises:
        ConfigError: see `muster.kube.auth.load`.
    """
    config = _merged(paths)
    chosen = _chosen(config, paths, context)
    cluster, user, folder = _parts(config, paths, chosen)
    with tempfile.TemporaryDirectory() as scratch:
        fresh_for = await _prepare(cluster, user, folder, Path(scratch), paths)
        try:
            loader = _Loader(config, active_context=chosen, config_base_path=None)
            found = Configuration()
            await loader.load_and_set(found)
            return _settings(found, paths, fresh_for)
        except _LOADER_ERRORS as error:
            raise ConfigError(bounded(f"context {chosen!r} of kubeconfig {paths} can't be used: {error}")) from error


def namespace(paths: str, context: str | None) -> str:
    """Give the namespace of a context, as kubectl uses it where no other is given.

    Raises:
        ConfigError: there is no such file or context.
    """
    config = _merged(paths)
    chosen = _chosen(config, paths, context)
    return str(config["contexts"].get_with_name(chosen)["context"].value.get("namespace") or "default")


def read_pod() -> Settings:
    """Read the service account of the pod that this process runs in.

    Raises:
        ConfigError: its files aren't there or are empty.
    """
    found = Configuration()
    try:
        _load_incluster_config(found)
        return _settings(found, "the pod's service account", _TOKEN_FRESH)
    except _LOADER_ERRORS as error:
        raise ConfigError(
            f"the pod's service account can't be used: {error}; see automountServiceAccountToken of the pod"
        ) from error


def _merged(paths: str) -> Any:
    files = [path for path in paths.split(os.pathsep) if path]
    # As for kubectl, a file of several may be missing.
    present = [path for path in files if Path(path).expanduser().exists()]
    if not present:
        raise ConfigError(f"kubeconfig {paths} doesn't exist; name another with --kubeconfig or KUBECONFIG")
    merger: Any = None
    for path in present:
        try:
            if merger is None:
                merger = _Merger(path)
            else:
                merger.load_config(str(Path(path).expanduser()))
        except yaml.YAMLError as error:
            raise ConfigError(bounded(f"kubeconfig {path} isn't YAML: {error}")) from error
        except OSError as error:
            raise ConfigError(f"kubeconfig {path} can't be read: {error.strerror}") from error
        except (TypeError, AttributeError, KeyError, ValueError) as error:
            raise ConfigError(f"{path} isn't a kubeconfig: it must hold clusters, contexts and users") from error
    return merger.config


def _chosen(config: Any, paths: str, context: str | None) -> str:
    known = [str(each["name"]) for each in config.value["contexts"]]
    chosen = context or config.value.get("current-context") or ""
    if chosen in known:
        return str(chosen)
    choice = f"it has {', '.join(known)}" if known else "it has none at all"
    if not chosen:
        raise ConfigError(bounded(f"kubeconfig {paths} has no current-context; choose one with --context: {choice}"))
    raise ConfigError(bounded(f"kubeconfig {paths} has no context {chosen!r}; {choice}"))


def _parts(config: Any, paths: str, chosen: str) -> tuple[dict[str, Any], dict[str, Any], Path]:
    """Give the cluster's part, the user's part (both may be changed), and the folder that paths start from."""
    found = []
    for section, key in (("clusters", "cluster"), ("users", "user")):
        try:
            name = config["contexts"].get_with_name(chosen)["context"].value.get(key) or ""
            found.append(config[section].get_with_name(name)[key])
        except (ConfigException, TypeError, AttributeError) as error:
            raise ConfigError(
                bounded(f"context {chosen!r} of kubeconfig {paths} needs a {key} that is described under {section}")
            ) from error
    cluster, user = found
    return cluster.value, user.value, Path(user.path).parent


async def _prepare(
    cluster: dict[str, Any], user: dict[str, Any], folder: Path, scratch: Path, paths: str
) -> float | None:
    """Turn what the loader handles badly into what it handles well; gives how long the result is good for."""
    server = cluster.get("server") or ""
    if urlsplit(server).scheme not in {"http", "https"} or not urlsplit(server).hostname:
        raise ConfigError(bounded(f"kubeconfig {paths} names the server {server!r}; it must be an https:// URL"))
    fresh_for = None
    if user.get("tokenFile"):
        # The file is the newer of the two; the loader would take the other.
        user.pop("token", None)
        fresh_for = _TOKEN_FRESH
    if "exec" in user:
        fresh_for = await _run_plugin(cluster, user, folder, paths)
    # The loader would leave these in temporary files until the process ends, and for ever if it is killed.
    for part, key in ((cluster, "certificate-authority"), (user, "client-certificate"), (user, "client-key")):
        data = part.pop(f"{key}-data", None)
        if data:
            part[key] = _kept(scratch / key, _decoded(data, f"{key}-data", paths))
    return fresh_for


def _kept(path: Path, content: bytes) -> str:
    path.write_bytes(content)
    return str(path)


async def _run_plugin(cluster: dict[str, Any], user: dict[str, Any], folder: Path, paths: str) -> float | None:
    try:
        plugin = msgspec.convert(user.pop("exec"), execplugin.Plugin)
    except msgspec.ValidationError as error:
        raise ConfigError(bounded(f"the exec section of a user in kubeconfig {paths} is wrong: {error}")) from error
    credential = await execplugin.run(plugin, cluster, folder)
    if credential.token:
        user["token"] = credential.token
        user.pop("tokenFile", None)
    if credential.client_certificate_data:
        user["client-certificate-data"] = base64.b64encode(credential.client_certificate_data.encode())
        user["client-key-data"] = base64.b64encode(credential.client_key_data.encode())
    return _fresh_for(credential.expiration_timestamp)


def _fresh_for(expires: datetime | None) -> float | None:
    """Give the seconds for which a credential may be used: up to a minute short of its end, or a quarter of its life."""
    if expires is None:
        return None
    left = max(0.0, (expires - SystemClock().now()).total_seconds())
    return left - min(60.0, left / 4)


def _decoded(data: str | bytes, key: str, paths: str) -> bytes:
    try:
        return base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError, TypeError) as error:
        raise ConfigError(f"{key} in kubeconfig {paths} isn't base64: {error}") from error


def _settings(found: Any, source: str, fresh_for: float | None) -> Settings:
    def text(path: str | None) -> str:
        return Path(path).read_text(encoding="utf-8") if path else ""

    server = str(found.host).rstrip("/")
    return Settings(
        source=source,
        server=server,
        authority=text(found.ssl_ca_cert),
        certificate=text(found.cert_file),
        key=text(found.key_file),
        authorization=_authorization(found.api_key.get("BearerToken") or "", source),
        server_name=found.tls_server_name or "",
        proxy=_proxy(found.proxy or "", server, source),
        verify=bool(found.verify_ssl),
        fresh_for=fresh_for,
    )


def _authorization(value: str, source: str) -> str:
    # Files end with a newline, headers must not.
    kind, _, token = value.strip().partition(" ")
    token = token.strip()
    if not token.isprintable() or " " in token:
        raise ConfigError(f"the token of {source} holds characters that no token has; write it again")
    return f"{kind.capitalize()} {token}" if token else ""


def _proxy(configured: str, server: str, source: str) -> str:
    """Give the proxy for ``server``: the kubeconfig's, else the environment's as kubectl reads it."""
    host = urlsplit(server).hostname or ""
    proxy = configured
    if not proxy and not urllib.request.proxy_bypass_environment(host):  # type: ignore[attr-defined]
        proxy = urllib.request.getproxies_environment().get(urlsplit(server).scheme, "")
    if proxy and urlsplit(proxy).scheme not in {"http", "https"}:
        raise ConfigError(f"the proxy {proxy} of {source} isn't supported; only http:// and https:// proxies are")
    return proxy
