"""Thousands of resources that no quota limits: a pod of a namespace that has them costs no more than any other."""

from __future__ import annotations

from typing import Any

import pytest

from muster.ledger.namespace_view import NamespaceView, Tombstones
from muster.ledger.view import ObservedGroup, ObservedPod, ObservedQuota
from muster.model.amounts import NANO, Resources

GROUP = "scheduling.volcano.sh"
OFTEN = 50


def amounts(cpu: int, invented: str = "", count: int = 0) -> Resources:
    more = {f"example.com/{invented}-{number}": NANO for number in range(count)}
    return Resources({"cpu": cpu * NANO, "pods": NANO, **more})


def view(*quotas: tuple[str, dict[str, int]]) -> NamespaceView:
    made = NamespaceView({}, Tombstones())
    for number, (name, hard) in enumerate(quotas, 1):
        made.put_quota(ObservedQuota(name, name, number, Resources({key: each * NANO for key, each in hard.items()})))
    return made


def fill(made: NamespaceView, invented: int) -> None:
    for number in range(OFTEN):
        made.put(ObservedGroup(GROUP, f"gang-{number}", f"g{number}", number, amounts(3, f"g{number}", invented)))
        made.put_pod(ObservedPod(f"p{number}", f"gang-{number}", number, amounts(4, f"p{number}", invented)))


@pytest.fixture
def looked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many amounts were added up."""
    seen, add, subtract = [0], Resources.__add__, Resources.__sub__

    def counted(how: Any) -> Any:
        def count(mine: Resources, other: Resources) -> Resources:
            seen[0] += len(mine.nano) + len(other.nano)
            return how(mine, other)

        return count

    monkeypatch.setattr(Resources, "__add__", counted(add))
    monkeypatch.setattr(Resources, "__sub__", counted(subtract))
    return seen


def test_a_change_costs_what_quotas_limit_and_not_what_was_invented(looked):
    spent = []
    for invented in (0, 1000):
        made = view(("compute", {"requests.cpu": 100}))
        fill(made, invented)
        looked[0] = 0
        made.put_pod(ObservedPod("small", "gang-1", 1, amounts(1)))
        made.put(ObservedGroup(GROUP, "gang-2", "other", 1, amounts(1)))
        made.drop_pod("p3")
        made.drop("g4")
        spent.append(looked[0])
    assert spent[0] == spent[1]


def test_sums_tell_of_what_is_limited_alone_and_of_more_once_a_quota_does(looked):
    made = view(("compute", {"requests.cpu": 100}))
    fill(made, 2)
    assert dict(made.used.nano) == {"cpu": 4 * OFTEN * NANO}
    assert dict(made.total.nano) == {"cpu": 3 * OFTEN * NANO}
    assert dict(made.excess.nano) == {"cpu": OFTEN * NANO}
    made.put_quota(ObservedQuota("more", "more", 9, Resources({"requests.example.com/p7-1": 0, "pods": NANO})))
    assert dict(made.used.nano) == {"cpu": 4 * OFTEN * NANO, "pods": OFTEN * NANO, "example.com/p7-1": NANO}
    assert dict(made.total.nano) == {"cpu": 3 * OFTEN * NANO, "pods": OFTEN * NANO}
    assert dict(made.beyond("gang-7").nano) == {"cpu": NANO, "example.com/p7-1": NANO}
    assert dict(made.excess.nano) == {"cpu": OFTEN * NANO, "example.com/p7-1": NANO}
    made.drop_pod("p7")
    assert "example.com/p7-1" not in made.used


def test_of_what_nobody_limits_nothing_is_told_and_the_pods_are_shown_as_they_are():
    made = view()
    fill(made, 3)
    assert (made.used, made.total, made.excess, made.usage("gang-1")) == (Resources({}),) * 4
    shown = made.pod("p1")
    assert shown is not None
    assert shown.amounts == amounts(4, "p1", 3)
