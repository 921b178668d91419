"""The requests that a registration is for: rules, selectors, conditions. Compiled once per configuration."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property, lru_cache
from typing import Any, Final, Generic, Protocol, TypeAlias, TypeVar

from msgspec import Struct

from muster import cel
from muster.sandbox.admission.attributes import Attributes
from muster.sandbox.codec.selectors import Requirement, from_object, matches_labels
from muster.sandbox.core.registry import Registry, Resource
from muster.sandbox.core.status import not_found
from muster.sandbox.core.store import Key, Store, StoreEvent

Json = Mapping[str, Any]

POLICY_RESOURCES: Final = frozenset(
    ("admissionregistration.k8s.io", f"{prefix}{kind}")
    for prefix in ("validating", "mutating")
    for kind in ("admissionpolicies", "admissionpolicybindings")
)
"""What no policy is asked about: they could lock everybody out. Of webhook configurations they are asked."""

EXEMPT: Final = POLICY_RESOURCES | {
    ("admissionregistration.k8s.io", f"{prefix}webhookconfigurations") for prefix in ("validating", "mutating")
}
"""What no webhook is asked about."""

_NAMESPACES: Final = ("", "namespaces")
_PROGRAMS: Final = 256
"""Compiled conditions that are kept: whoever writes a registration has the same few in it for many rules, time and again."""
_USER: Final = {
    "username": cel.STRING,
    "uid": cel.STRING,
    "groups": cel.list_of(cel.STRING),
    "extra": cel.map_of(cel.STRING, cel.list_of(cel.STRING)),
}
_KIND: Final = cel.object_of({"group": cel.STRING, "version": cel.STRING, "kind": cel.STRING})
_RESOURCE: Final = cel.object_of({"group": cel.STRING, "version": cel.STRING, "resource": cel.STRING})
_REQUEST: Final = cel.object_of(
    {
        "kind": _KIND,
        "resource": _RESOURCE,
        "subResource": cel.STRING,
        "requestKind": _KIND,
        "requestResource": _RESOURCE,
        "requestSubResource": cel.STRING,
        "name": cel.STRING,
        "namespace": cel.STRING,
        "operation": cel.STRING,
        "userInfo": cel.object_of(_USER),
        "dryRun": cel.BOOL,
        "options": cel.DYN,
    }
)
VARIABLES: Final[Mapping[str, cel.Type]] = {"object": cel.DYN, "oldObject": cel.DYN, "request": _REQUEST}
"""What conditions may use. ``authorizer`` isn't here: the sandbox lets everybody do everything."""


class Rule(Struct, frozen=True):
    """One rule; ``*`` in a set takes anything. ``resources`` are (plural, subresource) pairs."""

    operations: frozenset[str]
    groups: frozenset[str]
    versions: frozenset[str]
    resources: frozenset[tuple[str, str]]
    scope: str
    names: frozenset[str] = frozenset()

    def takes(self, resource: Resource, subresource: str) -> bool:
        """Whether it is for a resource, whatever the operation."""
        return (
            not self.groups.isdisjoint(("*", resource.group))
            and not self.versions.isdisjoint(("*", resource.version))
            and self._in_scope(resource)
            and not self.resources.isdisjoint((a, b) for a in ("*", resource.plural) for b in ("*", subresource))
        )

    def _in_scope(self, resource: Resource) -> bool:
        return self.scope == "*" or (self.scope == "Namespaced") == resource.namespaced

    def matches(self, attributes: Attributes) -> bool:
        """Whether it is for the operation and name of a request for a resource that it `takes`."""
        if self.operations.isdisjoint(("*", attributes.operation)):
            return False
        return not self.names or attributes.name in self.names


def rules_of(rules: Sequence[Json] | None) -> tuple[Rule, ...]:
    """Compile the rules of a registration."""
    return tuple(
        Rule(
            frozenset(rule["operations"]),
            frozenset(rule["apiGroups"]),
            frozenset(rule["apiVersions"]),
            frozenset((name, sub) for name, _, sub in (each.partition("/") for each in rule["resources"])),
            rule.get("scope", "*"),
            frozenset(rule.get("resourceNames") or ()),
        )
        for rule in rules or ()
    )


class Scope(Struct, frozen=True):
    """Rules and selectors: what webhooks, policies and bindings have in common."""

    rules: tuple[Rule, ...]
    excluded: tuple[Rule, ...]
    equivalent: bool
    namespaces: tuple[Requirement, ...]
    objects: tuple[Requirement, ...]

    @staticmethod
    def of(source: Json, rules: str = "rules", excluded: str = "") -> Scope:
        """Compile a webhook (``rules``) or a policy's matchResources (``resourceRules`` and those excluded)."""
        return Scope(
            rules_of(source.get(rules)),
            rules_of(source.get(excluded)),
            source.get("matchPolicy", "Equivalent") == "Equivalent",
            from_object(source.get("namespaceSelector")) or (),
            from_object(source.get("objectSelector")) or (),
        )

    def targets(self, registry: Registry, resource: Resource, subresource: str) -> tuple[tuple[Rule, Resource], ...]:
        """Return the rules that take a resource, each with the version that it is for; the own version first."""
        own = [(rule, resource) for rule in self.rules if rule.takes(resource, subresource)]
        if not self.equivalent:
            return tuple(own)
        others = [each for each in registry.all() if each.key == resource.key and each is not resource]
        return (*own, *((rule, other) for rule in self.rules for other in others if rule.takes(other, subresource)))

    def selects(self, attributes: Attributes, store: Store, namespaces: Resource) -> bool:
        """Whether both selectors take a request.

        Raises:
            StatusError: 404, the request's namespace isn't there.
        """
        if self.objects and not any(
            obj is not None and matches_labels(self.objects, _labels(obj))
            for obj in (attributes.object, attributes.old_object)
        ):
            return False
        if not self.namespaces or not attributes.scope:
            return True
        return matches_labels(self.namespaces, _namespace_labels(attributes, store, namespaces))


class Scoped(Protocol):
    """What is registered for some resources."""

    @property
    def scope(self) -> Scope:
        """What it is registered for."""


Targets: TypeAlias = tuple[tuple[Rule, Resource], ...]
_T = TypeVar("_T", bound=Scoped)


class ScopeIndex(Generic[_T]):
    """What is registered, compiled when one of its objects changes, and found by resource.

    A request that nothing is registered for costs one look into a dictionary.

    Args:
        keys: of the objects that it is compiled from.
        compile_all: compiles all of them, in their order.
    """

    def __init__(
        self, store: Store, registry: Registry, keys: Collection[Key], compile_all: Callable[[], tuple[_T, ...]]
    ) -> None:
        self._registry = registry
        self._keys = keys
        self._compile_all = compile_all
        self._all: tuple[_T, ...] | None = None
        self._resources = -1
        self._found: dict[tuple[Resource, str], tuple[tuple[_T, Targets], ...]] = {}
        store.subscribe(self._changed)

    def _changed(self, event: StoreEvent) -> None:
        if event.key in self._keys:
            self._all = None

    def candidates(self, resource: Resource, subresource: str) -> tuple[tuple[_T, Targets], ...]:
        """Return what has rules that take a resource, each with those rules."""
        if self._all is None or self._resources != self._registry.changes:
            self._all = self._compile_all()
            self._resources = self._registry.changes
            self._found.clear()
        found = self._found.get((resource, subresource))
        if found is None:
            targets = [(each, each.scope.targets(self._registry, resource, subresource)) for each in self._all]
            found = self._found[resource, subresource] = tuple(each for each in targets if each[1])
        return found


def _labels(obj: Json) -> Mapping[str, str]:
    return (obj.get("metadata") or {}).get("labels") or {}


def _namespace_labels(attributes: Attributes, store: Store, namespaces: Resource) -> Mapping[str, str]:
    own = attributes.resource.key == _NAMESPACES and not attributes.subresource
    if own and attributes.object is not None and attributes.operation != "DELETE":
        return _labels(attributes.object)
    namespace = store.get(_NAMESPACES, "", attributes.scope)
    if namespace is None:
        raise not_found(namespaces, attributes.scope)
    return _labels(namespace)


@lru_cache(maxsize=_PROGRAMS)
def compiled(text: str) -> cel.Program:
    """Return a match condition, compiled over `VARIABLES`; once for all the API servers of a process, which have the same webhooks.

    Raises:
        CompileError: its syntax or types are wrong, or it uses what the sandbox doesn't know.
    """
    return cel.compile_expression(text, VARIABLES)


class Conditions(Struct, frozen=True, dict=True):
    """Match conditions: all have to hold. Compiled when a request comes that the rules are for: most never see one."""

    texts: tuple[str, ...]

    @staticmethod
    def of(conditions: Sequence[Json] | None) -> Conditions:
        """Return conditions that were found to compile when they were written."""
        return Conditions(tuple(each["expression"].strip() for each in conditions or ()))

    @cached_property
    def programs(self) -> tuple[cel.Program, ...]:
        """The conditions, compiled."""
        return tuple(compiled(text) for text in self.texts)

    def hold(self, values: Mapping[str, Any]) -> bool:
        """Whether all hold. One that doesn't makes an error in another irrelevant.

        Raises:
            ConditionError: none is false and one has no value.
        """
        errors = []
        for program in self.programs:
            try:
                if program.evaluate(values) is not True:
                    return False
            except cel.CelError as error:
                errors.append(f"expression '{program.source}' resulted in error: {error}")
        if errors:
            raise ConditionError(errors[0] if len(errors) == 1 else f"[{', '.join(errors)}]")
        return True


class ConditionError(Exception):
    """A condition has no value; the text says which, and why."""
