"""The forms of a response: objects, tables or metadata only; and the response that carries it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import msgspec

from muster.kube.transport import JSON, Request, Response
from muster.sandbox.core.registry import Resource
from muster.sandbox.core.status import (
    NoSuchPageError,
    StatusError,
    bad_request,
    not_acceptable,
    nothing_readable,
    wrong,
)
from muster.sandbox.core.versions import in_version
from muster.sandbox.printers import tables

Json = dict[str, Any]

HEADERS: Final[Mapping[str, str]] = {"content-type": JSON}
_WRITABLE: Final = ("application/json", "application/yaml", "application/vnd.kubernetes.protobuf")
_STREAMS: Final = ("application/json;stream=watch", "application/vnd.kubernetes.protobuf;stream=watch")
_JSON_RANGES: Final = {"", "application/json", "application/*", "*/*"}
_INCLUDES: Final = ("", "Metadata", "Object", "None")
_TYPE: Final = frozenset({"kind", "apiVersion"})
_PARTIAL: Final = ("PartialObjectMetadata", "PartialObjectMetadataList")
_WARNINGS_LIMIT: Final = 4096
_WARNING_LIMIT: Final = 256

OBJECT: Final = ""
TABLE: Final = "Table"
PARTIAL: Final = "PartialObjectMetadata"


def form_of(accept: str) -> str:
    """Return the form that the Accept header prefers: `OBJECT`, `TABLE` or `PARTIAL`.

    Raises:
        StatusError: 406 when it takes nothing that the server writes.
    """
    if accept == JSON:
        return OBJECT
    readable = False
    for each in accept.split(","):
        media, *parameters = (part.strip() for part in each.split(";"))
        if media not in _JSON_RANGES:
            continue
        readable = True
        given = dict(part.partition("=")[::2] for part in parameters)
        kind = given.get("as", "")
        if not kind or not media:
            return OBJECT
        if given.get("g") == "meta.k8s.io" and given.get("v") == "v1":
            if kind == TABLE:
                return TABLE
            if kind in _PARTIAL:
                return PARTIAL
    raise not_acceptable(_WRITABLE) if readable else nothing_readable((*_WRITABLE, *_STREAMS))


def shown(resource: Resource, form: str, objects: Iterable[Json]) -> list[Json]:
    """Return objects in the resource's version and, for `PARTIAL`, without anything but metadata."""
    if form == PARTIAL:
        return [tables.partial(obj) for obj in objects]
    return [in_version(resource, obj) for obj in objects]


def listing(resource: Resource, objects: Sequence[Json], list_meta: Json, request: Request, now: datetime) -> Json:
    """Return a list in the form that the request asks for."""
    form = form_of(request.accept)
    items = shown(resource, OBJECT if form == TABLE else form, objects)
    if form == TABLE:
        _check_include(request)
        return tables.table(resource, items, list_meta, request.query.get("includeObject", ""), now)
    if form == PARTIAL:
        kind, version = "PartialObjectMetadataList", "meta.k8s.io/v1"
    else:
        kind, version = resource.listing, resource.api_version
        if resource.custom:
            list_meta = {"continue": "", **list_meta}  # what has no Go type has no way to leave it out
        if not resource.custom:
            # Of Go's typed lists the items don't say what they are.
            items = [{key: obj[key] for key in obj if key not in _TYPE} for obj in items]
    return {"kind": kind, "apiVersion": version, "metadata": list_meta, "items": items}


def single(resource: Resource, obj: Json, request: Request, now: datetime) -> Json:
    """Return one object in the form that the request asks for."""
    form = form_of(request.accept)
    if form == TABLE:
        _check_include(request)
        meta = {"resourceVersion": obj["metadata"].get("resourceVersion", "")}
        include = request.query.get("includeObject", "")
        return tables.table(resource, [in_version(resource, obj)], meta, include, now)
    return shown(resource, form, [obj])[0]


def _check_include(request: Request) -> None:
    include = request.query.get("includeObject", "")
    if include not in _INCLUDES:
        cause = wrong("includeObject", include, "must be 'Metadata', 'Object', 'None', or empty")
        raise bad_request(f"Unable to convert to Table as requested: {cause}")


def respond(status: int, body: Any, warnings: Sequence[str] = ()) -> Response:
    """Return a response with JSON, and the warnings in its header."""
    headers = {**HEADERS, "warning": warning_header(warnings)} if warnings else HEADERS
    return Response(status, msgspec.json.encode(body), headers)


def refuse(error: StatusError, warnings: Sequence[str] = ()) -> Response:
    """Return the response that carries a Status."""
    if isinstance(error, NoSuchPageError):
        return Response(error.code, f"{error.message}\n".encode(), {"content-type": "text/plain; charset=utf-8"})
    response = respond(error.code, error.json(), warnings)
    if not error.headers:
        return response
    added = {name.lower(): value for name, value in error.headers.items()}
    return Response(response.status, response.body, {**response.headers, **added})


def warning_header(warnings: Sequence[str]) -> str:
    """Return the Warning header: each text once and on one line, all of it within 4,096 characters."""
    texts = [text for text in dict.fromkeys(warnings) if text and "\n" not in text and "\r" not in text]
    if sum(len(text) for text in texts) > _WARNINGS_LIMIT:
        texts = [text[:_WARNING_LIMIT] for text in texts][: _WARNINGS_LIMIT // _WARNING_LIMIT - 1]
    return ", ".join('299 - "{}"'.format(text.replace("\\", "\\\\").replace('"', '\\"')) for text in texts)
