"""The arguments of Muster's plugins and actions. Checking what a configuration says is up to `scheduler.configuration.arguments_schema`.

Values apart from their checks, since the default configuration needs none: whoever follows that waits for no pydantic.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec import Meta, Struct


class BuiltinArguments(Struct, frozen=True, kw_only=True):
    """The base of arguments: each a field, whose name in configurations is that of `msgspec.field`, and whose bounds are its `Meta`."""

    @classmethod
    def gathered(cls, given: dict[str, Any]) -> dict[str, Any]:
        """Return what a configuration says by field, where several entries make up one."""
        return given


def read_by(read: Callable[[Any], Any]) -> Meta:
    """Say how to read what is written for a field; a ``ValueError`` says in its words what is wrong with it."""
    return Meta(extra={"read": read})


def checked_by(check: Callable[[Any], Any]) -> Meta:
    """Say what checks a field's value once it is read; the same."""
    return Meta(extra={"check": check})


def without_effect(why: str) -> Meta:
    """Say why a field that is accepted for the format's sake changes nothing."""
    return Meta(extra={"without_effect": why})
