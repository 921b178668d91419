"""A write as the server carries it out, whether a client asked for it or a controller of the sandbox."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from muster.sandbox.core.paths import Target
from muster.sandbox.core.registry import Resource
from muster.sandbox.core.status import Cause, bad_options, bad_request, not_one_of, shown, wrong
from muster.sandbox.core.users import User

Json = dict[str, Any]

_VALIDATIONS: Final = ("", "Ignore", "Strict", "Warn")
_PROPAGATIONS: Final = ("Foreground", "Background", "Orphan")
_MANAGER_LIMIT: Final = 128


class RequestInfo(msgspec.Struct, frozen=True):
    """One write, as it is carried out and admitted.

    Attributes:
        target: the resource, subresource, namespace and name that it is for.
        user: who writes.
        manager: field manager; whoever changes a field owns it.
        strictness: what unknown fields of the body are: ``Strict`` an error, ``Warn`` a warning, ``Ignore`` nothing.
        repeated: paths of the body's fields that stand there twice.
        applies: whether it is a server-side apply, which settles by itself who owns what.
        options: CreateOptions, UpdateOptions, PatchOptions or DeleteOptions, as admission is told.
        warnings: what the user shall read; grows.
    """

    target: Target
    user: User
    manager: str = ""
    strictness: str = "Ignore"
    repeated: list[str] = msgspec.field(default_factory=list)
    dry_run: bool = False
    applies: bool = False
    options: Json = msgspec.field(default_factory=dict)
    warnings: list[str] = msgspec.field(default_factory=list)

    @property
    def resource(self) -> Resource:
        """What is written."""
        return self.target.resource


def check_name(metadata: Json, name: str) -> None:
    """Refuse an object that isn't called what its path says (400)."""
    given = metadata.get("name", "")
    if not given:
        raise bad_request(f"the name of the object ({name} based on URL) was undeterminable: name must be provided")
    if given != name:
        raise bad_request(f"the name of the object ({given}) does not match the name on the URL ({name})")


def options_of(kind: str, query: Mapping[str, str]) -> Json:
    """Read the query of a write as its options.

    Raises:
        StatusError: 422 when one of them has no such value.
    """
    options: Json = {"kind": kind, "apiVersion": "meta.k8s.io/v1"}
    causes: list[Cause] = []
    if dry_run := query.get("dryRun", ""):
        options["dryRun"] = [dry_run]
        causes += _dry_run_causes([dry_run])
    if manager := query.get("fieldManager", ""):
        options["fieldManager"] = manager
        if len(manager) > _MANAGER_LIMIT:
            causes.append(
                Cause("FieldValueTooLong", "fieldManager", f"Too long: may not be more than {_MANAGER_LIMIT} bytes")
            )
    if validation := query.get("fieldValidation", ""):
        options["fieldValidation"] = validation
        if validation not in _VALIDATIONS:
            causes.append(not_one_of("fieldValidation", validation, _VALIDATIONS))
    if causes:
        raise bad_options(kind, causes)
    return options


def delete_options(query: Mapping[str, str], body: Json) -> Json:
    """Read the options of a deletion: of the body, and of the query where there is no body.

    Raises:
        StatusError: 422 when one of them has no such value.
    """
    options = dict(body)
    for name in ("gracePeriodSeconds", "propagationPolicy", "orphanDependents", "dryRun"):
        if name in query and name not in options:
            options[name] = _from_query(name, query[name])
    causes = _dry_run_causes(options.get("dryRun") or [])
    policy = options.get("propagationPolicy")
    if policy is not None and policy not in _PROPAGATIONS:
        causes.append(not_one_of("propagationPolicy", policy, (*_PROPAGATIONS, "nil")))
    if policy is not None and options.get("orphanDependents") is not None:
        text = "orphanDependents and deletionPropagation cannot be both set"
        causes.append(wrong("propagationPolicy", policy, text))
    if causes:
        raise bad_options("DeleteOptions", causes)
    return options | {"kind": "DeleteOptions", "apiVersion": "meta.k8s.io/v1"}


def _from_query(name: str, text: str) -> Any:
    if name == "dryRun":
        return [text]
    if name == "orphanDependents":
        return text.lower() in {"true", "1"}
    if name == "gracePeriodSeconds" and text.removeprefix("-").isdigit():
        return int(text)
    return text


def _dry_run_causes(values: list[Any]) -> list[Cause]:
    if not values or values == ["All"]:
        return []
    text = f'Unsupported value: {shown(values)}: supported values: "All"'
    return [Cause("FieldValueNotSupported", "dryRun", text)]
