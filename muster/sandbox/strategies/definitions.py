"""CustomResourceDefinitions, and the resources that they declare."""

from __future__ import annotations

from typing import Any, Final

from muster.sandbox.core import syntax
from muster.sandbox.core.registry import ALL_VERBS, Column, Resource
from muster.sandbox.core.status import Cause, not_one_of, required, wrong
from muster.sandbox.openapi.discovery import version_order
from muster.sandbox.schema import check_schema
from muster.sandbox.strategies.base import Json, Strategy, carry

CLEANUP: Final = "customresourcecleanup.apiextensions.k8s.io"
_SCOPES: Final = ("Cluster", "Namespaced")
_APPROVAL: Final = "api-approved.kubernetes.io"
_AGE: Final = Column(
    "Age",
    "date",
    description=(
        "CreationTimestamp is a timestamp representing the server time when this object was created. It is not "
        "guaranteed to be set in happens-before order across separate operations. Clients may not set this value. It "
        "is represented in RFC3339 form and is in UTC."
    ),
    json_path=".metadata.creationTimestamp",
)


class DefinitionStrategy(Strategy):
    """apiextensions.k8s.io/v1 CustomResourceDefinition: established as soon as it is stored."""

    has_status = True
    counts_generations = True

    def default(self, obj: Json) -> None:
        """Set the defaults."""
        spec = obj.setdefault("spec", {})
        names = spec.setdefault("names", {})
        kind = names.get("kind", "")
        names.setdefault("singular", kind.lower())
        names.setdefault("listKind", f"{kind}List")
        spec.setdefault("conversion", {"strategy": "None"})

    def prepare_create(self, obj: Json) -> None:
        """Accept the names and establish it, which the real server does a moment later."""
        now, spec = obj["metadata"]["creationTimestamp"], obj["spec"]
        obj["metadata"].setdefault("finalizers", [])
        if CLEANUP not in obj["metadata"]["finalizers"]:
            obj["metadata"]["finalizers"] = [*obj["metadata"]["finalizers"], CLEANUP]
        obj["status"] = {
            "conditions": [
                condition("NamesAccepted", now, "NoConflicts", "no conflicts found"),
                condition("Established", now, "InitialNamesAccepted", "the initial names have been accepted"),
            ],
            "acceptedNames": dict(spec["names"]),
            "storedVersions": [each["name"] for each in spec.get("versions") or () if each.get("storage")],
        }

    def validate(self, obj: Json) -> list[Cause]:
        """Check names, scope, versions and their schemas."""
        spec, name = obj["spec"], obj["metadata"].get("name", "")
        names, group = spec["names"], spec.get("group", "")
        causes: list[Cause] = []
        if not group:
            causes.append(required("spec.group"))
        else:
            causes += [wrong("spec.group", group, text) for text in syntax.subdomain(group)]
            if "." not in group:
                causes.append(wrong("spec.group", group, "should be a domain with at least one dot"))
        causes += [required(f"spec.names.{each}") for each in ("plural", "kind") if not names.get(each)]
        if names.get("plural") and name != f"{names['plural']}.{group}":
            causes.append(wrong("metadata.name", name, 'must be spec.names.plural+"."+spec.group'))
        if spec.get("scope") not in _SCOPES:
            causes.append(not_one_of("spec.scope", spec.get("scope", ""), _SCOPES))
        causes += _version_causes(spec.get("versions") or ())
        if spec["conversion"].get("strategy") != "None":
            text = "the Muster sandbox converts by apiVersion only"
            causes.append(not_one_of("spec.conversion.strategy", spec["conversion"].get("strategy"), ("None",)))
            causes.append(Cause("FieldValueForbidden", "spec.conversion.strategy", f"Forbidden: {text}"))
        return causes + _approval_causes(obj)

    def prepare_update(self, obj: Json, old: Json) -> None:
        """Keep the status; a new storage version is added to the stored ones."""
        super().prepare_update(obj, old)
        status: dict[str, Any] = dict(obj.get("status") or {})
        stored = list(status.get("storedVersions") or ())
        stored += [
            each["name"]
            for each in obj["spec"].get("versions") or ()
            if each.get("storage") and each["name"] not in stored
        ]
        obj["status"] = {**status, "storedVersions": stored, "acceptedNames": dict(obj["spec"]["names"])}

    def validate_update(self, obj: Json, old: Json) -> list[Cause]:
        """Keep group, scope, plural and kind."""
        causes = self.validate(obj)
        spec, was = obj["spec"], old["spec"]
        for path in ("group", "scope"):
            if spec.get(path) != was.get(path):
                causes.append(wrong(f"spec.{path}", spec.get(path), "field is immutable"))
        for path in ("plural", "kind"):
            if spec["names"].get(path) != was["names"].get(path):
                causes.append(wrong(f"spec.names.{path}", spec["names"].get(path), "field is immutable"))
        return causes


def _version_causes(versions: Any) -> list[Cause]:
    causes: list[Cause] = []
    if sum(bool(each.get("storage")) for each in versions) != 1:
        causes.append(wrong("spec.versions", versions, "must have exactly one version marked as storage version"))
    schemas = [(each.get("schema") or {}).get("openAPIV3Schema") for each in versions]
    # What all versions have in common the real server keeps, and checks, once.
    shared = schemas[0] if schemas and all(each == schemas[0] for each in schemas) else None
    for index, version in enumerate(versions):
        path = f"spec.versions[{index}]"
        causes += [
            wrong(f"{path}.name", version.get("name", ""), text) for text in syntax.dns_1035(version.get("name", ""))
        ]
        schema = (version.get("schema") or {}).get("openAPIV3Schema")
        if schema is None:
            causes.append(required(f"{path}.schema.openAPIV3Schema"))
        elif shared is None:
            causes += check_schema(schema, f"{path}.schema.openAPIV3Schema")
    if shared is not None:
        causes += check_schema(shared, "spec.validation.openAPIV3Schema")
    return causes


def _approval_causes(obj: Json) -> list[Cause]:
    group = obj["spec"].get("group", "")
    if not group.endswith((".k8s.io", ".kubernetes.io")) and group not in {"k8s.io", "kubernetes.io"}:
        return []
    value = (obj["metadata"].get("annotations") or {}).get(_APPROVAL, "")
    if value.startswith(("https://", "unapproved")):
        return []
    path = f"metadata.annotations[{_APPROVAL}]"
    if not value:
        return [
            required(
                path,
                'protected groups must have approval annotation "api-approved.kubernetes.io", see https://github.com/kubernetes/enhancements/pull/1111',
            )
        ]
    text = 'protected groups must have approval annotation "api-approved.kubernetes.io" with either a URL or a reason starting with "unapproved", see https://github.com/kubernetes/enhancements/pull/1111'
    return [wrong(path, value, text)]


def condition(type_: str, now: str, reason: str, message: str) -> Json:
    """Return a condition that holds since ``now``."""
    return {"type": type_, "status": "True", "lastTransitionTime": now, "reason": reason, "message": message}


def declared(definition: Json) -> list[Resource]:
    """Return the resources that a CustomResourceDefinition declares, one per version."""
    spec = definition["spec"]
    names = spec["names"]
    return [
        Resource(
            group=spec["group"],
            version=version["name"],
            plural=names["plural"],
            kind=names["kind"],
            singular=names["singular"],
            list_kind=names["listKind"],
            namespaced=spec["scope"] == "Namespaced",
            short_names=tuple(names.get("shortNames") or ()),
            categories=tuple(names.get("categories") or ()),
            subresources=frozenset(version.get("subresources") or ()),
            verbs=ALL_VERBS,
            columns=_columns(version),
            schema=(version.get("schema") or {}).get("openAPIV3Schema"),
            served=bool(version.get("served")),
            storage=bool(version.get("storage")),
            selectable=tuple(each["jsonPath"].removeprefix(".") for each in version.get("selectableFields") or ()),
            crd=definition["metadata"]["name"],
            scale=(version.get("subresources") or {}).get("scale"),
            deprecation=_deprecation(spec, version),
        )
        for version in spec["versions"]
    ]


def _columns(version: Json) -> tuple[Column, ...]:
    columns = version.get("additionalPrinterColumns")
    if not columns:
        return (_AGE,)
    return tuple(
        Column(
            each["name"],
            each["type"],
            each.get("format", ""),
            each.get("description", ""),
            each.get("priority", 0),
            each["jsonPath"],
        )
        for each in columns
    )


def _deprecation(spec: Json, version: Json) -> str:
    if not version.get("deprecated"):
        return ""
    what = f"{spec['group']}/{version['name']} {spec['names']['kind']}"
    others = sorted(
        (each["name"] for each in spec["versions"] if each.get("served") and not each.get("deprecated")),
        key=version_order,
    )
    better = f"; use {spec['group']}/{others[-1]} {spec['names']['kind']}" if others else ""
    text: str = version.get("deprecationWarning") or f"{what} is deprecated{better}"
    return text


class CustomStrategy(Strategy):
    """A custom resource; its schema is applied by the server, since it differs by version."""

    unconditional = False
    counts_generations = True

    def __init__(self, resource: Resource) -> None:
        self.has_status = "status" in resource.subresources

    def prepare_status(self, obj: Json, old: Json) -> None:
        """Keep metadata too: the status subresource of a custom resource changes nothing but the status."""
        super().prepare_status(obj, old)
        kept = dict(old["metadata"])
        for key in ("managedFields", "resourceVersion"):
            carry(kept, obj["metadata"], key)
        obj["metadata"] = kept
