"""One pattern on many texts: the same as one text at a time, in a time that somebody's pattern can't make long."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.cel.linear import LinearPattern
from muster.cel.regular import PatternError, compile_pattern, translated
from muster.cel.values import CelError

PIECES = [
    "a",
    "b",
    "[ab]",
    "[^a]",
    ".",
    "a*",
    "b+",
    "(a|b)",
    "(ab)?",
    "(a|b1)*",
    "1{1,2}",
    "^",
    "$",
    r"\z",
    r"\b",
    r"\w*",
    "|",
]


@given(st.lists(st.sampled_from(PIECES), min_size=1, max_size=6), st.lists(st.text("ab1.", max_size=8), max_size=30))
def test_finds_what_one_text_at_a_time_finds(pieces, texts):
    try:
        read = translated("".join(pieces))
        plain = re.compile(read, re.ASCII)
    except (PatternError, re.error):
        return
    pattern = LinearPattern(read)
    for _ in range(2):  # what is remembered from the first time is no other answer
        assert pattern.matches(texts, 10**9)[0] == [plain.search(text) is not None for text in texts]


NODES = [f"dc1-row{number // 500}-rack{number // 50:03}-node-{number:05}" for number in range(2000)]


@pytest.mark.parametrize(
    "pattern", ["^(a+)+$", "(.*)*(.*)*x", "^(([a-z0-9.-])+)+X$", "^[a-z0-9]+-row[0-9]+-rack[0-9]+-node-[0-9]+.*$"]
)
def test_thousands_of_names_take_few_steps_whatever_the_pattern(pattern):
    assert compile_pattern(pattern).matches(NODES, 5000)[1] < 5000


def test_too_many_steps_are_refused():
    with pytest.raises(CelError):
        compile_pattern(r"\brow3\b.*.*.*").matches(NODES, 1000)
