"""What users make up is kept in bounds."""

from __future__ import annotations

from muster.telemetry.bounded import OTHER, Labels, first


def test_a_label_has_so_many_values_and_then_other() -> None:
    labels = Labels(3, "cpu")
    assert [labels.value(text) for text in ("a", "b", "c", "d", "a", "cpu")] == ["a", "b", OTHER, OTHER, "a", "cpu"]


def test_a_list_says_how_many_it_leaves_out() -> None:
    assert first(range(5), 3) == {"items": [0, 1, 2], "leftOut": 2}
    assert first((), 3) == {"items": [], "leftOut": 0}
