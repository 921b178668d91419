"""PodDisruptionBudgets: the number of pods that may be evicted now. The API server's eviction reads it from the status."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

from msgspec import Struct

from muster.sandbox.codec import selectors
from muster.sandbox.controllers.controller import Controller
from muster.sandbox.controllers.indexer import PODS
from muster.sandbox.controllers.plans import pods as p
from muster.sandbox.controllers.plans.int_or_percent import pods_of
from muster.sandbox.controllers.plans.pods import controller_of
from muster.sandbox.controllers.plans.times import seconds_since, stamp
from muster.sandbox.core.store import Key, Object, StoreEvent, identity
from muster.sandbox.core.users import service_account
from muster.sandbox.server.requests import ApiServer

BUDGETS: Final[Key] = ("policy", "poddisruptionbudgets")

_BATCH_SECONDS: Final = 0.1
_DISRUPTION_SECONDS: Final = 120.0
"""How long an evicted pod is taken to be on its way out though it still runs."""


class _NoScaleError(Exception):
    """The number of pods that should be there is nowhere written. Its text is the condition's."""


class Figures(Struct, frozen=True):
    """What a budget comes to, in pods."""

    expected: int
    desired: int
    healthy: int

    @property
    def allowed(self) -> int:
        """How many healthy pods may go now."""
        return max(0, self.healthy - self.desired) if self.expected else 0


def figures(spec: dict[str, Any], pods: Sequence[Object], expected: int, disrupted: Sequence[str]) -> Figures:
    """Work out a budget over the ``pods`` that it selects, of which ``disrupted`` (names) are being evicted."""
    healthy = sum(p.ready(pod) and not p.leaving(pod) and pod["metadata"]["name"] not in disrupted for pod in pods)
    if "maxUnavailable" in spec:
        desired = max(0, expected - pods_of(spec["maxUnavailable"], expected, up=True))
    elif isinstance(spec.get("minAvailable"), int):
        desired, expected = spec["minAvailable"], len(pods)
    else:
        desired = pods_of(spec.get("minAvailable", 0), expected, up=True)
    return Figures(expected, desired, healthy)


def status(budget: Object, figure: Figures, disrupted: dict[str, str], now: datetime) -> dict[str, Any]:
    """Return the whole status of a budget."""
    standing = ("True", "SufficientPods", "") if figure.allowed else ("False", "InsufficientPods", "")
    generation = budget["metadata"]["generation"]
    result: dict[str, Any] = {
        "conditions": [_condition(budget, standing, now) | {"observedGeneration": generation}],
        "currentHealthy": figure.healthy,
        "desiredHealthy": figure.desired,
        "disruptionsAllowed": figure.allowed,
        "expectedPods": figure.expected,
        "observedGeneration": generation,
    }
    return result | ({"disruptedPods": disrupted} if disrupted else {})


def failed(budget: Object, why: str, now: datetime) -> dict[str, Any]:
    """Return the status of a budget that can't be worked out: nothing may go."""
    old = budget.get("status") or {}
    zeros = {"currentHealthy": 0, "desiredHealthy": 0, "expectedPods": 0}
    condition = _condition(budget, ("False", "SyncFailed", why), now)
    return {**zeros, **old, "conditions": [condition], "disruptionsAllowed": 0}


def _condition(budget: Object, standing: tuple[str, str, str], now: datetime) -> dict[str, Any]:
    value, reason, message = standing
    old = p.condition(budget, "DisruptionAllowed")
    since = old["lastTransitionTime"] if old and old["status"] == value else stamp(now)
    return {
        "type": "DisruptionAllowed",
        "status": value,
        "reason": reason,
        "message": message,
        "lastTransitionTime": since,
    }


class DisruptionController(Controller[tuple[str, str]]):
    """Keeps the status of budgets."""

    def __init__(self, server: ApiServer) -> None:
        super().__init__(server, service_account("kube-system", "disruption-controller"), "controllermanager")

    def observe(self, event: StoreEvent) -> None:
        """A changed budget; the budgets of a changed pod's namespace that select it."""
        if event.key == BUDGETS and event.type != "DELETED":
            self.queue.add(identity(event.object))
        elif event.key == PODS:
            for budget in self.store.list(BUDGETS, identity(event.object)[0]):
                if _selects(budget, event.object):
                    self.queue.add_after(identity(budget), _BATCH_SECONDS)

    async def sync(self, name: tuple[str, str]) -> None:
        """Work out a budget anew."""
        budget = self.store.get(BUDGETS, *name)
        if budget is None or p.leaving(budget):
            return
        now = self.server.clock.now()
        pods = [pod for pod in self.store.list(PODS, name[0]) if _selects(budget, pod) and not p.ended(pod)]
        try:
            expected = self._expected(budget, pods)
        except _NoScaleError as error:
            text = f"Failed to calculate the number of expected pods: {error}"
            await self.events.warning(budget, "CalculateExpectedPodCountFailed", text)
            await self.write.update_status(BUDGETS, budget, failed(budget, str(error), now))
            return
        disrupted = self._disrupted(budget, now)
        figure = figures(budget["spec"], pods, expected, list(disrupted))
        await self.write.update_status(BUDGETS, budget, status(budget, figure, disrupted, now))
        if disrupted:
            oldest = max(seconds_since(since, now) for since in disrupted.values())
            self.queue.add_after(name, max(1.0, _DISRUPTION_SECONDS - oldest))

    def _disrupted(self, budget: Object, now: datetime) -> dict[str, str]:
        """Return the evicted pods that are still to go, with the time of their eviction."""
        noted: dict[str, str] = (budget.get("status") or {}).get("disruptedPods") or {}
        namespace = identity(budget)[0]
        found = {name: self.store.get(PODS, namespace, name) for name in noted}
        present = {name for name, pod in found.items() if pod is not None and not p.leaving(pod)}
        return {
            name: since
            for name, since in noted.items()
            if name in present and seconds_since(since, now) < _DISRUPTION_SECONDS
        }

    def _expected(self, budget: Object, pods: Sequence[Object]) -> int:
        """How many pods there should be: by the size of their controllers, where the budget needs to know.

        Raises:
            _NoScaleError: a pod's controller has no size.
        """
        spec = budget["spec"]
        if "maxUnavailable" not in spec and isinstance(spec.get("minAvailable", 0), int):
            return len(pods)
        sizes: dict[str, int] = {}
        for pod in pods:
            owner = controller_of(pod)
            if owner is None:
                raise _NoScaleError(f'found no controller ref for pod "{pod["metadata"]["name"]}"')
            sizes[owner["uid"]] = self._size(identity(pod)[0], owner)
        return sum(sizes.values())

    def _size(self, namespace: str, owner: dict[str, Any]) -> int:
        group, _, _ = owner["apiVersion"].rpartition("/")
        resource = self.server.registry.by_kind(group, owner["kind"])
        if resource is None or not (resource.scale or "scale" in resource.subresources):
            qualified = resource.qualified if resource is not None else f"{owner['kind']}.{group}"
            raise _NoScaleError(f"{qualified} does not implement the scale subresource")
        controller = self.store.get(resource.key, namespace, owner["name"])
        above = controller_of(controller) if controller is not None else None
        if controller is not None and above is not None and above["kind"] == "Deployment":
            controller = self.store.get(("apps", "deployments"), namespace, above["name"])
        path = (resource.scale or {}).get("specReplicasPath", ".spec.replicas")
        value: Any = controller
        for part in path.strip(".").split("."):
            value = value.get(part) if isinstance(value, dict) else None
        return value if isinstance(value, int) else 1


def _selects(budget: Object, pod: Object) -> bool:
    requirements = selectors.from_object(budget["spec"].get("selector"))
    return requirements is not None and selectors.matches_labels(requirements, pod["metadata"].get("labels"))
