"""Tokens of users that a kubeconfig describes by an ``auth-provider``, as before there were plugins.

The one module that knows the kubernetes package, which takes a third of a second to import.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from aiohttp import ClientError
from kubernetes.aio.client import Configuration
from kubernetes.aio.config import ConfigException, kube_config

from muster.kube.errors import ConfigError, bounded

_KNOWN: Final = frozenset({"gcp", "oidc"})

# Not annotated in the package.
_Loader: Any = kube_config.KubeConfigLoader

# What the loader raises at what isn't as it expects, and its client where a provider can't be reached.
_ERRORS: Final = (ConfigException, ClientError, OSError, ValueError, TypeError, KeyError, AttributeError)


async def token(provider: Any, folder: Path, source: str) -> str:
    """Return the bearer token of a user, from its provider where the one in the file is too old.

    ``provider`` is the kubeconfig's ``auth-provider``, ``folder`` the one that relative paths start from, ``source`` the file's
    name for messages.

    Raises:
        ConfigError: there is none to be had, or nobody knows how.
    """
    name = provider.get("name") if isinstance(provider, dict) else None
    if name not in _KNOWN:
        raise ConfigError(
            bounded(
                f"the auth-provider {name!r} of a user in kubeconfig {source} isn't supported; "
                "use an exec plugin instead, as kubectl does since 1.26"
            )
        )
    part = {"name": "one"}
    config = {
        "current-context": "one",
        "contexts": [part | {"context": {"cluster": "one", "user": "one"}}],
        "clusters": [part | {"cluster": {}}],
        "users": [part | {"user": {"auth-provider": provider}}],
    }
    try:
        found = Configuration()
        await _Loader(config, config_base_path=str(folder)).load_and_set(found)
        return str(found.api_key["BearerToken"]).partition(" ")[2]
    except _ERRORS as error:
        raise ConfigError(
            bounded(f"the auth-provider {name} of a user in kubeconfig {source} gave no token: {error}")
        ) from error
