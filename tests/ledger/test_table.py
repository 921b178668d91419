"""Single steps of the table, on values."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec
import pytest
from msgspec.structs import replace

from muster.ledger import wording
from muster.ledger.decision import decide
from muster.ledger.headroom import Headroom
from muster.ledger.namespace_view import NamespaceView, Tombstones
from muster.ledger.reservations import JOB, POD, PODGROUP, Exceeded, ReservationRequest, Reserved, Unavailable, held
from muster.ledger.rows import UNSEEDED, UNSETTLED, MalformedLedgerError, Row, RowState
from muster.ledger.table import MOST_BYTES, MOST_ROWS, ORDINARY_ROW, Table
from muster.ledger.tally import Totals
from muster.ledger.view import POD_SOURCE, QUOTA_SOURCE, ObservedGroup, ObservedPod, ObservedQuota, source
from muster.model.amounts import QuantityError, Resources
from muster.model.names import SIGS_GROUP, VOLCANO_GROUP
from muster.model.objects import LedgerData, QuotaTotals

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def amounts(**quantities: str) -> Resources:
    return Resources.parse({name.replace("__", "/").replace("_", "."): each for name, each in quantities.items()})


def request(
    name: str, asks: Resources, uid: str = "", kind: str = PODGROUP, group: str = VOLCANO_GROUP
) -> ReservationRequest:
    return ReservationRequest("ns", kind, group, name, uid or f"u-{name}", asks)


def view_of(*groups: ObservedGroup | ObservedPod, at: int = 100, **hard: Resources) -> NamespaceView:
    view = NamespaceView(
        {source(VOLCANO_GROUP): at, source(SIGS_GROUP): at, QUOTA_SOURCE: at, POD_SOURCE: at}, Tombstones()
    )
    for each in groups:
        if isinstance(each, ObservedGroup):
            view.put(each)
        else:
            view.put_pod(each)
    for name, limits in hard.items():
        view.put_quota(ObservedQuota(name, f"u-{name}", 50, limits))
    return view


def shown(name: str, asks: Resources, revision: int = 60, group: str = VOLCANO_GROUP) -> ObservedGroup:
    return ObservedGroup(group, name, f"u-{name}", revision, asks)


def seeded(*groups: ObservedGroup | ObservedPod, **hard: Resources) -> Table:
    return Table().seed(view_of(*groups, **hard), NOW)


def answers(table: Table, *requests: ReservationRequest) -> list[type]:
    return [type(answer) for answer in table.reserve(requests)[1]]


def test_a_batch_is_served_in_order_each_against_what_those_before_it_got() -> None:
    table = seeded(team=amounts(cpu="10"))
    asks = [request(f"g{n}", amounts(cpu=cpu)) for n, cpu in enumerate(["6", "6", "4", "1"])]
    assert answers(table, *asks) == [Reserved, Exceeded, Reserved, Exceeded]


@pytest.mark.parametrize("spelled", ["cpu", "requests_cpu"])
def test_cpu_is_held_against_cpu_and_requests_cpu(spelled: str) -> None:
    for hard in (amounts(cpu="4"), amounts(requests_cpu="4")):
        assert answers(seeded(team=hard), request("a", amounts(**{spelled: "5"}))) == [Exceeded]
        assert answers(seeded(team=hard), request("a", amounts(**{spelled: "4"}))) == [Reserved]


def test_extended_resources_and_hugepages_are_held_against_requests_of_them() -> None:
    table = seeded(team=Resources.parse({"requests.nvidia.com/gpu": "2", "requests.hugepages-2Mi": "4Mi"}))
    for asks in ({"nvidia.com/gpu": "3"}, {"hugepages-2Mi": "6Mi"}):
        assert answers(table, request("a", Resources.parse(asks))) == [Exceeded]
    assert answers(table, request("a", Resources.parse({"nvidia.com/gpu": "2", "hugepages-2Mi": "4Mi"}))) == [Reserved]


def test_limits_and_pods_count_only_where_the_group_lists_them() -> None:
    table = seeded(team=Resources.parse({"limits.cpu": "4", "pods": "2", "count/pods": "2"}))
    assert table.reserve([request("a", amounts(cpu="100"))])[1] == (Reserved(recorded=False),)
    assert answers(table, request("a", amounts(limits_cpu="5"))) == [Exceeded]
    refused = table.reserve([request("a", Resources.parse({"pods": "3"}))])[1][0]
    assert isinstance(refused, Exceeded)
    assert {shortage.resource for shortage in refused.shortages} == {"pods", "count/pods"}


def test_both_spellings_in_one_group_count_once() -> None:
    assert held(Resources.parse({"cpu": "2", "requests.cpu": "3"})) == Resources.parse({"cpu": "3"})


def test_a_limit_of_zero_limits() -> None:
    assert answers(seeded(team=amounts(cpu="0")), request("a", amounts(cpu="1m"))) == [Exceeded]


def test_case_27_every_quota_of_a_namespace_must_hold_it() -> None:
    table = seeded(team=amounts(cpu="10"), memory=amounts(memory="1Gi"))
    answer = table.reserve([request("a", amounts(cpu="12", memory="2Gi"))])[1][0]
    assert isinstance(answer, Exceeded)
    assert [(each.quota, each.resource) for each in answer.shortages] == [("team", "cpu"), ("memory", "memory")]


def test_case_30_amounts_are_exact_and_absurd_ones_are_refused_by_name() -> None:
    table, _ = seeded(team=amounts(cpu="1")).reserve([request(f"g{n}", amounts(cpu="100m")) for n in range(9)])
    assert answers(table, request("a", amounts(cpu="0.1"))) == [Reserved]
    assert answers(table, request("a", amounts(cpu="100000001n"))) == [Exceeded]
    for absurd in ("1e19", "-1", "NaN", "9" * 70):
        with pytest.raises(QuantityError, match="cpu: "):
            amounts(cpu=absurd)
    with pytest.raises(ValueError, match="negative amount"):
        request("a", Resources({"cpu": -1}))


def test_case_30_groups_of_the_largest_amount_do_not_make_the_ledger_unreadable() -> None:
    most = Resources.parse({"memory": str(2**63 - 1)})
    table = seeded(shown("a", most), shown("b", most), team=amounts(memory="1Gi"))
    again = Table.parse(table.render())
    assert answers(again, request("c", amounts(memory="1"))) == [Exceeded]


def test_case_31_a_full_ledger_is_busy_and_loses_nothing() -> None:
    table = seeded(team=amounts(cpu="100000"))
    table, _ = table.reserve(request(f"g{n}", amounts(cpu="1")) for n in range(MOST_ROWS))
    after, (answer,) = table.reserve([request("one-more", amounts(cpu="1"))])
    assert isinstance(answer, Unavailable)
    assert after == table


def test_case_31_the_size_of_a_ledger_is_that_of_what_is_under_way() -> None:
    table, _ = seeded(team=amounts(cpu="100000")).reserve(request(f"g{n}", amounts(cpu="1")) for n in range(100))
    full = view_of(*(shown(f"g{n}", amounts(cpu="1")) for n in range(100)), at=200, team=amounts(cpu="100000"))
    folded = table.fold(full)
    assert folded.rows == ()
    assert folded.render().summary == "team cpu 100/100000"


def test_a_name_is_refused_in_a_second_api_group_in_view_and_in_rows() -> None:
    table = seeded(shown("a", amounts(cpu="1")), team=amounts(cpu="10"))
    table = table.fold(view_of(shown("a", amounts(cpu="1")), team=amounts(cpu="10")), coming={"a"})
    _, (answer,) = table.reserve([request("a", amounts(cpu="1"), uid="x", group=SIGS_GROUP)])
    assert answer == Exceeded("", taken_in=VOLCANO_GROUP)


def test_a_jobs_row_goes_when_its_group_is_shown_and_until_then_both_are_one_charge() -> None:
    table = seeded(team=amounts(cpu="10"))
    job = request("podgroup-j", amounts(cpu="6"), uid="j", kind=JOB)
    group = request("podgroup-j", amounts(cpu="6"))
    table, given = table.reserve([job, group])
    assert given == (Reserved(), Reserved())
    assert table.render().summary == "team cpu 6/10"
    folded = table.fold(view_of(shown("podgroup-j", amounts(cpu="6")), at=200, team=amounts(cpu="10")))
    assert folded.rows == ()
    assert folded.render().summary == "team cpu 6/10"


def test_case_28_an_older_view_changes_nothing() -> None:
    table, _ = seeded(team=amounts(cpu="10")).reserve([request("a", amounts(cpu="6"))])
    assert table.fold(view_of(at=99, team=amounts(cpu="10"))) is table


def test_case_26_until_a_view_shows_which_quota_holds_the_smallest_counts() -> None:
    table = seeded(team=amounts(cpu="10")).observe_quota("team", "u-team", amounts(cpu="20"), 50)
    raised = table.fold(view_of(team=amounts(cpu="10")))
    assert answers(raised, request("a", amounts(cpu="11"))) == [Exceeded]
    lowered = raised.observe_quota("team", "u-team", amounts(cpu="4"), 50).fold(view_of(team=amounts(cpu="10")))
    assert answers(lowered, request("a", amounts(cpu="5"))) == [Exceeded]


def test_an_overcommitted_namespace_admits_what_does_not_grow_the_sum() -> None:
    table = seeded(shown("a", amounts(cpu="12")), team=amounts(cpu="10", memory="10Gi"))
    assert [each.short for each in table.overcommitted()] == [2 * 10**9]
    assert answers(table, request("b", amounts(cpu="1m")), request("c", amounts(memory="1Gi"))) == [Exceeded, Reserved]


def test_an_unseeded_ledger_is_not_folded_into_use() -> None:
    assert Table().fold(view_of(team=amounts(cpu="10"))) == Table()


def test_a_table_reads_back_as_it_was_written() -> None:
    table, _ = seeded(shown("a", amounts(cpu="1")), team=amounts(cpu="10")).reserve([request("b", amounts(cpu="2"))])
    assert Table.parse(table.render()) == table


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (LedgerData(rows=("nonsense",)), r"data.rows\[0\] 'nonsense': it isn't of the form"),
        (LedgerData(rows=("PodGroup g/a u cpu=1 new",) * 2), r"data.rows\[1\]: the reservation for a is there twice"),
        (LedgerData(seeded_at="x", observed={"podgroups": "abc"}), "data.observed: resourceVersion 'abc'"),
        (LedgerData(seeded_at="x"), "seededAt and observed belong together"),
        (LedgerData(quotas={"q": QuotaTotals(uid="u", hard={"cpu": "-1"})}), "data.quotas.q: cpu: '-1' is negative"),
    ],
)
def test_a_ledger_that_someone_else_wrote_is_refused_whole(data: LedgerData, why: str) -> None:
    with pytest.raises(MalformedLedgerError, match=why):
        Table.parse(data)


def refusal(table: Table, ask: ReservationRequest) -> str:
    _, (answer,) = table.reserve([ask])
    assert isinstance(answer, Exceeded)
    return wording.refusal(ask, answer)


def test_a_refusal_names_each_short_resource_and_the_remedy() -> None:
    hard = amounts(requests_cpu="10", memory="8Gi")
    table = seeded(shown("old", amounts(cpu="9", memory="8Gi")), team=hard)
    assert refusal(table, request("new", amounts(cpu="2", memory="1Gi"))) == (
        'PodGroup "new" requests 2 requests.cpu and 1Gi memory, but quota "team" has 10 requests.cpu hard, 9 reserved,'
        " so 1 is free: short by 1 requests.cpu; 8Gi memory hard, 8Gi reserved, so none is free: short by 1Gi memory;"
        " lower spec.minResources, wait until some of it is free, or raise the quota"
    )


def test_what_no_wait_can_cure_is_not_told_to_wait() -> None:
    assert refusal(seeded(team=amounts(cpu="10")), request("big", amounts(cpu="12"))).endswith(
        "short by 2 cpu; lower spec.minResources or raise the quota"
    )


def test_growth_is_told_as_growth() -> None:
    ask = ReservationRequest("ns", PODGROUP, VOLCANO_GROUP, "a", "u-a", amounts(cpu="11"), "60", amounts(cpu="6"))
    assert refusal(seeded(shown("a", amounts(cpu="6")), team=amounts(cpu="10")), ask).startswith(
        'PodGroup "a" requests 5 cpu more, but quota "team" has 10 cpu hard, 6 reserved, so 4 are free: short by 1 cpu'
    )


def test_other_pods_are_part_of_what_is_taken() -> None:
    totals = Totals("u", amounts(cpu="10"), amounts(cpu="4"), other=amounts(cpu="3"))
    table = Table("2026", {source(VOLCANO_GROUP): 1}, {"team": totals})
    assert "10 cpu hard, 4 reserved, 3 used by other pods, so 3 are free: short by 1 cpu" in refusal(
        table, request("a", amounts(cpu="4"))
    )


def test_a_taken_name_is_told_with_the_api_group_that_has_it() -> None:
    answer = Exceeded("", taken_in=SIGS_GROUP)
    assert wording.refusal(request("a", amounts(cpu="1")), answer) == (
        'PodGroup "a" can\'t be: API group scheduling.sigs.dev has a PodGroup of that name in namespace ns,'
        " and pods name their group without its API group; choose another name"
    )


def test_unreserved_groups_are_known_by_uid() -> None:
    row = Row(PODGROUP, VOLCANO_GROUP, "late", "u-late", amounts(cpu="1"), RowState.UNRESERVED, 60)
    assert Table(rows=(row,)).unreserved == {"u-late"}


# ── pods ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def pod(name: str, group: str, asks: Resources, uid: str = "") -> ReservationRequest:
    return ReservationRequest("ns", POD, group, name, uid or f"u-{name}", asks)


def shown_pod(name: str, group: str, asks: Resources) -> ObservedPod:
    return ObservedPod(f"u-{name}", group, 70, asks)


def test_what_a_group_reserved_is_for_its_own_pods_only() -> None:
    hard, gang = amounts(cpu="10"), shown("gang", amounts(cpu="6"))
    table = seeded(gang, team=hard).fold(view_of(gang, team=hard), coming={"gang"})
    members = [pod(f"m{n}", "gang", amounts(cpu="2")) for n in range(3)]
    assert answers(table, *members, pod("out", "", amounts(cpu="5"))) == [Reserved, Reserved, Reserved, Exceeded]
    assert answers(table, *members, pod("out", "", amounts(cpu="4")), pod("m3", "gang", amounts(cpu="1m"))) == [
        *[Reserved] * 4,
        Exceeded,
    ]


def test_an_elastic_group_pays_for_what_exceeds_its_minimum() -> None:
    hard, gang = amounts(cpu="10"), shown("gang", amounts(cpu="2"))
    table = seeded(gang, shown_pod("m0", "gang", amounts(cpu="5")), team=hard)
    assert table.render().summary == "team cpu 5/10"
    assert answers(table, request("other", amounts(cpu="6")), request("another", amounts(cpu="5"))) == [
        Exceeded,
        Reserved,
    ]


def test_a_group_that_comes_after_its_pods_takes_them_over_in_the_same_write() -> None:
    hard = amounts(cpu="6")
    view = view_of(shown_pod("m0", "gang", amounts(cpu="4")), team=hard)
    table = seeded(shown_pod("m0", "gang", amounts(cpu="4")), team=hard)
    assert answers(table, request("stranger", amounts(cpu="3"))) == [Exceeded]
    after, given = table.fold(view, coming={"gang"}).reserve([request("gang", amounts(cpu="6"))])
    assert given == (Reserved(),)
    assert after.render().summary == "team cpu 6/6"


def test_until_a_view_can_fold_a_member_is_charged_more_than_is_due_and_never_less() -> None:
    hard, gang = amounts(cpu="10"), shown("gang", amounts(cpu="6"))
    table, _ = seeded(gang, team=hard).reserve([pod("m0", "gang", amounts(cpu="2"))])
    assert table.render().summary == "team cpu 8/10"
    folded = table.fold(view_of(gang, team=hard))
    assert folded.render().summary == "team cpu 6/10"


def test_case_29_a_pod_and_a_group_for_the_same_place_are_served_in_order() -> None:
    table = seeded(team=amounts(cpu="4"))
    asks = [pod("out", "", amounts(cpu="3")), request("gang", amounts(cpu="2"))]
    assert answers(table, *asks) == [Reserved, Exceeded]
    assert answers(table, *reversed(asks)) == [Reserved, Exceeded]


def test_case_17_a_sidecar_makes_members_cost_what_exceeds_the_minimum() -> None:
    hard, gang = amounts(cpu="6"), shown("gang", amounts(cpu="4"))
    table = seeded(gang, team=hard).fold(view_of(gang, team=hard), coming={"gang"})
    members = [pod(f"m{n}", "gang", amounts(cpu="1500m")) for n in range(5)]
    assert answers(table, *members) == [Reserved] * 4 + [Exceeded]


def test_pods_are_counted_against_a_limit_of_pods() -> None:
    one = amounts(pods="1")
    table = seeded(shown_pod("a", "", one), shown_pod("b", "gang", one), team=amounts(pods="3", count__pods="3"))
    assert answers(table, pod("c", "", one), pod("d", "gang", one)) == [Reserved, Exceeded]


def test_pods_of_a_group_that_holds_nothing_are_others_to_all() -> None:
    hard = amounts(cpu="4")
    late = ObservedGroup(VOLCANO_GROUP, "late", "u-late", 150, amounts(cpu="9"), absent_at=120)
    table = seeded(team=hard).fold(view_of(late, shown_pod("m", "late", amounts(cpu="3")), at=200, team=hard))
    assert table.unreserved == {"u-late"}
    assert table.render().summary == "team cpu 3/4"


def test_a_pods_refusal_says_what_its_group_has_not_reserved() -> None:
    hard, gang = amounts(cpu="4"), shown("gang", amounts(cpu="2"))
    view = view_of(gang, shown_pod("x", "", amounts(cpu="2")), team=hard)
    table = seeded(gang, shown_pod("x", "", amounts(cpu="2")), team=hard).fold(view, coming={"gang"})
    assert refusal(table, pod("m", "gang", amounts(cpu="3"))) == (
        'exceeded quota: Pod "m" requests 1 cpu beyond what PodGroup "gang" has reserved, but quota "team" has 4 cpu hard, 2 reserved,'
        " 2 used by other pods, so none is free: short by 1 cpu; lower its requests, wait until some of it is free,"
        " or raise the quota"
    )
    words = 'exceeded quota: Pod "y" requests 1 cpu, but quota "team" has 4'
    assert refusal(table, pod("y", "", amounts(cpu="1"))).startswith(words)


def test_pods_that_are_being_deleted_are_told_apart_from_those_that_stay() -> None:
    hard, now = amounts(cpu="4"), datetime(2026, 5, 4, tzinfo=UTC)
    ends = datetime(2026, 5, 4, 14, 3, 20, tzinfo=UTC).timestamp()
    pods = [shown_pod(name, "", amounts(cpu="1")) for name in ("stays", "soon-gone", "gone")]
    leaving = [pods[0], replace(pods[1], gone_by=ends), replace(pods[2], gone_by=ends - 10)]
    view = view_of(*leaving, team=hard)
    (answer,) = decide(seeded(*leaving, team=hard), view, [pod("new", "", amounts(cpu="2"))], now).answers
    assert isinstance(answer, Exceeded)
    assert "3 used by other pods (2 by pods that are being deleted, until 14:03:20 UTC), so 1 is free" in (
        wording.refusal(pod("new", "", amounts(cpu="2")), answer)
    )
    view.drop_pod(pods[1].uid)
    view.drop_pod(pods[2].uid)
    assert list(view.leaving()) == []


def test_a_new_pod_of_a_group_that_was_refused_its_reservation_is_refused_until_the_group_fits() -> None:
    late = ObservedGroup(VOLCANO_GROUP, "late", "u-late", 150, amounts(cpu="12"), absent_at=120)
    member = pod("m", "late", amounts(cpu="1"))

    def table(cpu: str) -> Table:
        return seeded(team=amounts(cpu=cpu)).fold(view_of(late, at=200, team=amounts(cpu=cpu)), coming={"late"})

    assert refusal(table("10"), member) == (
        'exceeded quota: PodGroup "late" of Pod "m" holds no reservation, because quota "team" is short by 2 cpu; its pods'
        " are admitted once that is free: lower its minimum, delete other PodGroups or raise the quota"
    )
    # Others, and what asks for nothing that a quota limits, have nothing to do with it.
    others = pod("o", "", amounts(cpu="1")), pod("n", "other", amounts(cpu="1")), pod("f", "late", amounts(memory="1"))
    assert answers(table("10"), *others) == [Reserved] * 3
    assert answers(table("12"), member) == [Reserved]


def test_a_pod_is_not_refused_for_a_group_that_nobody_has_seen_or_that_holds_nothing_by_its_own_choice() -> None:
    hard = amounts(cpu="10")
    # Completed, or Pending under the policy Queue: as views show them, they hold nothing.
    queued = ObservedGroup(VOLCANO_GROUP, "queued", "u-queued", 150, Resources({}), absent_at=120)
    table = seeded(team=hard).fold(view_of(queued, at=200, team=hard), coming={"queued", "unseen"})
    asks = [pod("a", "queued", amounts(cpu="1")), pod("b", "unseen", amounts(cpu="1"))]
    assert answers(table, *asks) == [Reserved] * 2


def test_a_pod_that_may_grow_keeps_its_group_beside_it_so_that_a_fold_charges_no_more() -> None:
    hard, gang = amounts(cpu="4"), shown("gang", amounts(cpu="3"))
    view = view_of(gang, shown_pod("m", "gang", Resources({})), team=hard)
    table = seeded(gang, shown_pod("m", "gang", Resources({})), team=hard).fold(view, coming={"gang"})
    grow = ReservationRequest("ns", POD, "gang", "m", "u-m", amounts(cpu="3"), "70", Resources({}))
    table, given = table.reserve([grow])
    assert given == (Reserved(),)
    assert table.fold(view).render().summary == "team cpu 3/4"


# ── what is limited, and what comes to be ────────────────────────────────────────────────────────────────────────


def marks(table: Table) -> dict[str, Resources]:
    return {row.uid: row.amounts for row in table.rows if row.is_mark}


def test_rows_hold_only_what_a_quota_limits() -> None:
    invented = {f"example.com/r{n}": "1" for n in range(500)}
    table, answers = seeded(team=amounts(requests_cpu="10")).reserve(
        [request("a", amounts(memory="1Gi", cpu="1", **invented)), request("b", amounts(memory="1Gi"))]
    )
    assert answers == (Reserved(), Reserved(recorded=False))
    assert [str(row) for row in table.rows] == [f"PodGroup {VOLCANO_GROUP}/a u-a cpu=1 new"]


def test_what_a_quota_comes_to_limit_waits_for_the_rows_that_do_not_tell_of_it() -> None:
    before, _ = seeded(team=amounts(cpu="10")).reserve([request("a", amounts(cpu="1", memory="8Gi"))])
    more = amounts(cpu="10", memory="10Gi")
    table = before.observe_quota("team", "u-team", more, 50).fold(view_of(team=amounts(cpu="10")))
    assert marks(table) == {UNSETTLED: amounts(memory="10Gi")}
    table, answers = table.reserve([request("b", amounts(memory="8Gi")), request("c", amounts(cpu="1"))])
    assert [type(answer) for answer in answers] == [Unavailable, Reserved]
    assert "a quota has come to limit memory" in answers[0].reason
    assert Table.parse(table.render()) == table
    # They are there: the totals tell of them, and one more of 8Gi is refused for what it is.
    stored = [shown("a", amounts(cpu="1", memory="8Gi"), 160), shown("c", amounts(cpu="1"), 161)]
    table = table.fold(view_of(*stored, at=200, team=more))
    assert not marks(table)
    assert [type(answer) for answer in table.reserve([request("b", amounts(memory="8Gi"))])[1]] == [Exceeded]


def test_a_quota_of_new_scopes_waits_too_and_a_larger_one_does_not() -> None:
    before, _ = seeded(team=amounts(cpu="10")).reserve([request("a", amounts(cpu="1"))])
    larger = before.observe_quota("team", "u-team", amounts(cpu="20"), 50).fold(view_of(team=amounts(cpu="10")))
    assert not marks(larger)
    scoped = Resources.parse({"cpu@Terminating": "5"})
    table = before.observe_quota("team", "u-team", scoped, 50).fold(view_of(team=amounts(cpu="10")))
    assert marks(table) == {UNSETTLED: scoped}


def test_where_a_ledger_waits_the_mark_ends_with_its_deadline_only() -> None:
    more, view = amounts(cpu="10", memory="10Gi"), view_of(at=200, team=amounts(cpu="10"))
    table = seeded(team=amounts(cpu="10")).observe_quota("team", "u-team", more, 50).fold(view, waits=True)
    assert marks(table) == {UNSEEDED: amounts(memory="10Gi")}
    after = view_of(at=300, team=more)
    again = table.fold(after, waits=True)
    assert marks(again) == marks(table)
    assert answers(again, request("b", amounts(memory="1Gi"))) == [Unavailable]
    # Its limits may change meanwhile: the mark is the same row, by which its time is counted.
    lowered = again.observe_quota("team", "u-team", amounts(memory="5Gi"), 50).fold(after, waits=True)
    assert marks(lowered) == marks(table)
    seeded_again = again.fold(after, expired=set(again.rows), waits=True)
    assert not seeded_again.rows
    assert answers(seeded_again, request("b", amounts(memory="1Gi"))) == [Reserved]


def test_a_mark_goes_with_the_quota() -> None:
    more = amounts(cpu="10", memory="10Gi")
    table = seeded(team=amounts(cpu="10")).fold(view_of(at=200, team=more), waits=True)
    assert marks(table)
    assert not table.fold(view_of(at=300), waits=True).rows


@pytest.mark.parametrize("facts", ["terminating", "best-effort", "plain", "class=high", "class=high,terminating", ""])
@pytest.mark.parametrize("cpu", ["2", "4", "7", "11"])
def test_what_a_cycle_takes_for_free_is_free_in_each_scope_that_a_group_counts_in(facts: str, cpu: str) -> None:
    hard = Resources.parse({"cpu": "10", "cpu@Terminating": "3", "cpu@PriorityClass=high": "6"})
    table, asks = seeded(team=hard), amounts(cpu=cpu)
    for before in ("", "terminating"):
        # One after the other, as a cycle admits them and as the ledger answers.
        left, first = Headroom(table), request("first", amounts(cpu="1"))
        stored, (answer,) = table.reserve([replace(first, scope_facts=before)])
        assert answer == Reserved()
        left.take(first.group, first.name, first.uid, first.amounts, before)
        lacks = left.lacks(VOLCANO_GROUP, "a", "u-a", asks, facts)
        (answer,) = stored.reserve([replace(request("a", asks), scope_facts=facts)])[1]
        assert bool(lacks) == isinstance(answer, Exceeded)
        assert [each.resource for each in lacks] == [
            each.resource for each in (answer.shortages if isinstance(answer, Exceeded) else ())
        ]


def test_case_31_a_small_row_of_another_user_gets_in_beside_what_is_folded_and_long() -> None:
    """Rows that a fold wrote, and the totals, are bytes of the same object."""
    hard = amounts(**{f"example.com/{'r' * 40}{n}": "1000000" for n in range(64)}, cpu="1000000")
    long = Resources(dict.fromkeys(hard, 10**9))
    stored = [shown(f"long-{n}", long) for n in range(40)]
    table, given = seeded(*stored, team=hard).reserve(
        request(each.name, long, uid=f"again-{each.name}") for each in stored
    )
    assert set(given) == {Reserved()}
    folded = table.fold(view_of(*stored, at=200, team=hard))
    assert sum(row.state is RowState.SEEN for row in folded.rows) == 40
    assert len(msgspec.json.encode(folded.render())) <= 1_400_000
    *_, last = folded.reserve(request(f"offender-{n}", long) for n in range(80))[1]
    assert isinstance(last, Unavailable)
    full, _ = folded.reserve(request(f"offender-{n}", long) for n in range(80))
    assert answers(full, request("offender", long), request("small", amounts(cpu="1"))) == [Unavailable, Reserved]


def test_case_31_a_fold_that_would_outgrow_the_object_waits_until_what_is_under_way_has_ended() -> None:
    hard = amounts(**{f"example.com/{'r' * 40}{n}": "1000000" for n in range(64)}, cpu="1000000")
    long = Resources(dict.fromkeys(hard, 10**9))
    stored = [shown(f"g{n}", long) for n in range(400)]
    # Small rows, each of a pod whose group is long: a fold writes the group's row, too.
    pods = [request(f"p{n}", amounts(cpu="1"), kind=POD, group=f"g{n}") for n in range(400)]
    table, given = seeded(*stored, team=hard).reserve(pods)
    assert set(given) == {Reserved()}
    later = view_of(*stored, at=200, team=hard)
    assert table.fold(later) is table
    assert len(msgspec.json.encode(table.render())) <= 1_400_000
    assert answers(table, request("small", amounts(cpu="1"))) == [Reserved]
    assert len(table.fold(later, expired=table.rows[:390]).rows) == 20


def test_case_31_long_rows_fill_half_of_a_ledger_and_leave_the_rest_to_others() -> None:
    hard = amounts(**{f"example.com/{'r' * 40}{n}": "1000000" for n in range(64)}, cpu="1000000")
    asks = Resources(dict.fromkeys(hard, 10**9))
    table, given = seeded(team=hard).reserve(request(f"long-{n}", asks) for n in range(400))
    told = [answer for answer in given if isinstance(answer, Unavailable)]
    assert told
    assert "no room for the" in told[0].reason
    assert sum(len(str(row)) for row in table.rows) <= MOST_BYTES // 2
    table, given = table.reserve(request(f"g{n}", amounts(cpu="1")) for n in range(1000))
    assert set(given) == {Reserved()}
    assert sum(len(str(row)) for row in table.rows) <= MOST_BYTES


def test_the_size_of_a_row_is_never_less_than_its_text() -> None:
    largest = Resources({"cpu": (2**63 - 1) * 10**9 - 1, "memory": 1, "x.io/a": (2**63 - 1) * 10**9})
    for row in (
        Row(PODGROUP, VOLCANO_GROUP, "a", "u", largest, RowState.UNRESERVED, 2**63, "plain"),
        Row(POD, "", "a", "u", Resources({})),
    ):
        assert len(str(row)) + 3 <= row.size <= ORDINARY_ROW


def test_what_quotas_limit_leaves_less_room_for_rows_and_the_object_is_never_too_large() -> None:
    # Each name is in the ledger twice for each quota: as a limit, and as what is held of it.
    names = {f"example.com/{'r' * 40}{n}": "1000000" for n in range(600)}
    quotas = {f"team-{n}": amounts(**names, cpu="1000000") for n in range(5)}
    group = shown("large", Resources(dict.fromkeys(quotas["team-0"], 10**9)))
    table, given = seeded(group, **quotas).reserve(
        request(f"g-{n:04}-{'x' * 100}", amounts(cpu="1")) for n in range(1000)
    )
    kinds_of_answers = {type(answer) for answer in given}
    assert kinds_of_answers == {Reserved, Unavailable}
    assert "no room for the" in next(answer.reason for answer in given if isinstance(answer, Unavailable))
    assert len(msgspec.json.encode(table.render())) <= 1_400_000


def waiting(name: str, wants: Resources, revision: int = 60) -> ObservedGroup:
    return ObservedGroup(VOLCANO_GROUP, name, f"u-{name}", revision, Resources({}), wanted=wants)


def test_a_group_that_waits_for_its_minimum_holds_nothing_and_its_pods_are_refused() -> None:
    # As a process sees it that listed the group, and so doesn't know since when there is one.
    groups = shown("has", amounts(cpu="4")), waiting("web", amounts(cpu="8"))
    table = seeded(*groups, team=amounts(cpu="10"))
    assert table.quotas["team"].reserved == amounts(cpu="4")
    assert table.unreserved == {"u-web"}
    ((group, (lack,)),) = table.outside(view_of(*groups, team=amounts(cpu="10"))).items()
    assert (group.name, lack.short) == ("web", 2 * 10**9)
    pod = ReservationRequest("ns", POD, "web", "web-0", "u-web-0", amounts(cpu="1"))
    (refused,) = table.reserve([pod])[1]
    assert isinstance(refused, Exceeded)
    assert refused.of_group
    assert answers(table, request("other", amounts(cpu="6"))) == [Reserved]
    table.validate()


def test_what_the_pods_of_a_group_that_waits_take_already_is_not_asked_for_twice() -> None:
    # They were made before the group was, as those of a workload that is older than Muster.
    own = [ObservedPod(f"p{number}", "db", 60, amounts(cpu="1")) for number in range(4)]
    objects = shown("has", amounts(cpu="13")), waiting("db", amounts(cpu="4")), *own
    hard = {"team": amounts(cpu="18")}
    table, view = seeded(*objects, **hard), view_of(*objects, **hard)
    assert table.quotas["team"].other == amounts(cpu="4")
    assert list(table.outside(view).values()) == [()]
    less = {"team": amounts(cpu="16")}
    for older in ({}, {"at": 1}):  # One that is older, or of lists, isn't folded in.
        ((lack,),) = seeded(*objects, **less).outside(view_of(*objects, **older, **less)).values()
        assert lack.short == 10**9
    asks = ReservationRequest("ns", PODGROUP, VOLCANO_GROUP, "db", "u-db", amounts(cpu="4"), "60", Resources({}))
    assert answers(table.fold(view, coming={"db"}), asks) == [Reserved]


def test_what_a_group_waited_for_is_reserved_once_it_states_that_and_by_one_alone() -> None:
    groups = waiting("web", amounts(cpu="8")), waiting("api", amounts(cpu="8"))
    hard = {"team": amounts(cpu="10")}
    table = seeded(*groups, **hard)
    assert set(table.outside(view_of(*groups, **hard)).values()) == {()}
    # Until one of them states it, their pods take nothing of what either needs whole.
    pods = [ReservationRequest("ns", POD, each.name, "p", f"p-{each.name}", amounts(cpu="1")) for each in groups]
    assert answers(table, *pods) == [Unavailable, Unavailable]
    requests = [
        ReservationRequest(
            "ns", PODGROUP, VOLCANO_GROUP, each.name, each.uid, each.wanted, str(each.revision), Resources({})
        )
        for each in groups
    ]
    table, granted = table.reserve(requests)
    assert list(map(type, granted)) == [Reserved, Exceeded]
    # What is granted may still not be stored, so its pods wait until it is seen to state that.
    folded = table.fold(view_of(*groups, at=101, **hard))
    assert folded.unreserved == {"u-web", "u-api"}
    short = folded.outside(view_of(*groups, at=101, **hard))
    assert {each.name: bool(lacks) for each, lacks in short.items()} == {"web": False, "api": True}
    pod = ReservationRequest("ns", POD, "web", "web-0", "u-web-0", amounts(cpu="1"))
    assert answers(folded, pod, request("small", amounts(cpu="2"))) == [Unavailable, Reserved]
    stated = shown("web", amounts(cpu="8"), revision=102)
    stored = view_of(stated, groups[1], at=103, **hard)
    folded = folded.fold(stored)
    assert folded.quotas["team"].reserved == amounts(cpu="8")
    assert folded.unreserved == {"u-api"}
    assert answers(folded.fold(stored, coming={"web"}), pod) == [Reserved]
    assert answers(folded, request("small", amounts(cpu="2")), request("more", amounts(cpu="1"))) == [
        Reserved,
        Exceeded,
    ]
    folded.validate()
