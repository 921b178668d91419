"""What fails on one object of a namespace costs that object's part of its view alone, and nothing once it is mended."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from typing import Any
from unittest import mock

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule
from msgspec.structs import replace

from muster.kube.cache import ObjectCache
from muster.ledger import followed_views
from muster.ledger.namespace_view import NamespaceView
from muster.ledger.observer import Observer
from muster.model import kinds
from muster.model.kinds import PODGROUPS
from muster.model.objects import (
    Container,
    Meta,
    Pod,
    PodGroup,
    PodGroupSpec,
    PodSpec,
    ResourceQuota,
    ResourceQuotaSpec,
    ResourceRequirements,
)

NAMES = st.sampled_from(["a", "b", "c"])
CPU = st.sampled_from(["1", "2"])


STEPS = (
    (followed_views, "observed_group"),
    (followed_views, "observed_pod"),
    (followed_views, "observed_quota"),
    (NamespaceView, "_take"),
    (NamespaceView, "_recount"),
    (NamespaceView, "follow"),
)
STEP_NAMES = st.sampled_from([name for _, name in STEPS])


class Followed(RuleBasedStateMachine):
    """Groups, quotas and pods of a namespace come, change and go, and steps for some of them fail."""

    def __init__(self) -> None:
        super().__init__()
        logging.disable(logging.ERROR)
        self.poisoned: dict[tuple[str, str], bool] = {}
        self.patches = contextlib.ExitStack()
        for owner, name in STEPS:
            self._poison(owner, name)
        self.caches = {
            kind: ObjectCache[Any]() for kind in (PODGROUPS, kinds.RESOURCEQUOTAS, kinds.PODS, kinds.RESOURCECLAIMS)
        }
        self.observer = self._observer()
        self.version = 0

    def _observer(self) -> Observer:
        others = (self.caches[kind] for kind in (kinds.RESOURCEQUOTAS, kinds.PODS, kinds.RESOURCECLAIMS))
        return Observer({PODGROUPS: self.caches[PODGROUPS]}, *others)

    def _poison(self, owner: Any, name: str) -> None:
        step: Callable[..., Any] = getattr(owner, name)

        def failing(*given: Any) -> Any:
            about = [key for each in given if (key := (name, _name(each))) in self.poisoned] if self.poisoned else []
            if about and self.poisoned[about[0]]:
                raise ZeroDivisionError(name)
            done = step(*given)
            if about:
                raise ZeroDivisionError(name)
            return done

        self.patches.enter_context(mock.patch.object(owner, name, failing))

    def teardown(self) -> None:
        self.is_mended_and_is_what_the_caches_show()
        self.patches.close()
        logging.disable(logging.NOTSET)

    def _meta(self, name: str) -> Meta:
        self.version += 1
        return Meta(name=name, namespace="ns", uid=f"u-{name}", resource_version=str(self.version))

    @rule(name=NAMES, cpu=CPU)
    def a_group(self, name: str, cpu: str) -> None:
        spec = PodGroupSpec(min_resources={"cpu": cpu})
        self.caches[PODGROUPS].put(PodGroup(metadata=self._meta(name), spec=spec))

    @rule(name=NAMES, cpu=CPU)
    def a_quota(self, name: str, cpu: str) -> None:
        spec = ResourceQuotaSpec(hard={"cpu": cpu})
        self.caches[kinds.RESOURCEQUOTAS].put(ResourceQuota(metadata=self._meta(name), spec=spec))

    @rule(name=NAMES, cpu=CPU)
    def a_pod(self, name: str, cpu: str) -> None:
        container = Container(resources=ResourceRequirements(requests={"cpu": cpu}))
        meta = replace(self._meta(name), annotations={"scheduling.k8s.io/group-name": name})
        self.caches[kinds.PODS].put(Pod(metadata=meta, spec=PodSpec(containers=(container,))))

    @rule(kind=st.sampled_from([PODGROUPS, kinds.RESOURCEQUOTAS, kinds.PODS]), name=NAMES)
    def goes(self, kind: Any, name: str) -> None:
        known = self.caches[kind].get(name, "ns")
        if known is not None:
            self.caches[kind].drop(replace(known, metadata=self._meta(name)))

    @rule(step=STEP_NAMES, name=NAMES, first=st.booleans())
    def a_step_fails(self, step: str, name: str, *, first: bool) -> None:
        """Before it does anything, or once it has done it."""
        self.poisoned[step, name] = first

    @rule(step=STEP_NAMES, name=NAMES, cpu=CPU, first=st.booleans(), then=CPU)
    def a_pod_fails_and_changes(self, step: str, name: str, cpu: str, *, first: bool, then: str) -> None:
        self.a_quota("c", "2")
        self.a_step_fails(step=step, name=name, first=first)
        self.a_pod(name, cpu)
        self.a_pod(name, then)
        self.is_mended_and_is_what_the_caches_show()

    @rule()
    def somebody_looks(self) -> None:
        self.observer.view("ns")
        for cache in self.caches.values():
            for name in cache.quarantined:
                cache.retry(name)

    @rule()
    def is_mended_and_is_what_the_caches_show(self) -> None:
        self.poisoned.clear()
        for _ in range(2):
            self.observer.view("ns")
            for cache in self.caches.values():
                assert all(map(cache.retry, cache.quarantined))
        assert not self.observer.unknown("ns")
        fresh = self._observer()
        if "ns" in self.observer._followed.counted:  # pods are followed until nothing is left of a namespace
            fresh._followed.count_pods("ns")
        assert shown(self.observer.view("ns")) == shown(fresh.view("ns"))


def _name(given: Any) -> Any:
    return given if isinstance(given, str) else getattr(given, "name", None)


def shown(view: Any) -> Any:
    groups = {each.uid: (each.amounts, each.revision) for each in view.groups()}
    pods = {each.uid: (each.amounts, each.group) for each in view.pods()}
    quotas = {name: (each.hard, each.revision) for name, each in view.quotas.items()}
    return groups, pods, quotas, view.total, view.used, view.excess, view.revisions


Followed.TestCase.settings = settings(max_examples=60, stateful_step_count=20, deadline=None)
TestFollowed = Followed.TestCase


def test_what_can_not_be_followed_keeps_what_it_held_and_closes_its_namespace(monkeypatch):
    machine = Followed()
    machine.a_quota("c", "9")
    machine.a_group("a", "2")
    machine.a_group("b", "1")
    observe, poisoned = followed_views.observed_group, {"a"}

    def failing(api_group: str, group: PodGroup, absent_at: int) -> Any:
        if group.name in poisoned:
            raise ZeroDivisionError
        return observe(api_group, group, absent_at)

    monkeypatch.setattr(followed_views, "observed_group", failing)
    machine.a_group("a", "1")
    machine.a_group("b", "2")
    # It frees nothing, the other is followed, and nobody is granted anything meanwhile.
    view = machine.observer.view("ns")
    assert {each.name: str(each.amounts) for each in view.groups()} == {"a": "2 cpu", "b": "2 cpu"}
    assert machine.observer.unknown("ns") == "PodGroup a"
    poisoned.clear()
    assert machine.caches[PODGROUPS].retry(("ns", "a"))
    assert {each.name: str(each.amounts) for each in machine.observer.view("ns").groups()} == {
        "a": "1 cpu",
        "b": "2 cpu",
    }
    assert not machine.observer.unknown("ns")
    monkeypatch.undo()
    machine.teardown()
