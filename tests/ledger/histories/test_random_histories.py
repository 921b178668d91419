"""Case 38: random histories, checked after every step."""

from __future__ import annotations

import os
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test

SOAK = int(os.environ.get("MUSTER_SOAK", "1"))
"""How many times as much is tried: `make soak`."""


@pytest.mark.parametrize("seed", range(8 * SOAK))
def test_case_38_no_history_breaks_the_invariant(seed: int, model: Any) -> None:
    model.play(model.World(), seed, 500)


def test_case_38_no_history_that_hypothesis_finds_breaks_the_invariant(model: Any) -> None:
    class Histories(RuleBasedStateMachine):
        """The same steps, chosen so that a history that fails is made short."""

        def __init__(self) -> None:
            super().__init__()
            self.world = model.World()
            self.world.change_quota(10)

        @rule(data=st.data())
        def step(self, data: st.DataObject) -> None:
            model.act(self.world, lambda below: data.draw(st.integers(0, below - 1)))

        def teardown(self) -> None:
            self.world.settle()

    run_state_machine_as_test(
        Histories, settings=settings(max_examples=25 * SOAK, stateful_step_count=50, deadline=None)
    )
