"""Checks what a configuration gives to a plugin or an action, with pydantic: all mistakes at once, each with its field."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any, get_args

import msgspec
from msgspec import NODEFAULT, Meta
from msgspec.structs import FieldInfo
from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, create_model

from scheduler.engine.arguments import BuiltinArguments
from scheduler.engine.plugin_arguments import Arguments, ArgumentsType

_BOUNDS = ("gt", "ge", "lt", "le")


def checked(type_: ArgumentsType, given: Mapping[str, Any]) -> BuiltinArguments | Arguments:
    """Check arguments and give them.

    Raises:
        pydantic.ValidationError: with every mistake.
    """
    if not issubclass(type_, BuiltinArguments):
        return type_.model_validate(given)
    model = _model(type_).model_validate(type_.gathered(dict(given)))
    return type_(**{name: getattr(model, name) for name in type_.__struct_fields__})


def names(type_: ArgumentsType) -> list[str]:
    """Return the names of arguments, as configurations have them."""
    if issubclass(type_, BuiltinArguments):
        return list(type_.__struct_encode_fields__)
    return [field.alias or name for name, field in type_.model_fields.items()]


@cache
def without_effect(type_: ArgumentsType) -> Mapping[str, str]:
    """Return the arguments that are accepted for the format's sake, by name, and why they change nothing."""
    if not issubclass(type_, BuiltinArguments):
        return {}
    found = {each.encode_name: _extra(each).get("without_effect") for each in msgspec.structs.fields(type_)}
    return {name: why for name, why in found.items() if why is not None}


def _extra(info: FieldInfo) -> dict[str, Any]:
    """Return what the `Meta` of a field's type say of it."""
    notes = get_args(info.type)[1:] if hasattr(info.type, "__metadata__") else ()
    return {key: value for meta in notes if isinstance(meta, Meta) for key, value in (meta.extra or {}).items()}


@cache
def _model(type_: type[BuiltinArguments]) -> type[BaseModel]:
    fields: dict[str, Any] = {each.name: _field(each) for each in msgspec.structs.fields(type_)}
    return create_model(type_.__name__, __base__=Arguments, **fields)


def _field(info: FieldInfo) -> tuple[Any, Any]:
    """Return what pydantic is told of a field."""
    kind, *notes = get_args(info.type) if hasattr(info.type, "__metadata__") else (info.type,)
    bounds: dict[str, Any] = {}
    for meta in notes:
        assert isinstance(meta, Meta), f"{info.name} is bounded by Meta"
        bounds |= {bound: limit for bound in _BOUNDS if (limit := getattr(meta, bound)) is not None}
        extra = meta.extra or {}
        if "read" in extra:
            kind = Annotated[kind, BeforeValidator(extra["read"])]
        if "check" in extra:
            kind = Annotated[kind, AfterValidator(extra["check"])]
    if info.default is not NODEFAULT:
        bounds["default"] = info.default
    else:
        bounds["default_factory"] = info.default_factory
    return kind, Field(alias=info.encode_name, **bounds)
