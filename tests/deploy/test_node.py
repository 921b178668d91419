"""`make node` on a machine that lacks something."""

from __future__ import annotations

import machine
import pytest
import up


@pytest.mark.parametrize(
    ("root", "said"),
    [
        (False, "make node: a real node needs root: it makes namespaces and mounts"),
        (
            True,
            "make node: a real node needs packages that aren't installed: apt-get install --no-install-recommends p-1 p-2",
        ),
    ],
)
def test_what_is_missing_is_said_in_one_sentence_with_status_3(monkeypatch, capsys, root, said):
    monkeypatch.setattr(machine.os, "geteuid", lambda: 0 if root else 1000)
    monkeypatch.setattr(machine, "PACKAGES", {"no-such-program-1": "p-1", "no-such-program-2": "p-2"})
    monkeypatch.setattr(machine, "PLUGINS", machine.Path(__file__).parent / "manifests")
    monkeypatch.setattr(machine.Path, "exists", lambda _: True)
    assert up.check() == 3
    assert capsys.readouterr().err.splitlines() == [said]


def test_every_program_that_the_pages_ask_for_is_one_that_is_looked_for():
    page = (up.images.ROOT / "CONTRIBUTING.md").read_text()
    assert [each for each in machine.packages() if each not in page] == []
