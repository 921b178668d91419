"""Who writes expressions and claims that take long pays for it: others get their devices in the same cycle, and what is kept is bounded."""

from __future__ import annotations

import contextlib
import weakref

import hostile_claims
import msgspec
import pytest
from device_objects import GPU, NOW, PREDICATES, claim, device_class, group, node, offered, pod

from muster.model import names
from muster.model.amounts import Quantity
from scheduler.configuration import config
from scheduler.engine.cycle import decide
from scheduler.engine.decision_cache import DecisionCache
from scheduler.model import devices
from scheduler.model.devices import Device, DeviceId
from scheduler.simulator import state
from scheduler.topology import device_selectors
from scheduler.topology.device_budget import ALL, SHARE, BudgetError, DeviceAccount, DeviceBudget
from scheduler.topology.device_selectors import LONGEST, CompiledSelectors, SelectorError, Selectors

DEVICE = Device(DeviceId("d", "p", "a"), {"d": {"a": 1}}, {})


def account(share: int = SHARE) -> DeviceAccount:
    return DeviceAccount("ns", share)


@pytest.fixture(scope="module")
def plans():
    return list(hostile_claims.decisions(2))


def test_a_tenant_whose_expressions_take_long_waits_and_another_is_placed_after_him(plans):
    for plan in plans:
        assert [bind.task.name for bind in plan.binds if bind.task.name == "zz-0"]
    texts = {
        condition.message
        for key, status in plans[-1].groups.items()
        if key.namespace == "evil"
        for condition in status.conditions
    }
    assert any("for the claims of namespace evil takes too long" in each for each in texts)
    assert max(map(len, texts)) < 2000


@pytest.mark.parametrize("expression", [*dict.fromkeys(hostile_claims.costly())][:5], ids=range(5))
def test_each_costly_expression_is_paid_for(expression):
    selectors, pays, spent = Selectors(), account(), 0
    with contextlib.suppress(BudgetError):
        while spent < 100_000:
            device, spent = msgspec.structs.replace(DEVICE, id=DeviceId("d", "p", f"{spent}")), spent + 1
            with contextlib.suppress(SelectorError):
                selectors.choose((expression,), device, pays)
    # Half a second of an expression is half of what there is; the cheapest of these is evaluated some hundred times.
    assert spent < 500


def test_what_one_session_found_out_the_next_one_goes_on_from():
    # A hundred steps for each device: one session has enough for a thousand of them.
    expression = f"{hostile_claims.numbers(100)}.all(x,x!=device.attributes['d'].a+100)"
    selectors, sessions = Selectors(), 0
    found = [msgspec.structs.replace(DEVICE, id=DeviceId("d", "p", f"{number}")) for number in range(3000)]
    while True:
        pays, sessions = account(), sessions + 1
        try:
            assert all(selectors.choose((expression,), each, pays) for each in found)
        except BudgetError:
            continue
        break
    assert 1 < sessions < 10


@pytest.fixture
def evaluated(monkeypatch):
    """The names of the devices for which an expression was evaluated."""
    found, evaluate = [], Selectors._evaluate

    def noted(self, expression, device, account):
        found.append(device.id.name)
        return evaluate(self, expression, device, account)

    monkeypatch.setattr(Selectors, "_evaluate", noted)
    return found


def test_a_device_that_is_read_anew_is_evaluated_again_only_where_it_is_another_one(evaluated):
    first = Selectors()
    assert first.choose(("device.attributes['d'].a == 1",), DEVICE, account())
    for selectors in (first, Selectors(first.answers)):
        again = msgspec.structs.replace(DEVICE, attributes={"d": {"a": 1}})
        selectors.keep([again])
        assert selectors.choose(("device.attributes['d'].a == 1",), again, account())
    assert evaluated == ["a"]
    for other in (
        msgspec.structs.replace(DEVICE, attributes={"d": {"a": 2}}),
        msgspec.structs.replace(DEVICE, attributes={"d": {"a": "1"}}),
        msgspec.structs.replace(DEVICE, attributes={"d": {"b": 1}}),
        msgspec.structs.replace(DEVICE, attributes={"d": {"a": True}}),
        msgspec.structs.replace(DEVICE, attributes={"d": {"a": 2**70}}),
        msgspec.structs.replace(DEVICE, capacity={"d": {"m": Quantity.parse("40Ti")}}),
        msgspec.structs.replace(DEVICE, id=DeviceId("d", "p", "b")),
    ):
        with contextlib.suppress(SelectorError):
            same = other.attributes == DEVICE.attributes and other.attributes["d"]["a"] is not True
            assert first.choose(("device.attributes['d'].a == 1",), other, account()) == same
    assert len(evaluated) == 8
    first.keep([])
    assert first.choose(("device.attributes['d'].a == 1",), DEVICE, account())
    assert len(evaluated) == 9


def test_what_is_remembered_of_a_failure_keeps_nothing_of_the_session_in_which_it_was_met():
    selectors = Selectors()

    class Session:
        """What a frame holds."""

    def choose():
        session = Session()
        try:
            selectors.choose(("device.attributes['d'].none == 1",), DEVICE, account())
        except SelectorError:
            return weakref.ref(session)
        raise AssertionError("it has a value")

    met = [choose() for _ in range(3)]
    assert [each() for each in met] == [None] * 3


def test_neither_a_changed_node_nor_another_thread_s_decision_evaluates_anew(evaluated):
    devices_ = [offered("n1", {"name": "a", "attributes": {"model": {"string": "x"}}})]
    asked = [device_class(expression=f"device.attributes['{GPU}'].model == 'x'"), claim("c"), group(), pod("p", "c")]
    cache = DecisionCache()
    for name in ("one", "two", "three"):
        use = cache.successor() if name == "three" else cache
        cluster = state.load([node("n1"), node(name), *devices_, *asked], [names.SCHEDULER_NAME])
        plan = decide(cluster.snapshot(), config.parse(PREDICATES, "a test's"), NOW, use)
        assert [(bind.task.name, bind.node) for bind in plan.binds] == [("p", "n1")]
    assert evaluated == ["a"]


def test_an_expression_is_judged_the_same_however_little_is_left():
    expression = f"{hostile_claims.numbers(1000)}.exists(x,x==device.attributes['d'].a+100)"
    for left in range(0, 12_000, 500):
        selectors = Selectors()
        try:
            assert not selectors.choose((expression,), DEVICE, account(left))
        except BudgetError:
            assert not selectors.choose((expression,), DEVICE, account())


def test_namespaces_share_what_a_cycle_has():
    def share(count: int) -> int:
        budget, spent = DeviceBudget(lambda: {f"n{each}" for each in range(count)}), 0
        try:
            while True:
                budget.of("n0").spend(1000)
                spent += 1000
        except BudgetError:
            return spent

    assert share(1) == share(5) == SHARE
    assert share(50) == ALL // 50


def test_expressions_are_kept_compiled_by_their_length():
    kept, texts = CompiledSelectors(), [f"'{'a' * (LONGEST - 100)}' == '{number}'" for number in range(40)]
    for each in texts:
        kept.get(each, account())
    assert sum(map(len, kept._known)) <= device_selectors._MOST_COMPILED
    assert texts[-1] in kept._known


def test_answers_are_forgotten_once_there_are_many(monkeypatch):
    monkeypatch.setattr(device_selectors, "_MOST_ANSWERS", 100)
    selectors = Selectors()
    for number in range(1000):
        assert selectors.choose((f"{number} >= 0",), DEVICE, account())
    assert len(selectors.answers) <= 100


def test_what_is_wrong_with_an_expression_is_said_briefly():
    for text in (f"'{'a' * 9000}'", f"{'x' * 9000}", f"device.attributes['d']['{'k' * 9000}'] == 1", "1+" * 4000 + "1"):
        with pytest.raises(SelectorError) as caught:
            Selectors().choose((text,), DEVICE, account())
        assert len(str(caught.value)) < 500


def test_claims_of_two_namespaces_that_request_the_same_are_paid_for_by_each():
    spec = {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu"}}]}}
    assert devices.claimed(spec, "a") != devices.claimed(spec, "b")


def test_what_a_group_lacks_is_said_briefly_however_much_its_claims_say():
    many = [hostile_claims.exactly(f"r{number}", f"device.driver == '{'x' * 900}'") for number in range(32)]
    objects = [*hostile_claims.cluster(), *hostile_claims.waiting("ns", "g", {"requests": many})]
    *_, pod = objects
    for number in range(60):
        (_, claim, _) = hostile_claims.waiting("ns", f"c{number}", {"requests": many})
        objects.append(claim)
        pod["spec"]["resourceClaims"].append({"name": f"c{number}", "resourceClaimName": f"c{number}"})
    loaded = state.load(objects, [names.SCHEDULER_NAME])
    plan = decide(loaded.snapshot(), config.parse(config.DEFAULT), hostile_claims.NOW, DecisionCache())
    ((_, status),) = plan.groups.items()
    (message,) = [each.message for each in status.conditions]
    assert "and 29 more requests" in message
    assert "58 more claims" in message or message.endswith("…")
    assert len(message) <= 2000
