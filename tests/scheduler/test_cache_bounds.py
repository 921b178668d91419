"""What is remembered of nodes is bounded, however many different things jobs ask."""

from __future__ import annotations

from scheduler.model.cache import MOST, Cache


def test_an_answer_is_worked_out_once():
    memo, asked = Cache(), []
    for _ in range(3):
        assert memo.get("question", lambda: asked.append(1) or "answer") == "answer"
    assert asked == [1]


def test_there_are_never_more_answers_than_the_bound():
    memo = Cache()
    for number in range(3 * MOST):
        assert memo.get(number, lambda number=number: number + 1) == number + 1
        assert len(memo) <= MOST


def test_of_what_changes_only_the_last_answer_is_kept():
    memo, asked = Cache(), []
    for state in ("old", "old", "new", "new", "old"):
        assert (
            memo.get_latest("question", state, lambda state=state: asked.append(state) or f"{state} answer")
            == f"{state} answer"
        )
    assert asked == ["old", "new", "old"]
    assert len(memo) == 1
