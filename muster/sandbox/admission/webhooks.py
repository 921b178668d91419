"""Asking the webhooks: the mutating ones in turn and once more where needed, the validating ones side by side."""

from __future__ import annotations

import asyncio
from itertools import count
from typing import Any, Final
from uuid import UUID, uuid5

from msgspec import Struct, field
from msgspec.structs import replace

from muster.sandbox.admission import reviews
from muster.sandbox.admission.attributes import Attributes
from muster.sandbox.admission.calls import WebhookCaller, post, unreachable
from muster.sandbox.admission.hooks import MUTATING, VALIDATING, Candidate, Hook, Hooks
from muster.sandbox.admission.matching import EXEMPT, ConditionError
from muster.sandbox.admission.reviews import CallError
from muster.sandbox.codec.patching import PatchError, apply_operations
from muster.sandbox.core.registry import Registry, Resource
from muster.sandbox.core.status import StatusError, bad_request, internal, quote
from muster.sandbox.core.store import Store
from muster.sandbox.strategies import defaulting
from muster.sandbox.strategies.table import strategy_of

Json = dict[str, Any]

_REQUESTS: Final = UUID("6c0d5fbe-3a0b-4f0c-9d0a-6f5f0d5c2a11")
"""From which the uids of requests are made: numbered, so that a simulation repeats."""

_WHOLE: Final = frozenset({"", "status", "resize"})
"""Subresources whose object is the whole resource."""


class Webhooks:
    """The webhooks that are registered in a store."""

    def __init__(self, store: Store, registry: Registry) -> None:
        self._store = store
        self._registry = registry
        self._numbers = count()
        self._mutating = Hooks(store, registry, MUTATING)
        self._validating = Hooks(store, registry, VALIDATING)

    async def mutate(self, attributes: Attributes, caller: WebhookCaller | None, warnings: list[str]) -> Json | None:
        """Return the object as the mutating webhooks want it; the given one when none wants a change.

        Raises:
            StatusError: a webhook refuses, or couldn't be asked and has to be.
        """
        candidates = self._candidates(self._mutating, attributes)
        if not candidates:
            return attributes.object
        again = _Again()
        for second in (False, True):
            if second and not again.wanted:
                break
            for candidate in candidates:
                if second and candidate[0] not in again.hooks:
                    continue
                resource = self._called_for(candidate, attributes)
                if resource is None:
                    continue
                before = attributes.object
                attributes = await self._mutated(candidate[0], resource, attributes, caller, warnings)
                again.note(candidate[0], changed=attributes.object is not before)
        return attributes.object

    async def validate(self, attributes: Attributes, caller: WebhookCaller | None, warnings: list[str]) -> None:
        """Ask all validating webhooks at once; the first refusal counts, in the order in which they come.

        Raises:
            StatusError: a webhook refuses, or couldn't be asked and has to be.
        """
        candidates = self._candidates(self._validating, attributes)
        called = [
            (candidate[0], resource)
            for candidate in candidates
            if (resource := self._called_for(candidate, attributes)) is not None
        ]
        if not called:
            return
        refusals: list[StatusError] = []

        async def ask(hook: Hook, resource: Resource) -> None:
            try:
                await self._answer(hook, resource, attributes, caller, warnings, mutating=False)
            except StatusError as refusal:
                refusals.append(refusal)

        if len(called) == 1:
            await ask(*called[0])
        else:
            async with asyncio.TaskGroup() as group:
                for each in called:
                    group.create_task(ask(*each))
        if refusals:
            raise refusals[0]

    # ── whom to ask ──────────────────────────────────────────────────────────────────────────────────────────────

    def _candidates(self, hooks: Hooks, attributes: Attributes) -> tuple[Candidate, ...]:
        if attributes.resource.key in EXEMPT:
            return ()
        return hooks.candidates(attributes.resource, attributes.subresource)

    def _called_for(self, candidate: Candidate, attributes: Attributes) -> Resource | None:
        """Return the resource, in the version of the matching rule, for which a webhook is called; None when it isn't."""
        hook, targets = candidate
        resource = next((target for rule, target in targets if rule.matches(attributes)), None)
        namespaces = self._registry.by_key(("", "namespaces"))
        assert namespaces is not None, "namespaces are built in"
        if resource is None or not hook.scope.selects(attributes, self._store, namespaces):
            return None
        if not hook.conditions.texts:
            return resource
        try:
            holds = hook.conditions.hold(variables(attributes, resource))
        except ConditionError as error:
            if hook.ignores:
                return None
            raise attributes.forbidden(str(error)) from error
        return resource if holds else None

    # ── asking ───────────────────────────────────────────────────────────────────────────────────────────────────

    async def _mutated(
        self, hook: Hook, resource: Resource, attributes: Attributes, caller: WebhookCaller | None, warnings: list[str]
    ) -> Attributes:
        patch = await self._answer(hook, resource, attributes, caller, warnings, mutating=True)
        if not patch:
            return attributes
        if attributes.object is None:
            text = f"admission webhook {quote(hook.name)} attempted to modify the object, which is not supported for this operation"
            raise internal(text)
        patched = _patched(attributes, resource, patch)
        return attributes if patched == attributes.object else replace(attributes, object=patched)

    async def _answer(
        self,
        hook: Hook,
        resource: Resource,
        attributes: Attributes,
        caller: WebhookCaller | None,
        warnings: list[str],
        *,
        mutating: bool,
    ) -> list[Json]:
        """Ask one webhook; return the operations of its patch."""
        if attributes.dry_run and not hook.dry:
            raise bad_request(f"admission webhook {quote(hook.name)} does not support dry run")
        try:
            answer = await self._asked(hook, resource, attributes, caller, mutating=mutating)
            warnings += answer.warnings
            if not answer.allowed:
                raise reviews.denial(hook.name, answer.status)
            return reviews.operations(answer.patch) if answer.patch else []
        except CallError as error:
            if hook.ignores:
                return []
            raise internal(f"failed calling webhook {quote(hook.name)}: {error}") from error

    async def _asked(
        self, hook: Hook, resource: Resource, attributes: Attributes, caller: WebhookCaller | None, *, mutating: bool
    ) -> reviews.Answer:
        uid = str(uuid5(_REQUESTS, str(next(self._numbers))))
        body = reviews.write(attributes, resource, uid, hook.version)
        if hook.service is not None and self._store.get(("", "services"), *hook.service) is None:
            raise unreachable(hook.url, hook.timeout, f"service {quote(hook.service[1])} not found")
        if caller is None:
            raise unreachable(hook.url, hook.timeout, "this Muster sandbox was started without a way to call webhooks")
        answer = await post(caller, hook.url, hook.ca_bundle, body, hook.timeout)
        return reviews.read(answer, uid, hook.version, mutating=mutating)


class _Again(Struct):
    """Who has to be asked once more: those that ask for it and were asked before somebody else changed the object."""

    hooks: set[Hook] = field(default_factory=set)
    wanted: bool = False
    _asked: set[Hook] = field(default_factory=set)

    def note(self, hook: Hook, *, changed: bool) -> None:
        if changed:
            self.wanted = True
            self.hooks |= self._asked
            self._asked.clear()
        if hook.again:
            self._asked.add(hook)


def variables(attributes: Attributes, resource: Resource) -> Json:
    """Return what expressions see of a request."""
    return {
        "object": reviews.converted(resource, attributes.object),
        "oldObject": reviews.converted(resource, attributes.old_object),
        "request": reviews.request_of(attributes, resource),
    }


def _patched(attributes: Attributes, resource: Resource, operations: list[Json]) -> Json:
    """Apply a patch, which is for the webhook's version, and take the result in as the server does anything foreign."""
    assert attributes.object is not None
    try:
        patched = apply_operations(reviews.converted(resource, attributes.object) or {}, operations)
    except PatchError as error:
        raise internal(str(error)) from error
    own = attributes.resource
    if not isinstance(patched, dict):
        raise internal("json: cannot unmarshal array into Go value of type map[string]interface {}")
    if attributes.subresource not in _WHOLE:
        return patched
    if patched.get("apiVersion") == resource.api_version:
        patched = {**patched, "apiVersion": attributes.object.get("apiVersion", own.api_version)}
    try:
        return defaulting.with_defaults(own, patched, strategy_of(own), [])
    except StatusError as error:
        text = error.message.partition("cannot be handled as a ")[2].partition(": ")[2]
        raise internal(text or error.message) from error
