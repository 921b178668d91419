"""Bodies to objects, as the real server's decoders do: format, kind, types and unknown fields."""

from __future__ import annotations

import base64
import binascii
import re
from typing import Any, Final

import msgspec
import yaml
from msgspec.structs import replace

from muster.model.amounts import Quantity, QuantityError
from muster.sandbox.codec.fields import Shape, builtin
from muster.sandbox.core.registry import Resource
from muster.sandbox.core.status import (
    StatusError,
    bad_request,
    invalid,
    quote,
    too_large,
    unsupported_media_type,
    wrong,
)

LIMIT: Final = 3 * 1024 * 1024
"""Bytes of a request's body."""

ACCEPTED: Final = ("application/json", "application/yaml", "application/vnd.kubernetes.protobuf")
_JSON_TYPES: Final = {"", "application/json", "*/*"}
_GO_TYPES: Final = {"integer": "int32", "number": "float64", "boolean": "bool", "time": "string", "bytes": "[]uint8"}
_ZEROS: Final = {"string": "", "quantity": "0"}
"""What Go makes of a null in a map."""
_QUANTITY_TEXT: Final = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
_JSON_NAMES: Final = {str: "string", bool: "bool", int: "number", float: "number", list: "array", dict: "object"}
_TYPE_META: Final = (
    r'struct { APIVersion string "json:\"apiVersion,omitempty\""; Kind string "json:\"kind,omitempty\"" }'
)
_INDEX: Final = re.compile(r"\[\d+\]")
_NOT_BASE64: Final = re.compile(r"[^A-Za-z0-9+/=]")
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


def applied(body: bytes) -> Any:
    """Decode the configuration of a server-side apply.

    Raises:
        StatusError: 400 when it is neither JSON nor YAML.
    """
    looks_like_json = body.lstrip().startswith(b"{")
    return json_or_yaml(
        body, "error decoding patch: error converting YAML to JSON" if looks_like_json else "error encoding patch"
    )


def json_or_yaml(body: bytes, failure: str = "error decoding YAML") -> Any:
    """Decode JSON, or YAML where it isn't JSON; ``failure`` begins what is said of anything else.

    Raises:
        StatusError: 400 when it is neither.
    """
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError):
        pass
    try:
        return _with_text_keys(yaml.load(body, _Loader))  # noqa: S506 - a SafeLoader of our own
    except (yaml.YAMLError, UnicodeDecodeError, ValueError, RecursionError) as error:
        raise bad_request(f"{failure}: {_line(error)}") from error


def _with_text_keys(value: Any) -> Any:
    """Return YAML as JSON has it: ``on: 1`` has the key ``true``."""
    if isinstance(value, dict):
        return {
            key if isinstance(key, str) else msgspec.json.encode(key).decode(): _with_text_keys(each)
            for key, each in value.items()
        }
    return [_with_text_keys(each) for each in value] if isinstance(value, list) else value


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
        obj = _yaml(body, wanted)
    elif media_type == "application/vnd.kubernetes.protobuf" and not resource.custom:
        from muster.sandbox.codec import protobuf

        obj = protobuf.decode(body)
    else:
        raise unsupported_media_type(content_type, ACCEPTED[:2] if resource.custom else ACCEPTED)
    if resource.custom and isinstance(obj, dict) and not obj.get("kind"):
        shown = body[:1024].decode(errors="replace")
        what = f"the object provided is unrecognized (must be of type {wanted})"
        raise bad_request(f"{what}: Object 'Kind' is missing in '{shown}' ({shown})")
    if not isinstance(obj, dict):
        raise _unrecognized(wanted, f"json: cannot unmarshal {json_name(obj)} into Go value of type {_TYPE_META}", body)
    return obj


def delete_options(body: bytes) -> dict[str, Any]:
    """Decode the body of a deletion.

    Raises:
        StatusError: 400 when it isn't that of DeleteOptions.
    """
    try:
        options = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError) as error:
        if body.lstrip()[:1] == b"{" or b":" not in body:
            raise bad_request(f"couldn't get version/kind; json parse error: {error}") from error
        options = json_or_yaml(body)
    if not isinstance(options, dict):
        given = json_name(options)
        raise bad_request(
            f"couldn't get version/kind; json parse error: json: cannot unmarshal {given} into Go value of type {_TYPE_META}"
        )
    version, kind = options.get("apiVersion") or "v1", options.get("kind") or "DeleteOptions"
    if kind != "DeleteOptions":
        what = f"no kind {quote(str(kind))} is registered for version {quote(str(version))}"
        raise bad_request(f'{what} in scheme "pkg/runtime/scheme.go:111"')
    shape = builtin("", "v1", "DeleteOptions")
    assert shape is not None, "DeleteOptions is in fields.json"
    try:
        conformed: dict[str, Any] = _conform(options, shape, "", [])
    except _TypeMismatchError as error:
        raise bad_request(str(error)) from error
    return conformed


def check_size(body: bytes) -> None:
    """Refuse a body that is over the limit (413)."""
    if len(body) > LIMIT:
        raise too_large(LIMIT)


def check_kind(obj: dict[str, Any], resource: Resource) -> dict[str, Any]:
    """Return the object with apiVersion and kind, which a client may leave out for built-in kinds.

    Raises:
        StatusError: 400 when they aren't the resource's.
    """
    api_version, kind = obj.get("apiVersion") or "", obj.get("kind") or ""
    if api_version == resource.api_version and kind == resource.kind:
        return obj
    if resource.custom:
        metadata = obj.get("metadata")
        name = metadata.get("name") if isinstance(metadata, dict) else ""
        raise _wrong_custom_kind(api_version, kind, resource, name or "")
    if (api_version or resource.api_version) != resource.api_version or (kind or resource.kind) != resource.kind:
        named, version = kind or resource.kind, api_version or resource.api_version
        why = f'no kind {quote(named)} is registered for version {quote(version)} in scheme "pkg/runtime/scheme.go:111"'
        group, _, short = version.rpartition("/")
        if builtin(group, short, named) is not None:
            here = resource.group.partition(".")[0] or "core"
            why = f"converting ({short}.{named}) to ({here}.{resource.kind}): unknown conversion"
        raise bad_request(f"{named} in version {quote(version)} cannot be handled as a {resource.kind}: {why}")
    return {"apiVersion": resource.api_version, "kind": resource.kind} | {
        key: value for key, value in obj.items() if key not in {"apiVersion", "kind"}
    }


def _wrong_custom_kind(api_version: Any, kind: Any, resource: Resource, name: str) -> StatusError:
    if kind != resource.kind:
        return invalid(replace(resource, kind=str(kind)), name, [wrong("kind", kind, f"must be {resource.kind}")])
    return bad_request(
        f"the API version in the data ({api_version}) does not match the expected API version ({resource.api_version})"
    )


def conform(obj: dict[str, Any], shape: Shape, resource: Resource) -> tuple[dict[str, Any], list[str]]:
    """Return a built-in object without nulls and unknown fields, quantities canonical; and the unknown paths, sorted.

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


def strictly_known(faults: list[str], resource: Resource) -> None:
    """Refuse fields that are unknown or stand twice (400); ``faults`` says so of each."""
    if faults:
        raise bad_request(f"{_prefix(resource)}: strict decoding error: {', '.join(faults)}")


def faults(repeated: list[str], unknown: list[str]) -> list[str]:
    """Return the words for fields that stand twice, and for those that the kind doesn't have."""
    return [f"duplicate field {quote(path)}" for path in repeated] + [
        f"unknown field {quote(path)}" for path in unknown
    ]


def json_name(value: Any) -> str:
    """Return the name that Go has for the type of a JSON value."""
    return _JSON_NAMES.get(type(value), "null")


def _prefix(resource: Resource) -> str:
    return f"{resource.kind} in version {quote(resource.version)} cannot be handled as a {resource.kind}"


class _TypeMismatchError(Exception):
    """A value of a wrong type. Its text gets the innermost field that it stands in."""

    def __init__(self, start: str, end: str = "") -> None:
        super().__init__(start)
        self._start = start
        self._end = end

    def at(self, parent: Shape, path: str) -> _TypeMismatchError:
        """Name the field, unless one further in is named already."""
        if not self._end:
            return self
        where = ".".join(each for each in (parent.name.rpartition(".")[2], _INDEX.sub("", path)) if each)
        return _TypeMismatchError(f"{self._start}struct field {where} {self._end}")

    def __str__(self) -> str:
        return f"{self._start}value {self._end}" if self._end else self._start


def _conform(value: Any, shape: Shape, path: str, unknown: list[str]) -> Any:
    type_ = shape.type
    if type_ == "string":
        if type(value) is not str:
            raise _mismatch(value, shape)
        return value
    if type_ == "object":
        return _conform_object(value, shape, path, unknown)
    if type_ == "list":
        element = shape.element
        if type(value) is not list or element is None:
            raise _mismatch(value, shape)
        return [_conform(each, element, f"{path}[{index}]", unknown) for index, each in enumerate(value)]
    if type_ == "dict":
        return _conform_dict(value, shape, path, unknown)
    if type_ == "quantity":
        return _quantity(value)
    _check_scalar(value, shape)
    return value


def _conform_object(value: Any, shape: Shape, path: str, unknown: list[str]) -> dict[str, Any]:
    if type(value) is not dict:
        raise _mismatch(value, shape)
    fields = shape.fields
    result = {}
    for key, each in value.items():
        child = fields.get(key)
        if child is not None and child.type == "string" and type(each) is str:
            result[key] = each  # as most are: they need no path
            continue
        below = f"{path}.{key}" if path else key
        if child is None:
            unknown.append(below)
        elif each is not None:
            try:
                conformed = _conform(each, child, below, unknown)
            except _TypeMismatchError as error:
                raise error.at(shape, below) from None
            # Go leaves empty lists and maps out, unless the field is in every object.
            if conformed or child.always or child.element is None:
                result[key] = conformed
    return result


def _conform_dict(value: Any, shape: Shape, path: str, unknown: list[str]) -> dict[str, Any]:
    element = shape.element
    if type(value) is not dict or element is None:
        raise _mismatch(value, shape)
    empty = _ZEROS.get(element.type)
    return {
        key: (empty if each is None else _conform(each, element, f"{path}.{key}", unknown))
        if type(each) is not str or element.type != "string"
        else each
        for key, each in value.items()
    }


def _check_scalar(value: Any, shape: Shape) -> None:
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
            if fits:
                _check_base64(value)
        case _:
            fits = True
    if not fits:
        raise _mismatch(value, shape)


def _check_base64(value: str) -> None:
    try:
        base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError) as error:
        stranger = _NOT_BASE64.search(value)
        at = stranger.start() if stranger else len(value)
        raise _TypeMismatchError(f"illegal base64 data at input byte {at}") from error


def _quantity(value: Any) -> str:
    try:
        return str(Quantity.parse(value))
    except QuantityError as error:
        raise _TypeMismatchError(_QUANTITY_TEXT) from error


def _mismatch(value: Any, shape: Shape) -> _TypeMismatchError:
    given = json_name(value)
    if shape.type == "time" and given == "string":
        return _TypeMismatchError(f'parsing time {quote(quote(value))} as "2006-01-02T15:04:05Z07:00": cannot parse')
    return _TypeMismatchError(f"json: cannot unmarshal {given} into Go ", f"of type {_go_type(shape)}")


def _go_type(shape: Shape) -> str:
    """Return the name that Go has for a shape: ``[]v1.Container``."""
    if shape.element is not None:
        return ("[]" if shape.type == "list" else "map[string]") + _go_type(shape.element)
    return ".".join(shape.name.split(".")[1:]) if shape.name else _GO_TYPES.get(shape.type, shape.type)


def _json(body: bytes, kind: str) -> Any:
    try:
        return msgspec.json.decode(body)
    except msgspec.DecodeError as error:
        raise _unrecognized(kind, str(error), body) from error
    except RecursionError as error:
        raise bad_request("error decoding JSON: exceeded max depth") from error


def _yaml(body: bytes, kind: str) -> Any:
    try:
        return json_or_yaml(body)
    except StatusError as error:
        why = error.message.partition(": ")[2]
        raise bad_request(f"the object provided is unrecognized (must be of type {kind}): yaml: {why}") from error


def _unrecognized(kind: str, text: str, body: bytes) -> StatusError:
    # What can't be an object is shown as the bytes that it is.
    start = body[:1024].decode(errors="replace") if body.lstrip()[:1] == b"{" else body[:1024].hex() or "<empty>"
    return bad_request(
        f"the object provided is unrecognized (must be of type {kind}): couldn't get version/kind; "
        f"json parse error: {text} ({start})"
    )


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:300]
