"""Namespaces that name a queue are labelled so in the same write."""

from __future__ import annotations

from typing import Any

import jsonpatch
import pytest

from webhooks.policies import namespaces
from webhooks.verdict import ALLOWED

QUEUE = {"scheduling.volcano.sh/queue-name": "research"}


def namespace(**metadata: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "dev", **metadata}}


@pytest.mark.parametrize("key", ["scheduling.volcano.sh/queue-name", "volcano.sh/queue-name"])
@pytest.mark.parametrize("labels", [{}, {"labels": None}, {"labels": {"team": "a", "muster.sh/names-queue": "no"}}])
def test_one_that_names_a_queue_is_labelled_and_nothing_else_changes(ask: Any, key: str, labels: Any) -> None:
    asked = namespace(annotations={key: "research"}, **labels)
    patched = jsonpatch.apply_patch(asked, ask(namespaces.mutate, asked).operations)
    assert patched["metadata"].pop("labels") == {**(labels.get("labels") or {}), "muster.sh/names-queue": "true"}
    assert patched["metadata"] == {key: value for key, value in asked["metadata"].items() if key != "labels"}


@pytest.mark.parametrize(
    "metadata",
    [{}, {"annotations": {"team": "a"}}, {"annotations": QUEUE, "labels": {"muster.sh/names-queue": "true"}}],
    ids=["without annotations", "with others", "labelled"],
)
def test_others_stay_as_they_are(ask: Any, metadata: Any) -> None:
    assert ask(namespaces.mutate, namespace(**metadata)) == ALLOWED
