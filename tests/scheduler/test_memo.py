"""What is remembered of nodes is bounded, however many different things jobs ask."""

from __future__ import annotations

from scheduler.memo import MOST, Memo


def test_an_answer_is_worked_out_once():
    memo, asked = Memo(), []
    for _ in range(3):
        assert memo.recall("question", lambda: asked.append(1) or "answer") == "answer"
    assert asked == [1]


def test_there_are_never_more_answers_than_the_bound():
    memo = Memo()
    for number in range(3 * MOST):
        assert memo.recall(number, lambda number=number: number + 1) == number + 1
        assert len(memo) <= MOST
