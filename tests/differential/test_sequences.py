"""The sandbox answers each sequence of ``sequences/`` as the real control plane does.

What the files hold, and how a step is written, says the docstring of `runner`.
"""

from pathlib import Path

import pytest
import yaml

FILES = sorted((Path(__file__).parent / "sequences").glob("*.yaml"))


def sequences():
    for file in FILES:
        for name, steps in yaml.safe_load(file.read_text(encoding="utf-8")).items():
            # Keys that begin with a dot hold what the sequences of the file share, by anchors.
            if not name.startswith("."):
                yield pytest.param(steps, id=f"{file.stem}: {name}")


@pytest.mark.asyncio(loop_scope="session")
@pytest.mark.parametrize("steps", list(sequences()))
async def test_the_sandbox_answers_as_the_real_control_plane(compare, steps):
    await compare(steps)
