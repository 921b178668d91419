"""A cluster's state as a file: YAML whose objects take a line of JSON each, so that even a large one is read at once.

    apiVersion: dump.muster.sh/v1
    kind: StateList
    taken: "2026-01-01T12:00:00Z"
    items:
    - {"apiVersion":"v1","kind":"Node","metadata":{"name":"node-1"},…}

It holds the fields that Muster reads and no others: no Secrets, no environment or commands of containers, no
annotations but those that Muster knows.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Final

import msgspec
from msgspec import structs

from muster import __version__
from muster.kube.decoding import decoder
from muster.model import manifests, names
from muster.model.kinds import Kind
from muster.model.manifests import ManifestError
from muster.model.objects import ConfigMap, Job, Meta, Object, Pod, PodSpec, PodTemplate, Workload
from muster.model.rules import SOURCES
from muster.whatif.cluster_view import KINDS, ClusterObjects

KIND: Final = "StateList"
GROUP: Final = "dump.muster.sh"
VERSION: Final = "v1"
_ANEW: Final = "write a new dump with `muster dump > FILE`"
_BY_TYPE: Final[Mapping[Any, Kind[Any]]] = {(kind.api_version, kind.name): kind for kind in KINDS}
_KNOWN_DOMAINS: Final = (
    *("muster.sh", "volcano.sh", "scheduling.k8s.io", "pv.kubernetes.io", "volume.kubernetes.io"),
    "resource.kubernetes.io",
)
_KNOWN: Final = frozenset({"sla-waiting-time", "volume.beta.kubernetes.io/storage-class"})
_CLAIMING: Final = frozenset({"name", "persistentVolumeClaim", "ephemeral"})


_BEGIN: Final = re.compile(r'\{"apiVersion":"([^"\\]+)","kind":"([^"\\]+)",')
"""What a line of JSON begins with, as it was written."""


class _Name(msgspec.Struct, frozen=True):
    name: str = ""


class _Head(msgspec.Struct, frozen=True, rename="camel"):
    api_version: str = ""
    kind: str = ""
    metadata: _Name = _Name()


# ── writing ──────────────────────────────────────────────────────────────────────────────────────────────────────


def lines(state: ClusterObjects) -> Iterator[str]:
    """Write a state, line by line."""
    yield f"# The state of a cluster as Muster sees it, written by `muster dump` {__version__}."
    yield "# `muster admit`, `podgroup why` and `simulate` read it; it holds no Secrets and no environment of containers."
    yield f"apiVersion: {GROUP}/{VERSION}"
    yield f"kind: {KIND}"
    yield f'taken: "{state.taken.isoformat()}"'
    if state.autoscaler:
        yield f"autoscaler: {state.autoscaler}"
    if state.closed_nodes:
        yield f"closedNodes: {msgspec.json.encode(sorted(state.closed_nodes)).decode()}"
    yield "items:" if any(state.objects.values()) else "items: []"
    for kind, items in state.objects.items():
        for item in sorted(items, key=lambda each: (each.namespace, each.name)):
            kept = _lean(item)
            if kept is not None:
                whole = structs.replace(kept, api_version=kind.api_version, kind=kind.name)
                yield f"- {msgspec.json.encode(whole).decode()}"


def _lean(item: Object) -> Object | None:
    """Leave out what nobody needs; None where all of it is."""
    if isinstance(item, ConfigMap) and item.name not in {*SOURCES, names.SCHEDULER_CONFIGMAP[0]}:
        return None
    meta = _lean_meta(item.metadata)
    if isinstance(item, Pod):
        return structs.replace(
            item, metadata=meta, spec=_lean_spec(item.spec), status=structs.replace(item.status, message="")
        )
    if isinstance(item, Job | Workload):
        template = PodTemplate(
            metadata=_lean_meta(item.spec.template.metadata), spec=_lean_spec(item.spec.template.spec)
        )
        spec: Any = structs.replace(item.spec, template=template)
        return structs.replace(item, metadata=meta, spec=spec)
    return structs.replace(item, metadata=meta)


def _lean_meta(meta: Meta) -> Meta:
    kept = {key: value for key, value in (meta.annotations or {}).items() if _known(key)}
    return structs.replace(meta, annotations=kept or None)


def _known(annotation: str) -> bool:
    domain, slash, _ = annotation.partition("/")
    if annotation in _KNOWN:
        return True
    return bool(slash) and any(domain == each or domain.endswith(f".{each}") for each in _KNOWN_DOMAINS)


def _lean_spec(spec: PodSpec) -> PodSpec:
    # What else a volume is made of names Secrets; that there is one of its type may matter.
    volumes = tuple(
        {key: value if key in _CLAIMING else {} for key, value in each.items()} for each in spec.volumes or ()
    )
    return structs.replace(spec, volumes=volumes or None)


# ── reading ──────────────────────────────────────────────────────────────────────────────────────────────────────


def is_dump(document: Any) -> bool:
    """Whether a document is a dump, of whichever version."""
    return isinstance(document, dict) and document.get("kind") == KIND


def check(document: Any, name: str) -> None:
    """Make sure that a document is a dump of the version that we read.

    Raises:
        ManifestError: it is something else, or of another version.
    """
    group, _, version = str(document.get("apiVersion")).partition("/") if is_dump(document) else ("", "", "")
    if group != GROUP:
        raise ManifestError(f"{name} is not a dump of a cluster: write one with `muster dump > FILE`")
    if version != VERSION:
        raise ManifestError(
            f"{name} is a dump of version {version or '(none)'}, and muster {__version__} reads {VERSION}: {_ANEW}, or"
            " read it with the muster that wrote it"
        )


def parse(text: str, name: str) -> ClusterObjects:
    """Return the state that a dump holds; ``name`` is what messages call it.

    Raises:
        ManifestError: it isn't a dump, or is one of another version.
    """
    head, _, rest = text.partition("\nitems:\n")
    # By line feeds alone: JSON leaves other characters that end a line as they are.
    lines = [line for line in rest.split("\n") if line]
    # A line of JSON for each, as it was written; what somebody edited may be any YAML.
    written = all(line.startswith("- {") for line in lines)
    documents = [each for each in manifests.documents(head if written else text, name) if each is not None]
    document = documents[0] if len(documents) == 1 else None
    check(document, name)
    assert isinstance(document, dict), "checked just now"
    items = (line[2:] for line in lines) if written else map(msgspec.json.encode, document["items"] or ())
    found: dict[str, list[Any]] = {str(kind): [] for kind in KINDS}
    for item in items:
        _take(item, found, name)
    objects = {kind: tuple(found[str(kind)]) for kind in KINDS}
    closed = frozenset(map(str, document.get("closedNodes") or ()))
    autoscaler = str(document.get("autoscaler") or "")
    return ClusterObjects(_taken(document, name), objects, autoscaler=autoscaler, closed_nodes=closed)


def _take(item: str | bytes, found: dict[str, list[Any]], name: str) -> None:
    try:
        begun = _BEGIN.match(item) if isinstance(item, str) else None
        about = _Head(begun[1], begun[2]) if begun is not None else decoder(_Head).decode(item)
        kind = _BY_TYPE.get((about.api_version, about.kind))
        if kind is not None:
            struct: Any = kind.struct
            found[str(kind)].append(decoder(struct).decode(item))
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ManifestError(f"{name}, {_called(item)}: {error}; {_ANEW}") from error


def _called(item: str | bytes) -> str:
    try:
        about = decoder(_Head).decode(item)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return "an object"
    return f"{about.kind} {about.metadata.name}".strip() or "an object"


def _taken(document: dict[str, Any], name: str) -> datetime:
    said = document.get("taken")
    try:
        moment = said if isinstance(said, datetime) else datetime.fromisoformat(str(said))
    except ValueError as error:
        raise ManifestError(f"{name}: taken says {said!r}, which is not a time; {_ANEW}") from error
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
