"""The classes of tasks that a cluster has: what asks for the same, and is treated alike by every node, is of one class."""

from __future__ import annotations

from collections.abc import Iterable
from weakref import WeakValueDictionary

from muster.model.amounts import NOTHING, QuantityError, Resources
from muster.model.objects import Meta, PodSpec
from muster.model.requests import pod_request
from scheduler.model import constraints
from scheduler.model.cache import Cache
from scheduler.model.constraints import Constraints
from scheduler.model.tasks import TaskClass


class TaskClasses:
    """Finds classes; those that nobody has any more are forgotten.

    Attributes:
        named: the names of resources that were asked for since `recount`.
    """

    def __init__(self) -> None:
        self.named: set[str] = set()
        self._known: WeakValueDictionary[tuple[Resources, bytes], TaskClass] = WeakValueDictionary()
        self._templates = Cache()
        self._last: tuple[PodSpec | None, bytes | None] = (None, None)

    def of_pod(self, metadata: Meta, spec: PodSpec) -> TaskClass:
        """Return the class of pods with this spec that belong to no set that anybody asks about."""
        template = self._template(spec)
        if template is None:
            return self._compiled(spec, constraints.of_pod(metadata, spec))
        return self._alike(template, spec)

    def plain(self, spec: PodSpec) -> TaskClass | None:
        """Return the class of pods that others notice by nothing but what they take; None for those of any other."""
        template = self._template(spec)
        kind = self._alike(template, spec) if template is not None else None
        return kind if kind is not None and not kind.constraints.conflicts_beyond_resources else None

    def of(self, request: Resources, demands: Constraints) -> TaskClass:
        """Return the class that asks for so much, and for this."""
        key = (request, demands.signature)
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = TaskClass(request, demands)
            self.named.update(request)
        return known

    def recount(self, more: Iterable[str] = ()) -> None:
        """Forget the names that no class has any more, but for ``more``."""
        self.named = {name for each in list(self._known.values()) for name in each.request} | set(more)

    def _template(self, spec: PodSpec) -> bytes | None:
        # Pods that are made one after the other may share their spec.
        if spec is not self._last[0]:
            self._last = (spec, constraints.template_of(spec))
        return self._last[1]

    def _alike(self, template: bytes, spec: PodSpec) -> TaskClass:
        return self._templates.get(template, lambda: self._compiled(spec, constraints.of_template(template)))

    def _compiled(self, spec: PodSpec, demands: Constraints) -> TaskClass:
        try:
            return self.of(pod_request(spec), demands)
        except QuantityError as error:
            return self.of(NOTHING, demands.with_unsupported(f"an amount that can't be read ({error})"))
