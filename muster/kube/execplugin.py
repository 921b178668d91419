"""Credential plugins of a kubeconfig: programs that print a token or a certificate.

Written here because the kubernetes package's runner can't be stopped, deadlocks on a plugin that writes much to
stderr, ignores relative paths and certificates' expiry, and only logs what went wrong
(docs/decisions/0033-kubeconfig-and-plugins.md). The protocol is client.authentication.k8s.io/v1.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import msgspec

from muster.kube.errors import ConfigError, bounded

LIMIT: Final = 60.0
"""Seconds for a plugin that can't ask its user anything."""

_VERSIONS: Final = frozenset({"client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1"})


class ExecPlugin(msgspec.Struct, frozen=True, rename="camel"):
    """The ``exec`` part of a kubeconfig's user."""

    command: str
    api_version: str
    args: tuple[str, ...] | None = None
    env: tuple[dict[str, str], ...] | None = None
    install_hint: str | None = None
    interactive_mode: str = "IfAvailable"
    provide_cluster_info: bool = False


class Credential(msgspec.Struct, frozen=True, rename="camel"):
    """What a plugin printed; a token, or a certificate and its key (PEM), or both."""

    token: str = ""
    client_certificate_data: str = ""
    client_key_data: str = ""
    expiration_timestamp: datetime | None = None


class _Printed(msgspec.Struct, frozen=True, rename="camel"):
    kind: str
    api_version: str
    status: Credential


async def run(plugin: ExecPlugin, cluster: Mapping[str, Any], folder: Path) -> Credential:
    """Run a plugin of a kubeconfig in ``folder`` for ``cluster`` (the cluster's part of it).

    Raises:
        ConfigError: it isn't there, failed, took too long, or printed something else.
    """
    if plugin.api_version not in _VERSIONS:
        raise ConfigError(
            f"the credential plugin {plugin.command} asks for apiVersion {plugin.api_version}; served are "
            f"{' and '.join(sorted(_VERSIONS))}"
        )
    interactive = plugin.interactive_mode != "Never" and sys.stdin is not None and sys.stdin.isatty()
    if plugin.interactive_mode == "Always" and not interactive:
        raise ConfigError(f"the credential plugin {plugin.command} needs a terminal, and there is none")
    printed = await _output(
        plugin, _environment(plugin, cluster, interactive=interactive), folder, interactive=interactive
    )
    return _credential(plugin, printed)


async def _output(plugin: ExecPlugin, environment: dict[str, str], folder: Path, *, interactive: bool) -> bytes:
    # A command with a slash is found from the kubeconfig's folder, one without on PATH.
    command = str(folder / plugin.command) if "/" in plugin.command else plugin.command
    try:
        process = await asyncio.create_subprocess_exec(
            command,
            *(plugin.args or ()),
            env=environment,
            stdin=None if interactive else asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=None if interactive else asyncio.subprocess.PIPE,
        )
    except OSError as error:
        hint = f"; {plugin.install_hint}" if plugin.install_hint else "; install it, or correct its path"
        raise ConfigError(bounded(f"the credential plugin {command} can't be run: {error.strerror}{hint}")) from error
    try:
        async with asyncio.timeout(None if interactive else LIMIT):
            out, err = await process.communicate()
    except TimeoutError as error:
        raise ConfigError(f"the credential plugin {command} printed nothing within {LIMIT:g} s") from error
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        said = (err or b"").decode(errors="replace").strip() or "it said nothing"
        raise ConfigError(bounded(f"the credential plugin {command} failed ({process.returncode}): {said}"))
    return out


def _environment(plugin: ExecPlugin, cluster: Mapping[str, Any], *, interactive: bool) -> dict[str, str]:
    spec: dict[str, Any] = {"interactive": interactive}
    if plugin.provide_cluster_info:
        # The names that kubeconfig and the protocol share; what a file holds there, the plugin finds by itself.
        shared = ("server", "tls-server-name", "insecure-skip-tls-verify", "certificate-authority-data", "proxy-url")
        spec["cluster"] = {key: cluster[key] for key in shared if key in cluster}
    info = {"apiVersion": plugin.api_version, "kind": "ExecCredential", "spec": spec}
    extra = {each.get("name", ""): each.get("value", "") for each in plugin.env or ()}
    return {**os.environ, **extra, "KUBERNETES_EXEC_INFO": msgspec.json.encode(info).decode()}


def _credential(plugin: ExecPlugin, printed: bytes) -> Credential:
    try:
        answer = msgspec.json.decode(printed, type=_Printed)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        # The text may hold the token: only where it stops being an ExecCredential is said.
        raise ConfigError(
            bounded(f"the credential plugin {plugin.command} printed no ExecCredential: {error}")
        ) from error
    if answer.api_version != plugin.api_version:
        raise ConfigError(
            f"the credential plugin {plugin.command} answered in {bounded(answer.api_version)}, not {plugin.api_version}"
        )
    status = answer.status
    if not status.token and not (status.client_certificate_data and status.client_key_data):
        raise ConfigError(
            f"the credential plugin {plugin.command} printed neither a token nor a certificate with its key"
        )
    return status
