"""From body to answer: confirming, reserving, giving up in time. In virtual time where something waits."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable
from typing import Any

import pytest

from muster.kube.errors import UnreachableError
from muster.ledger.reservations import Exceeded, Observed, Reserved, Shortage, Unavailable
from muster.model import kinds
from muster.model.amounts import NANO, Resources
from muster.sandbox import virtual_time
from webhooks.admission import Admission, answer_budget

QUEUE = "/apis/scheduling.volcano.sh/v1beta1/queues/"


@pytest.fixture
def answered(admission: Admission) -> Callable[..., Any]:
    """Gives the response part of the answer to a body, in virtual time."""

    def answer(path: str, body: bytes, timeout: str = "5s") -> Any:
        status, headers, whole = virtual_time.run(admission.handle(path, {"timeout": timeout}, body))
        assert (status, headers["Content-Type"]) == (200, "application/json")
        return json.loads(whole)["response"]

    return answer


def test_a_queue_and_its_group_from_one_file_pass_at_once(
    answered: Any, review_of: Any, podgroup: Any, api: Any
) -> None:
    api.answers[QUEUE + "fresh"] = {"metadata": {"name": "fresh"}, "status": {"state": "Open"}}
    assert answered("/validate/podgroups", review_of(podgroup(queue="fresh")))["allowed"]
    assert api.asked == [QUEUE + "fresh"]


def test_a_refusal_is_confirmed_by_one_read_and_stands(answered: Any, review_of: Any, podgroup: Any, api: Any) -> None:
    response = answered("/validate/podgroups", review_of(podgroup(queue="nope")))
    assert (response["allowed"], response["status"]["code"]) == (False, 403)
    assert api.asked == [QUEUE + "nope"]


def test_what_the_fresh_object_rests_on_is_read_too(answered: Any, review_of: Any, podgroup: Any, api: Any) -> None:
    selector = {"matchLabels": {"team": "ml"}}
    api.answers[QUEUE + "gpu"] = {"metadata": {"name": "gpu"}, "spec": {"namespaceSelector": selector}}
    api.answers["/api/v1/namespaces/dev"] = {"metadata": {"name": "dev", "labels": {"team": "ml"}}}
    assert answered("/validate/podgroups", review_of(podgroup(queue="gpu")))["allowed"]
    assert api.asked == [QUEUE + "gpu", "/api/v1/namespaces/dev"]


def test_children_that_are_gone_already_do_not_keep_a_queue(
    answered: Any, review_of: Any, queue: Any, cluster: Any
) -> None:
    cluster.queue("team", parent="dept")
    assert answered("/validate/queues", review_of(queue("dept"), "DELETE"))["allowed"]


def test_a_refusal_that_no_one_can_confirm_is_not_made(answered: Any, review_of: Any, podgroup: Any, api: Any) -> None:
    api.answers[QUEUE + "nope"] = UnreachableError("connection refused", maybe_applied=False)
    status = answered("/validate/podgroups", review_of(podgroup(queue="nope")))["status"]
    assert (status["code"], status["details"]["retryAfterSeconds"]) == (429, 1)
    assert status["message"] == "Muster could not confirm a refusal with the API server: try again"


def test_an_approval_asks_the_api_server_nothing(answered: Any, review_of: Any, podgroup: Any, api: Any) -> None:
    assert answered("/validate/podgroups", review_of(podgroup()))["allowed"]
    assert api.asked == []


# ── the ledger ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_what_is_to_be_reserved_is_asked_of_the_ledger_with_the_deadline(
    answered: Any, review_of: Any, podgroup: Any, ledger: Any
) -> None:
    response = answered("/validate/podgroups", review_of(podgroup(minResources={"cpu": "2"}), dryRun=True))
    ((request, deadline, dry_run),) = ledger.asked
    assert (request.name, deadline, dry_run) == ("gang", 4.5, True)
    assert response["auditAnnotations"] == {"reserved": "2 cpu"}


def test_nothing_is_audited_as_reserved_where_no_quota_limits_it(
    answered: Any, review_of: Any, podgroup: Any, ledger: Any
) -> None:
    ledger.answer = Reserved(recorded=False)
    response = answered("/validate/podgroups", review_of(podgroup(minResources={"cpu": "2"})))
    assert response == {"uid": "6f0c5b4e", "allowed": True}


def test_a_refusal_of_the_ledger_names_hard_reserved_and_asked(
    answered: Any, review_of: Any, podgroup: Any, ledger: Any
) -> None:
    shortage = Shortage("cpu", 10 * NANO, 8 * NANO, 0, 3 * NANO, 1 * NANO, "team")
    ledger.answer = Exceeded("team", (shortage,), (("other", Resources.parse({"cpu": 8})),))
    status = answered("/validate/podgroups", review_of(podgroup(minResources={"cpu": "3"})))["status"]
    assert (status["code"], status["reason"]) == (403, "Forbidden")
    assert status["message"] == (
        'PodGroup "gang" requests 3 cpu, but quota "team" has 10 cpu hard, 8 reserved (other 8), so 2 are free:'
        " short by 1 cpu; lower spec.minResources, wait for other, or raise the quota"
    )


def test_a_refusal_of_the_ledger_names_workloads_and_not_the_names_of_groups_made_for_them(
    answered: Any, review_of: Any, podgroup: Any, job: Any, ledger: Any, cluster: Any
) -> None:
    def reference(kind: str, name: str) -> dict[str, Any]:
        return {"apiVersion": "apps/v1", "kind": kind, "name": name, "uid": f"uid-{name}", "controller": True}

    # One group that is there, one that was reserved for when its Job was created, and one that people named.
    made = {"ownerReferences": [reference("Deployment", "web")]}
    cluster.put(kinds.PODGROUPS, "podgroup-uid-web", "dev", metadata=made)
    cluster.put(kinds.JOBS, "early", "dev")
    held = tuple((name, Resources.parse({"cpu": 2})) for name in ("podgroup-uid-web", "podgroup-uid-early", "mine"))
    shortage = Shortage("cpu", 8 * NANO, 6 * NANO, 0, 3 * NANO, 1 * NANO, "team")
    ledger.answer = Exceeded("team", (shortage,), held)
    rest = (
        ' requests 3 cpu, but quota "team" has 8 cpu hard, 6 reserved (Deployment web 2, Job early 2, mine 2), so 2 are'
        " free: short by 1 cpu; lower {}, wait for Deployment web, or raise the quota"
    )
    coming = podgroup(
        "podgroup-uid-x", minResources={"cpu": "3"}, metadata={"ownerReferences": [reference("Job", "x")]}
    )
    refused = answered("/validate/podgroups", review_of(coming))["status"]["message"]
    assert refused == "Job x" + rest.format("spec.minResources")
    asked = job(annotations={"scheduling.volcano.sh/group-min-resources": '{"cpu": "3"}'})
    refused = answered("/validate/jobs", review_of(asked))["status"]["message"]
    assert refused == "Job train" + rest.format("what its pods request")


def test_a_refused_object_never_reaches_the_ledger(answered: Any, review_of: Any, podgroup: Any, ledger: Any) -> None:
    asked = podgroup(queue="nope", minResources={"cpu": "3"})
    assert not answered("/validate/podgroups", review_of(asked))["allowed"]
    assert ledger.asked == []


def test_a_busy_ledger_says_try_again(answered: Any, review_of: Any, podgroup: Any, ledger: Any) -> None:
    ledger.answer = Unavailable("too many at once")
    status = answered("/validate/podgroups", review_of(podgroup(minResources={"cpu": "3"})))["status"]
    assert (status["code"], status["message"], status["details"]["retryAfterSeconds"]) == (429, "too many at once", 1)


def test_a_ledger_that_never_answers_is_not_waited_for(
    answered: Any, review_of: Any, podgroup: Any, ledger: Any
) -> None:
    ledger.answer = None
    status = answered("/validate/podgroups", review_of(podgroup(minResources={"cpu": "3"})))["status"]
    assert (status["code"], status["message"]) == (429, "Muster could not decide in time: try again")


def test_a_ledger_that_says_at_the_deadline_what_it_waited_for_is_heard(
    answered: Any, review_of: Any, podgroup: Any, ledger: Any, monkeypatch: Any
) -> None:
    async def reserve(request: Any, *, deadline: float, dry_run: bool) -> Unavailable:
        try:
            async with asyncio.timeout_at(deadline):
                return await asyncio.Future[Unavailable]()
        except TimeoutError:
            return Unavailable("the API server forbids it")

    monkeypatch.setattr(ledger, "reserve", reserve)
    status = answered("/validate/podgroups", review_of(podgroup(minResources={"cpu": "3"})))["status"]
    assert (status["code"], status["message"]) == (429, "the API server forbids it")


def test_a_changed_quota_is_learned_and_warned_about_where_reservations_exceed_it(
    answered: Any, review_of: Any, ledger: Any
) -> None:
    ledger.learned = Observed((Shortage("cpu", 4 * NANO, 8 * NANO, 0, 0, 4 * NANO, "team"),))
    metadata = {"name": "team", "namespace": "dev", "uid": "u"}
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": metadata, "spec": {"hard": {"cpu": "4"}}}
    response = answered("/validate/resourcequotas", review_of(quota))
    assert response["allowed"]
    assert response["warnings"] == [
        'quota "team" has 4 cpu hard, 8 reserved: short by 4 cpu; no more is admitted until it fits'
    ]
    assert ledger.asked == [("dev", "team", "u", Resources.parse({"cpu": 4}), 4.5, False)]
    ledger.learned = Unavailable("later")
    assert answered("/validate/resourcequotas", review_of(quota))["status"]["code"] == 429


# ── what goes wrong ──────────────────────────────────────────────────────────────────────────────────────────────


def test_a_failure_of_ours_is_a_denial_with_the_uid_logged_once(
    answered: Any, review_of: Any, podgroup: Any, ledger: Any, caplog: Any
) -> None:
    ledger.answer = ZeroDivisionError("division by zero")
    with caplog.at_level(logging.ERROR):
        response = answered("/validate/podgroups", review_of(podgroup(minResources={"cpu": "3"})))
    assert (response["uid"], response["allowed"], response["status"]["code"]) == ("6f0c5b4e", False, 500)
    assert response["status"]["message"] == (
        "Muster failed on podgroups.scheduling.volcano.sh dev/gang: its log names the reason by uid 6f0c5b4e"
    )
    (record,) = [record for record in caplog.records if record.exc_info]
    assert record.uid == "6f0c5b4e"


def test_an_object_of_another_shape_is_invalid_to_a_validator_and_none_of_a_mutators_business(
    answered: Any, review_of: Any, podgroup: Any
) -> None:
    body = review_of(podgroup(minMember="three"))
    status = answered("/validate/podgroups", body)["status"]
    assert (status["code"], status["details"]["causes"][0]["field"]) == (422, "spec.minMember")
    assert answered("/mutate/podgroups", body) == {"uid": "6f0c5b4e", "allowed": True}


async def test_what_is_no_review_gets_400_and_what_is_no_path_404(admission: Admission) -> None:
    status, _, text = await admission.handle("/validate/pods", {}, b"{}")
    assert (status, text) == (
        400,
        b"expected an AdmissionReview of admission.k8s.io/v1, not no kind of no apiVersion\n",
    )
    assert (await admission.handle("/validate/nodes", {}, b"{}"))[0] == 404


@pytest.mark.parametrize(
    ("timeout", "seconds"),
    [
        ("5s", 4.5),
        ("10s", 9.5),
        ("500ms", 0.25),
        ("1.5s", 1.0),
        ("", 9.5),
        ("soon", 9.5),
        ("-5s", 9.5),
        ("1" * 99, 9.5),
        ("999999s", 29.5),
    ],
)
def test_the_answer_comes_before_the_caller_gives_up(timeout: str, seconds: float) -> None:
    assert answer_budget(timeout) == seconds


def test_a_refusal_is_a_line_at_info_and_an_approval_one_at_debug(
    answered: Any, review_of: Any, podgroup: Any, caplog: Any
) -> None:
    with caplog.at_level(logging.DEBUG, "muster.webhooks"):
        answered("/validate/podgroups", review_of(podgroup(queue="nope")))
        answered("/validate/podgroups", review_of(podgroup()))
    refused, allowed = caplog.records
    assert (refused.levelname, allowed.levelname) == ("INFO", "DEBUG")
    assert refused.getMessage().startswith('CREATE: queue "nope" (spec.queue) does not exist')
    assert (refused.verdict, refused.reason, allowed.verdict) == ("denied", "queue-missing", "allowed")
    for record in (refused, allowed):
        assert (record.uid, record.user) == ("6f0c5b4e", "alice")
        assert record.object == "podgroups.scheduling.volcano.sh dev/gang"
        assert record.ms >= 0


def test_what_an_object_holds_is_not_logged(
    answered: Any, review_of: Any, pod: Any, podgroup: Any, caplog: Any
) -> None:
    secret = "tr0ub4dor"  # as somebody writes it into an environment variable
    worker = pod(annotations={"password": secret})
    worker["spec"]["containers"][0]["env"] = [{"name": "PASSWORD", "value": secret}]
    with caplog.at_level(logging.DEBUG, "muster.webhooks"):
        answered("/validate/pods", review_of(worker))
        answered("/mutate/pods", review_of(worker))
        answered("/validate/podgroups", review_of(podgroup(queue="nope", metadata={"annotations": {"token": secret}})))
    assert len(caplog.records) == 3
    assert not [record for record in caplog.records if secret in str(vars(record))]


def test_answers_are_counted_by_bounded_labels(
    answered: Any, review_of: Any, podgroup: Any, admission: Admission
) -> None:
    answered("/validate/podgroups", review_of(podgroup(queue="nope")))
    answered("/validate/podgroups", review_of(podgroup(), "SING", old=podgroup()))

    def counted(name: str, **labels: str) -> float | None:
        return admission.metrics.registry.get_sample_value(name, labels)

    reviews = {"webhook": "/validate/podgroups"}
    assert counted("muster_webhook_reviews_total", **reviews, operation="CREATE", verdict="denied") == 1
    assert counted("muster_webhook_refusals_total", **reviews, reason="queue-missing") == 1
    # From the start: Prometheus sees no increase of what wasn't there before.
    assert counted("muster_webhook_refusals_total", **reviews, reason="failed") == 0
    assert counted("muster_webhook_reviews_total", **reviews, operation="other", verdict="malformed") == 0
    assert counted("muster_webhook_reviews_total", **reviews, operation="other", verdict="allowed") == 1
    assert counted("muster_webhook_review_seconds_count", **reviews) == 2
    assert counted("muster_webhook_confirmations_total", outcome="refused") == 1
    assert counted("muster_webhook_in_flight") == 0


def test_a_name_held_in_another_api_group_is_confirmed(
    answered: Any, review_of: Any, podgroup: Any, cluster: Any
) -> None:
    cluster.put(kinds.LEGACY_PODGROUPS[0], "gang", "dev")
    assert answered("/validate/podgroups", review_of(podgroup()))["allowed"]


def test_whatever_callers_send_the_series_are_bounded(
    answered: Any, review_of: Any, podgroup: Any, queue: Any, admission: Admission
) -> None:
    def series() -> set[tuple[str, ...]]:
        families = admission.metrics.registry.collect()
        return {(each.name, *each.labels.values()) for family in families for each in family.samples}

    def ask(word: str) -> None:
        answered("/validate/podgroups", review_of(podgroup(word, queue=word), word, userInfo={"username": word}))
        answered("/validate/queues", review_of(queue(word, parent=word)))

    ask('a"} 1\nforged_total{x="')
    before = series()
    for number in range(50):
        ask(f"name-{number}")
    assert series() == before


# ── namespaces that a forged review names ────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("namespace", ["kube-system", "kube-node-lease"])
def test_a_namespace_that_is_exempt_gets_no_ledger(
    answered: Any, review_of: Any, podgroup: Any, cluster: Any, ledger: Any, namespace: str
) -> None:
    cluster.namespace(namespace)
    forged = podgroup(metadata={"namespace": namespace}, minResources={"cpu": "2"})
    assert answered("/validate/podgroups", review_of(forged))["allowed"]
    assert ledger.asked == []


def test_a_namespace_that_does_not_exist_gets_no_ledger(
    answered: Any, review_of: Any, podgroup: Any, ledger: Any, api: Any
) -> None:
    forged = podgroup(metadata={"namespace": "nowhere"}, minResources={"cpu": "2"})
    response = answered("/validate/podgroups", review_of(forged))
    assert (response["status"]["code"], response["status"]["message"]) == (
        429,
        "namespace 'nowhere' does not exist: create it first",
    )
    assert api.asked == ["/api/v1/namespaces/nowhere"]
    assert ledger.asked == []


def test_a_namespace_that_the_cache_has_yet_to_see_is_read(
    answered: Any, review_of: Any, podgroup: Any, ledger: Any, api: Any
) -> None:
    api.answers["/api/v1/namespaces/new"] = {"metadata": {"name": "new", "uid": "uid-new"}}
    group = podgroup(metadata={"namespace": "new"}, minResources={"cpu": "2"})
    assert answered("/validate/podgroups", review_of(group))["allowed"]
    assert len(ledger.asked) == 1
