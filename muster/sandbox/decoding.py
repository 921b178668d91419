"""Bodies to objects, as the real server's decoders do: format, kind, types and unknown fields."""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec
import yaml

from muster.model.amounts import Quantity, QuantityError
from muster.sandbox.fields import Shape
from muster.sandbox.registry import Resource
from muster.sandbox.status import StatusError, bad_request, quote, too_large, unsupported_media_type

LIMIT: Final = 3 * 1024 * 1024
"""Bytes of a request's body."""

ACCEPTED: Final = ("application/json", "application/yaml", "application/vnd.kubernetes.protobuf")
_JSON_TYPES: Final = {"", "application/json", "*/*"}
_GO_TYPES: Final = {"integer": "int32", "number": "float64", "boolean": "bool", "time": "string", "bytes": "string"}
_QUANTITY_TEXT: Final = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
_TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)")


class _Loader(yaml.SafeLoader):
    """YAML as Kubernetes reads it: JSON's types only, so a date stays text; no aliases, which could grow without end."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.events.AliasEvent):
            raise yaml.YAMLError("aliases are not supported")
        return super().compose_node(parent, index)


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def json_or_yaml(body: bytes) -> Any:
    """Decode JSON, or YAML where it isn't JSON.

    Raises:
        StatusError: 400 when it is neither.
    """
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError):
        pass
    try:
        return yaml.load(body, _Loader)  # noqa: S506 - a SafeLoader of our own
    except (yaml.YAMLError, UnicodeDecodeError, ValueError, RecursionError) as error:
        raise bad_request(f"error decoding YAML: {_line(error)}") from error


def body_object(body: bytes, content_type: str, resource: Resource, kind: str = "") -> dict[str, Any]:
    """Decode the body of a create or update to an object of the resource's kind (or of ``kind``).

    Raises:
        StatusError: 400, 413 or 415, in the real server's words.
    """
    check_size(body)
    wanted = kind or resource.kind
    media_type = content_type.partition(";")[0].strip().lower()
    if media_type in _JSON_TYPES:
        obj = _json(body, wanted)
    elif media_type == "application/yaml":
        obj = json_or_yaml(body)
    elif media_type == "application/vnd.kubernetes.protobuf" and not resource.custom:
        from muster.sandbox import protobuf

        obj = protobuf.decode(body)
    else:
        raise unsupported_media_type(content_type, ACCEPTED[:2] if resource.custom else ACCEPTED)
    if not isinstance(obj, dict):
        raise _unrecognized(wanted, "json: cannot unmarshal into an object", body)
    return obj


def check_size(body: bytes) -> None:
    """Refuse a body that is over the limit (413)."""
    if len(body) > LIMIT:
        raise too_large(LIMIT)


def check_kind(obj: dict[str, Any], resource: Resource) -> dict[str, Any]:
    """Give the object with apiVersion and kind, which a client may leave out for built-in kinds.

    Raises:
        StatusError: 400 when they aren't the resource's.
    """
    api_version, kind = obj.get("apiVersion") or "", obj.get("kind") or ""
    if api_version == resource.api_version and kind == resource.kind:
        return obj
    if resource.custom:
        raise _wrong_custom_kind(api_version, kind, resource)
    if (api_version or resource.api_version) != resource.api_version or (kind or resource.kind) != resource.kind:
        named, version = kind or resource.kind, api_version or resource.api_version
        raise bad_request(
            f"{named} in version {quote(version)} cannot be handled as a {resource.kind}: "
            f'no kind {quote(named)} is registered for version {quote(version)} in scheme "muster-sandbox"'
        )
    return {"apiVersion": resource.api_version, "kind": resource.kind} | {
        key: value for key, value in obj.items() if key not in {"apiVersion", "kind"}
    }


def _wrong_custom_kind(api_version: Any, kind: Any, resource: Resource) -> StatusError:
    if kind != resource.kind:
        return bad_request(f"the kind in the data ({kind}) does not match the expected kind ({resource.kind})")
    return bad_request(
        f"the API version in the data ({api_version}) does not match the expected API version ({resource.api_version})"
    )


def conform(obj: dict[str, Any], shape: Shape, resource: Resource) -> tuple[dict[str, Any], list[str]]:
    """Give a built-in object without nulls and unknown fields, quantities canonical; and the unknown paths, sorted.

    Every field is then of its type, so what comes after needn't doubt it. Shares what it doesn't change.

    Raises:
        StatusError: 400 when a field has the wrong type.
    """
    unknown: list[str] = []
    try:
        conformed: dict[str, Any] = _conform(obj, shape, "", unknown)
    except _TypeMismatchError as error:
        raise bad_request(f"{_prefix(resource)}: {error}") from error
    return conformed, sorted(unknown)


def strictly_known(unknown: list[str], resource: Resource) -> None:
    """Refuse unknown fields (400)."""
    if unknown:
        fields = ", ".join(f"unknown field {quote(path)}" for path in unknown)
        raise bad_request(f"{_prefix(resource)}: strict decoding error: {fields}")


def _prefix(resource: Resource) -> str:
    return f"{resource.kind} in version {quote(resource.version)} cannot be handled as a {resource.kind}"


class _TypeMismatchError(Exception):
    pass


def _conform(value: Any, shape: Shape, path: str, unknown: list[str]) -> Any:
    type_ = shape.type
    if type_ == "string":
        if type(value) is not str:
            raise _mismatch(value, shape, path)
        return value
    if type_ == "object":
        return _conform_object(value, shape, path, unknown)
    if type_ == "list":
        return _conform_list(value, shape, path, unknown)
    if type_ == "dict":
        return _conform_dict(value, shape, path, unknown)
    if type_ == "quantity":
        return _quantity(value)
    _check_scalar(value, shape, path)
    return value


def _conform_object(value: Any, shape: Shape, path: str, unknown: list[str]) -> dict[str, Any]:
    if type(value) is not dict:
        raise _mismatch(value, shape, path)
    fields = shape.fields
    result = {}
    for key, each in value.items():
        child = fields.get(key)
        if child is None:
            unknown.append(f"{path}.{key}" if path else key)
        elif each is not None:
            result[key] = _conform(each, child, f"{path}.{key}" if path else key, unknown)
    return result


def _conform_list(value: Any, shape: Shape, path: str, unknown: list[str]) -> list[Any]:
    element = shape.element
    if type(value) is not list or element is None:
        raise _mismatch(value, shape, path)
    return [_conform(each, element, f"{path}[{index}]", unknown) for index, each in enumerate(value)]


def _conform_dict(value: Any, shape: Shape, path: str, unknown: list[str]) -> dict[str, Any]:
    element = shape.element
    if type(value) is not dict or element is None:
        raise _mismatch(value, shape, path)
    empty = "" if element.type == "string" else None
    return {
        key: empty if each is None else _conform(each, element, f"{path}.{key}", unknown) for key, each in value.items()
    }


def _check_scalar(value: Any, shape: Shape, path: str) -> None:
    kind = type(value)
    match shape.type:
        case "integer":
            fits = kind is int and -(2**63) <= value < 2**63
        case "number":
            fits = kind in {int, float}
        case "boolean":
            fits = kind is bool
        case "intorstring":
            fits = kind in {int, str}
        case "time":
            fits = kind is str and _TIME.fullmatch(value) is not None
        case "bytes":
            fits = kind is str
        case _:
            fits = True
    if not fits:
        raise _mismatch(value, shape, path)


def _quantity(value: Any) -> str:
    try:
        return str(Quantity.parse(value))
    except QuantityError as error:
        raise _TypeMismatchError(_QUANTITY_TEXT) from error


def _mismatch(value: Any, shape: Shape, path: str) -> _TypeMismatchError:
    given = {str: "string", bool: "bool", int: "number", float: "number", list: "array", dict: "object"}.get(
        type(value)
    )
    if shape.type == "time" and given == "string":
        return _TypeMismatchError(f'parsing time {quote(str(value))} as "2006-01-02T15:04:05Z07:00": cannot parse')
    wanted = {"list": "[]", "dict": "map[string]", "object": "object"}.get(shape.type)
    wanted = wanted or _GO_TYPES.get(shape.type, shape.type)
    return _TypeMismatchError(f"json: cannot unmarshal {given or 'null'} into Go struct field {path} of type {wanted}")


def _json(body: bytes, kind: str) -> Any:
    try:
        return msgspec.json.decode(body)
    except msgspec.DecodeError as error:
        text = "unexpected end of JSON input" if "truncated" in str(error) else _line(error)
        raise _unrecognized(kind, text, body) from error
    except RecursionError as error:
        raise bad_request("error decoding JSON: exceeded max depth") from error


def _unrecognized(kind: str, text: str, body: bytes) -> StatusError:
    start = body[:1024].decode(errors="replace") or "<empty>"
    return bad_request(
        f"the object provided is unrecognized (must be of type {kind}): couldn't get version/kind; "
        f"json parse error: {text} ({start})"
    )


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:300]
