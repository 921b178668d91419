"""Words of sentences."""

from __future__ import annotations

import pytest

from muster.model.text import counted, few, listed


def test_one_is_singular_and_all_else_plural():
    assert [counted(count, "pod") for count in (0, 1, 2)] == ["0 pods", "1 pod", "2 pods"]


@pytest.mark.parametrize(("names", "text"), [(["a"], "a"), (["a", "b"], "a and b"), (["a", "b", "c"], "a, b and c")])
def test_names_are_listed_with_an_and_before_the_last(names, text):
    assert listed(names) == text


@pytest.mark.parametrize(
    ("names", "text"),
    [([], ""), (["a", "b"], "a, b"), (["a", "b", "c"], "a, b and 1 more"), (list("abcde"), "a, b and 3 more")],
)
def test_of_many_names_a_few_are_written(names, text):
    assert few(names, 2) == text
