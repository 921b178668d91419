"""OpenAPI schemas of the built-in kinds, read off the models of the Kubernetes client package.

The models know every field's name, type and description, so that `kubectl explain pod.spec` answers and unknown fields
are found without a copy of Kubernetes' own schemas here. They are imported at the first question: it costs half a second.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any, Final

from muster.sandbox.core.status import unsupported

Json = dict[str, Any]

PREFIX: Final = "#/components/schemas/"
META: Final = "V1ObjectMeta"

_SCALARS: Final[dict[str, Json]] = {
    "str": {"type": "string"},
    "int": {"type": "integer"},
    "float": {"type": "number"},
    "bool": {"type": "boolean"},
    "bytes": {"type": "string", "format": "byte"},
    "date": {"type": "string", "format": "date-time"},
    "datetime": {"type": "string", "format": "date-time"},
    "object": {"x-kubernetes-preserve-unknown-fields": True},
}
_LIST: Final = re.compile(r"[Ll]ist\[(.+)\]")
_MAP: Final = re.compile(r"[Dd]ict[\[(]str, (.+)[\])]")
_MODEL: Final = re.compile(r"(?P<version>(?:[A-Z][A-Za-z]*?)??V\d+(?:(?:alpha|beta)\d+)?)(?P<kind>[A-Z]\w*)")
# Kinds of several groups: their models have the group in front.
_GROUPED: Final = {"": "Core", "events.k8s.io": "Events"}


def model_name(group: str, version: str, kind: str) -> str | None:
    """Return the name of the model of a kind, or None where the client package has none."""
    plain = version.capitalize() + kind
    names = (plain, _GROUPED.get(group, group.split(".", maxsplit=1)[0].capitalize()) + plain)
    return next((name for name in names if _model(name) is not None), None)


def component_name(model: str) -> str:
    """Return the name under which a model's schema stands in a document: ``v1.PodSpec`` for ``V1PodSpec``.

    kubectl prints what follows the last dot as the type of a field.
    """
    match = _MODEL.fullmatch(model)
    return f"{match['version'].lower()}.{match['kind']}" if match else model


def reference(model: str) -> Json:
    """Return the schema of a field that holds such an object."""
    return {"allOf": [{"$ref": PREFIX + component_name(model)}], "description": _described(_model(model))}


def components(models: set[str]) -> dict[str, Json]:
    """Return the schemas of ``models`` and of all that they refer to, by component name."""
    found: dict[str, Json] = {}
    todo = sorted(models)
    while todo:
        model = todo.pop()
        name = component_name(model)
        if name not in found:
            found[name] = schema(model)
            todo += _parts(model)
    return found


@cache
def schema(model: str) -> Json:
    """Return the schema of one model; fields of other kinds refer to theirs. Not to be changed: it is shared."""
    source = _model(model)
    fields = {field.serialization_alias or name: field for name, field in source.model_fields.items()}
    properties = {
        name: _described_shape(_shape(source.openapi_types[attribute]), fields[name].description)
        for attribute, name in source.attribute_map.items()
    }
    required = sorted(name for name, field in fields.items() if field.is_required())
    answer = {"type": "object", "description": _described(source), "properties": properties}
    return answer | ({"required": required} if required else {})


def _described_shape(shape: Json, text: str | None) -> Json:
    return {**shape, "description": text} if text else shape


def _shape(kind: str) -> Json:
    if kind in _SCALARS:
        return _SCALARS[kind]
    if match := _LIST.fullmatch(kind):
        return {"type": "array", "items": _shape(match[1])}
    if match := _MAP.fullmatch(kind):
        return {"type": "object", "additionalProperties": _shape(match[1])}
    return reference(kind)


def _parts(model: str) -> list[str]:
    """Return the models that the fields of a model refer to."""
    named = (part for kind in _model(model).openapi_types.values() for part in re.findall(r"\w+", kind))
    return [part for part in named if _MODEL.fullmatch(part)]


def _described(source: Any) -> str:
    text, _, _ = (source.__doc__ or "").partition("Attributes:")
    return " ".join(text.split())


def _model(name: str) -> Any:
    try:
        from kubernetes import client
    except ModuleNotFoundError as error:
        # The image of the chart's programs is without it.
        raise unsupported("schemas of built-in kinds, where the Python package kubernetes isn't installed") from error
    return getattr(client, name, None)
