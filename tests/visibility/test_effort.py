"""How long an answer may take: a cluster in which hundreds wait, and one more tenant who asks."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from asked import POLICY, asked, gang, key, made, node, queue

from muster.cli import visible
from muster.cli.installation import crds
from muster.visibility import answers
from muster.visibility import questions as asking
from muster.visibility.questions import Questions
from muster.whatif import endings, tenants
from muster.whatif.cluster import WhatIfCluster
from muster.whatif.effort import Effort
from muster.whatif.why import ask

RUNNING, WAITING = 12, 20
TEAM = made("v1", "Namespace", {"name": "team", "uid": "team"})
WANTED = gang("zz", [3], "lab")


def crowded(*more: Any) -> WhatIfCluster:
    """A full node; many in line for it, who run one after the other once somebody ends."""
    runs = [each for number in range(RUNNING) for each in gang(f"runs-{number}", [1], "lab", "node-0")]
    waits = [each for number in range(WAITING) for each in gang(f"waits-{number:02}", [3], "lab")]
    objects = [node("node-0", {"cpu": f"{RUNNING}"}), queue("lab"), *runs, *waits, *more]
    versioned = [
        {**each, "metadata": {**each["metadata"], "resourceVersion": str(number)}}
        for number, each in enumerate(objects, 1)
    ]
    return asked(versioned)


@pytest.fixture
def decisions(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    made, decide = [0], WhatIfCluster.decide

    def counted(self: WhatIfCluster, *args: Any, **more: Any) -> Any:
        made[0] += 1
        return decide(self, *args, **more)

    monkeypatch.setattr(WhatIfCluster, "decide", counted)
    return made


def test_what_is_known_not_to_be_enough_is_not_tried_again(decisions):
    cluster = crowded(*gang("zz", [3], "lab"))
    chain = endings.wait_chain(cluster, key("zz"))
    assert chain.groups[-1] == key(f"waits-{WAITING - 4:02}")
    assert decisions[0] < 50, "of six turns of the line, each tries what the one before left open"


@pytest.mark.parametrize("steps", range(0, 120, 7))
def test_an_answer_ends_when_it_may_go_on_no_longer_and_says_what_it_found(decisions, steps):
    """Time goes by with each look at the clock, so a block that is limited to so many seconds has so many decisions."""
    cluster = crowded(*gang("zz", [3], "lab"))
    all_changes = ask(cluster, key("zz")).changes
    cluster.effort = Effort(itertools.count().__next__)
    decisions[0] = 0
    with cluster.effort.limited(steps):
        found = ask(cluster, key("zz"))
    assert decisions[0] <= 2 * steps + 10
    assert found.record is not None
    assert found.incomplete == (found.changes != all_changes)
    assert found.changes == all_changes[: len(found.changes)]
    told = tenants.why(found, "team")
    assert told.get("changesIncomplete", False) == found.incomplete
    assert ask(cluster, key("zz")).changes == all_changes, "what was supposed is gone"
    assert found.incomplete or steps > 50


async def test_tenants_are_told_what_was_not_found_out(monkeypatch):
    """And the next one is answered as if nothing had been."""
    state = crowded(*gang("zz", [3], "lab"), TEAM).state
    questions = Questions(lambda: state, POLICY, ("muster",))
    wanted = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup", "metadata": {"name": "more"}}
    wanted["spec"] = {"minMember": 1, "minResources": {"cpu": "3"}, "queue": "lab"}
    body = answers.read_objects(json.dumps({"spec": {"objects": [wanted]}}).encode(), "team")
    admission = answers.admission(body, crds.manifests(legacy_apis=False))
    monkeypatch.setattr(asking, "EFFORT", -1.0)
    told, _ = await questions.ask("team", admission)
    (start,) = told["starts"]
    assert (start["when"], told["objects"][0]["outcome"]) == ("unknown", "admitted")
    assert visible.start(start) == (
        "would start at an unknown time: it was not found out in the time that an answer may take"
    )
    why = await questions.ask("team", answers.why("team", "podgroup/zz", trying=True))
    assert (why["changes"], why["changesIncomplete"]) == ([], True)
    assert list(visible.why_lines(why, "PodGroup zz", 200))[-1] == (
        "No change was found that alone would let it start; to try all takes longer than an answer may."
    )
    monkeypatch.undo()
    told, _ = await questions.ask("team", admission)
    assert told["starts"][0]["when"] == "after"
    assert "changesIncomplete" not in await questions.ask("team", answers.why("team", "podgroup/zz", trying=True))
    questions.close()
