"""Label selectors."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from muster.model import labels
from muster.model.objects import LabelSelector


def one(operator: str, *values: str) -> dict[str, Any]:
    return {"matchExpressions": [{"key": "team", "operator": operator, "values": list(values)}]}


@pytest.mark.parametrize(
    ("selector", "expected", "text"),
    [
        ({}, [True, True, True], ""),
        ({"matchLabels": {"team": "ml"}}, [True, False, False], "team=ml"),
        (one("In", "ml", "ai"), [True, False, False], "team in (ml,ai)"),
        (one("NotIn", "ml"), [False, True, True], "team notin (ml)"),
        (one("Exists"), [True, True, False], "team"),
        (one("DoesNotExist"), [False, False, True], "!team"),
        (one("Near", "ml"), [False, False, False], "team Near (ml)"),
        ({"matchLabels": {"team": "ml"}} | one("NotIn", "ml"), [False, False, False], "team=ml,team notin (ml)"),
    ],
)
def test_a_selector_matches_as_kubernetes_says(selector: Any, expected: list[bool], text: str) -> None:
    parsed = msgspec.convert(selector, LabelSelector)
    found = [labels.matches(parsed, mine) for mine in ({"team": "ml"}, {"team": "web"}, None)]
    assert found == expected
    assert labels.text(parsed) == text
