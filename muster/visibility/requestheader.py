"""The user of a request as the API server's front proxy states it: by a certificate of the request-header CA, and X-Remote headers.

Source: https://kubernetes.io/docs/tasks/extend-kubernetes/configure-aggregation-layer/.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final
from urllib.parse import unquote

import msgspec
from msgspec import Struct, field

from muster.model.objects import ConfigMap

CONFIGMAP: Final = ("kube-system", "extension-apiserver-authentication")
"""Where an API server publishes what its proxies are known by."""


class Caller(Struct, frozen=True):
    """Who asks."""

    name: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


class HeaderRules(Struct, frozen=True):
    """Whose word counts, and in which headers it is; ``names`` are those of certificates, empty for any."""

    authority: str = ""
    names: frozenset[str] = frozenset()
    users: tuple[str, ...] = ()
    uids: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    extras: tuple[str, ...] = ()

    def caller(self, common_name: str, headers: Iterable[tuple[str, str]]) -> Caller | None:
        """Return who asks; None where the certificate isn't the proxy's, or no header names a user."""
        if self.names and common_name not in self.names:
            return None
        found = [(name.lower(), value) for name, value in headers]

        def values(names: Iterable[str]) -> list[str]:
            return [value for each in names for name, value in found if name == each]

        user = next(filter(None, values(self.users)), "")
        if not user:
            return None
        extra: dict[str, tuple[str, ...]] = {}
        for prefix in self.extras:
            for name, value in found:
                if name.startswith(prefix) and name != prefix:
                    key = unquote(name.removeprefix(prefix))
                    extra[key] = (*extra.get(key, ()), value)
        uid = next(filter(None, values(self.uids)), "")
        return Caller(user, uid, tuple(values(self.groups)), extra)


def read(found: ConfigMap | None) -> HeaderRules:
    """Read what the API server publishes; nobody is believed where it publishes nothing.

    Raises:
        ValueError: a list isn't one.
    """
    data = (found.data or {}) if found is not None else {}
    return HeaderRules(
        data.get("requestheader-client-ca-file", ""),
        frozenset(_list(data, "requestheader-allowed-names")),
        _headers(data, "requestheader-username-headers"),
        _headers(data, "requestheader-uid-headers"),
        _headers(data, "requestheader-group-headers"),
        _headers(data, "requestheader-extra-headers-prefix"),
    )


def _headers(data: Mapping[str, Any], key: str) -> tuple[str, ...]:
    return tuple(each.lower() for each in _list(data, key))


def _list(data: Mapping[str, Any], key: str) -> list[str]:
    try:
        return msgspec.json.decode(data.get(key) or "[]", type=list[str])
    except msgspec.MsgspecError as error:
        raise ValueError(f"{key} of ConfigMap {'/'.join(CONFIGMAP)} is no list of names: {error}") from error
