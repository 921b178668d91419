"""The Secret of the paths, and where the webhook configurations have them. Pure.

``muster-webhook-path`` is what replicas mount: its key ``segments`` has those that they take, one a line. The rest is for who
replaces them. The path of each webhook is ours, and nothing else of it: it is written by server-side apply under a field
manager of its own, so whoever applies the rest leaves it alone as long as they don't set it.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final
from urllib.parse import urlsplit, urlunsplit

from msgspec import Struct

from certs.paths import PathPhase, Segments
from certs.targets import WebhookService
from muster.model.kinds import Kind
from muster.model.names import NO_SEGMENT, SEGMENTS_FILE
from muster.model.objects import Json, Secret, WebhookConfiguration
from muster.model.webhooks import PATHS

PATH: Final = "muster-webhook-path"
MANAGER: Final = "muster-paths"

_SEGMENT: Final = re.compile(rf"((?:{'|'.join(sorted(set(PATHS.values())))})/)[\w-]+")
_PREFIX: Final = "muster.sh/path-"
_PHASE: Final = _PREFIX + "phase"
_SINCE: Final = _PREFIX + "since"
_ENTERED: Final = _PREFIX + "entered"


class StoredPathError(Exception):
    """The Secret of the paths doesn't make sense. The text says what, and the remedy; never a segment."""


class PathEntry(Struct, frozen=True):
    """How a webhook is called: where (a Service, or a URL), whom the API server trusts there (PEM), and by which path.

    Attributes:
        hook: the path without its segment.
        segment: what follows it; None where the webhook has no path.
    """

    name: str
    hook: str
    segment: str | None
    service: WebhookService | None
    url: str
    trusted: bytes

    @property
    def host(self) -> str:
        """The name that the API server asks for."""
        if self.service is not None:
            return f"{self.service.name}.{self.service.namespace}.svc"
        return urlsplit(self.url).hostname or ""

    def client_config(self, segment: str) -> dict[str, Json]:
        """Write where it is called with a segment, and nothing else."""
        path = path_of(self.hook, segment)
        if self.service is not None:
            return {"service": {"path": path}}
        return {"url": urlunsplit(urlsplit(self.url)._replace(path=path))}


class PathTarget(Struct, frozen=True):
    """A webhook configuration, at a version."""

    kind: Kind[Any]
    name: str
    version: str
    entries: tuple[PathEntry, ...]

    def manifest(self, segment: str) -> dict[str, Any]:
        """Write the path of every webhook, for server-side apply; refused where the object is at another version."""
        entries = [{"name": each.name, "clientConfig": each.client_config(segment)} for each in self.entries]
        return {"metadata": {"name": self.name, "resourceVersion": self.version}, "webhooks": entries}

    def without(self, names: frozenset[str]) -> dict[str, Any]:
        """Write what is ours but for webhooks that go: one that we own part of can't be dropped."""
        kept = [each for each in self.entries if each.name not in names and each.segment is not None]
        entries = [{"name": each.name, "clientConfig": each.client_config(each.segment or "")} for each in kept]
        return {"metadata": {"name": self.name, "resourceVersion": self.version}, "webhooks": entries}


def path_of(hook: str, segment: str) -> str:
    """Write a path with its segment."""
    return hook if segment == NO_SEGMENT else f"{hook}/{segment}"


def redacted(text: str) -> str:
    """Return a text of the API server's without the segments of paths in it."""
    return _SEGMENT.sub(r"\1…", text)


def of_configuration(kind: Kind[Any], found: WebhookConfiguration) -> PathTarget:
    """Read the webhooks of ours in a configuration."""
    read = (_entry(each) for each in found.webhooks or ())
    return PathTarget(
        kind, found.name, found.metadata.resource_version, tuple(each for each in read if each is not None)
    )


def _entry(webhook: Mapping[str, Json]) -> PathEntry | None:
    name, config = webhook.get("name", ""), webhook.get("clientConfig") or {}
    hook = PATHS.get(name)
    if hook is None:
        return None
    try:
        trusted = base64.b64decode(config.get("caBundle") or "", validate=True)
    except binascii.Error:
        trusted = b""
    service, url = config.get("service"), config.get("url") or ""
    called = WebhookService(service.get("namespace", ""), service.get("name", "")) if service else None
    path = (service.get("path") or "") if service else urlsplit(url).path
    return PathEntry(name, hook, _segment(hook, path), called, url, trusted)


def _segment(hook: str, path: str) -> str | None:
    if path == hook:
        return NO_SEGMENT
    return path.removeprefix(f"{hook}/") if path.startswith(f"{hook}/") else None


def read(secret: Secret) -> Segments | None:
    """Read the Secret; None of an empty one, which is for the leader to fill.

    Raises:
        StoredPathError: something in it is missing or wrong.
    """
    if not secret.data:
        return None
    annotations = secret.metadata.annotations or {}
    try:
        data = {key: base64.b64decode(value, validate=True).decode("ascii") for key, value in secret.data.items()}
        found = Segments(
            PathPhase(annotations[_PHASE]),
            data["current"],
            datetime.fromisoformat(annotations[_SINCE]),
            datetime.fromisoformat(annotations[_ENTERED]),
            data.get("other", ""),
        )
        found.since.utctimetuple(), found.entered - found.since
    except (KeyError, ValueError, TypeError) as error:
        raise StoredPathError(_damaged(type(error).__name__)) from None
    if not found.current or bool(found.other) is (found.phase is PathPhase.STEADY):
        raise StoredPathError(_damaged(f"phase {found.phase.value}"))
    return found


def _damaged(why: str) -> str:
    return f"Secret {PATH} is damaged ({why}): empty its data, and it is filled with what the webhooks are called with"


def file(segments: Segments) -> bytes:
    """Write what a replica follows: the segments that are accepted, one a line."""
    return "".join(f"{each}\n" for each in segments.accepted).encode()


def manifest(segments: Segments, version: str) -> dict[str, Any]:
    """Write the Secret, as a merge patch on the version that it was read at."""
    data = {SEGMENTS_FILE: file(segments), "current": segments.current.encode()}
    encoded: dict[str, Any] = {key: base64.b64encode(value).decode() for key, value in data.items()}
    encoded["other"] = base64.b64encode(segments.other.encode()).decode() if segments.other else None
    annotations = {
        _PHASE: segments.phase.value,
        _SINCE: segments.since.isoformat(),
        _ENTERED: segments.entered.isoformat(),
    }
    return {"metadata": {"resourceVersion": version, "annotations": annotations}, "data": encoded}


def new_manifest(segments: Segments) -> dict[str, Any]:
    """Write the Secret where there is none."""
    made = manifest(segments, "")
    data = {key: value for key, value in made["data"].items() if value is not None}
    annotations = made["metadata"]["annotations"]
    return {"metadata": {"name": PATH, "annotations": annotations}, "type": "Opaque", "data": data}
