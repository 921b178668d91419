"""ValidatingAdmissionPolicies and their bindings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from msgspec import Struct

from muster import cel
from muster.sandbox.admission.attributes import Attributes
from muster.sandbox.admission.matching import POLICY_RESOURCES, VARIABLES, ConditionError, Conditions, Scope, ScopeIndex
from muster.sandbox.admission.webhooks import variables
from muster.sandbox.core.registry import Registry, Resource
from muster.sandbox.core.status import StatusError, quote
from muster.sandbox.core.store import Key, Object, Store

POLICIES: Final[Key] = ("admissionregistration.k8s.io", "validatingadmissionpolicies")
BINDINGS: Final[Key] = ("admissionregistration.k8s.io", "validatingadmissionpolicybindings")
_NAMESPACES: Final = ("", "namespaces")
_CODES: Final = {"Forbidden": 403, "Unauthorized": 401, "RequestEntityTooLarge": 413, "Invalid": 422}
_MOST_MESSAGE: Final = 5 * 1024


class Validation(Struct, frozen=True):
    """One expression that has to hold, and what to say when it doesn't."""

    program: cel.Program
    message: str
    expression: cel.Program | None
    reason: str

    def text(self, values: Mapping[str, Any]) -> str:
        """Return the message of a failure."""
        if self.expression is not None:
            try:
                text = self.expression.evaluate(values)
            except cel.CelError:
                text = ""
            text = text.strip() if isinstance(text, str) else ""
            if text and "\n" not in text and len(text.encode()) <= _MOST_MESSAGE:
                return text
        return self.message or f"failed expression: {self.program.source.strip()}"


class Binding(Struct, frozen=True):
    """What makes a policy take effect, and where. ``scope`` is None: wherever the policy is for."""

    name: str
    actions: frozenset[str]
    scope: Scope | None


class Policy(Struct, frozen=True, eq=False):
    """One policy, compiled, with its bindings."""

    name: str
    scope: Scope
    conditions: Conditions
    variables: tuple[tuple[str, cel.Program], ...]
    validations: tuple[Validation, ...]
    ignores: bool
    bindings: tuple[Binding, ...]


class _Failure(Struct, frozen=True):
    text: str
    reason: str


def compile_policy(policy: Object, bindings: tuple[Binding, ...] = ()) -> Policy:
    """Compile a policy.

    Raises:
        CompileError: an expression can't be compiled.
    """
    spec = policy["spec"]
    known = policy_variables(spec)
    return Policy(
        name=policy["metadata"]["name"],
        scope=Scope.of(spec["matchConstraints"], "resourceRules", "excludeResourceRules"),
        conditions=Conditions.of(spec.get("matchConditions")),
        variables=tuple(
            (each["name"], cel.compile_expression(each["expression"], known)) for each in spec.get("variables") or ()
        ),
        validations=tuple(_validation(each, known) for each in spec.get("validations") or ()),
        ignores=spec.get("failurePolicy") == "Ignore",
        bindings=bindings,
    )


def policy_variables(spec: Mapping[str, Any]) -> dict[str, cel.Type]:
    """Return what a policy's expressions may use: besides `VARIABLES`, the namespace and its own variables."""
    known = {**VARIABLES, "namespaceObject": cel.DYN}
    own = {each.get("name", ""): cel.DYN for each in spec.get("variables") or ()}
    return {**known, "variables": cel.object_of(own)}


def _validation(validation: Mapping[str, Any], known: Mapping[str, cel.Type]) -> Validation:
    expression = validation.get("messageExpression")
    return Validation(
        cel.compile_expression(validation["expression"], known),
        validation.get("message", "").strip(),
        cel.compile_expression(expression, known) if expression else None,
        validation.get("reason") or "Invalid",
    )


class _Variables(Mapping[str, Any]):
    """A policy's variables: each evaluated when it is first used, once per request."""

    def __init__(self, programs: Mapping[str, cel.Program], values: dict[str, Any]) -> None:
        self._programs = programs
        self._values = values
        self._known: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._known:
            program = self._programs[name]
            try:
                self._known[name] = program.evaluate(self._values)
            except cel.CelError as error:
                raise cel.CelError(f"composited variable {quote(name)} fails to evaluate: {error}") from error
        return self._known[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._programs)

    def __len__(self) -> int:
        return len(self._programs)


class Policies:
    """The policies of a store, compiled when they or their bindings change, and indexed by resource."""

    def __init__(self, store: Store, registry: Registry) -> None:
        self._store = store
        self._registry = registry
        self._index = ScopeIndex(store, registry, {POLICIES, BINDINGS}, self._compile)

    def check(self, attributes: Attributes, warnings: list[str]) -> None:
        """Hold a request to the policies; append the warnings of bindings that only warn.

        Raises:
            StatusError: a policy denies it.
        """
        if attributes.resource.key in POLICY_RESOURCES:
            return
        denial: StatusError | None = None
        for policy, targets in self._index.candidates(attributes.resource, attributes.subresource):
            resource = next((target for rule, target in targets if rule.matches(attributes)), None)
            if resource is None or not self._concerns(policy.scope, attributes):
                continue
            for binding in policy.bindings:
                if binding.scope is None or self._binds(binding.scope, attributes):
                    for failure in self._failures(policy, attributes, resource):
                        refusal = self._acted_on(policy, binding, failure, attributes, warnings)
                        denial = denial or refusal
        if denial is not None:
            raise denial

    def _compile(self) -> tuple[Policy, ...]:
        bound: dict[str, list[Binding]] = {}
        for each in self._store.list(BINDINGS):
            spec = each["spec"]
            limits = spec.get("matchResources")
            scope = Scope.of(limits, "resourceRules", "excludeResourceRules") if limits else None
            actions = frozenset(spec["validationActions"])
            bound.setdefault(spec["policyName"], []).append(Binding(each["metadata"]["name"], actions, scope))
        # A policy without a binding has no effect.
        return tuple(
            compile_policy(policy, tuple(bound[policy["metadata"]["name"]]))
            for policy in self._store.list(POLICIES)
            if policy["metadata"]["name"] in bound
        )

    def _concerns(self, scope: Scope, attributes: Attributes) -> bool:
        excluded = any(
            rule.takes(attributes.resource, attributes.subresource) and rule.matches(attributes)
            for rule in scope.excluded
        )
        namespaces = self._registry.by_key(_NAMESPACES)
        assert namespaces is not None, "namespaces are built in"
        return not excluded and scope.selects(attributes, self._store, namespaces)

    def _binds(self, scope: Scope, attributes: Attributes) -> bool:
        if not self._concerns(scope, attributes):
            return False
        targets = scope.targets(self._registry, attributes.resource, attributes.subresource)
        return not scope.rules or any(rule.matches(attributes) for rule, _ in targets)

    def _failures(self, policy: Policy, attributes: Attributes, resource: Resource) -> Iterator[_Failure]:
        values = variables(attributes, resource)
        own_namespace = attributes.resource.namespaced and attributes.namespace
        values["namespaceObject"] = self._store.get(_NAMESPACES, "", attributes.namespace) if own_namespace else None
        values["variables"] = _Variables(dict(policy.variables), values)
        try:
            if not policy.conditions.hold(values):
                return
        except ConditionError as error:
            if not policy.ignores:
                yield _Failure(str(error), "")
            return
        for validation in policy.validations:
            try:
                verdict = validation.program.evaluate(values)
            except cel.CelError as error:
                if not policy.ignores:
                    text = f"expression '{validation.program.source}' resulted in error: {error}"
                    yield _Failure(text, "")
                continue
            if verdict is not True:
                yield _Failure(validation.text(values), validation.reason)

    @staticmethod
    def _acted_on(
        policy: Policy, binding: Binding, failure: _Failure, attributes: Attributes, warnings: list[str]
    ) -> StatusError | None:
        if "Warn" in binding.actions:
            warnings.append(
                f"Validation failed for ValidatingAdmissionPolicy '{policy.name}' with binding '{binding.name}': {failure.text}"
            )
        if "Deny" not in binding.actions:
            return None
        text = f"ValidatingAdmissionPolicy '{policy.name}' with binding '{binding.name}' denied request: {failure.text}"
        refusal = attributes.forbidden(text)
        reason = failure.reason or "Invalid"
        details = {**(refusal.details or {}), "causes": [{"message": text}]}
        return StatusError(_CODES[reason], reason, refusal.message, details)
