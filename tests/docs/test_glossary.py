"""docs/glossary.md names a module for each word: who reads it can go there."""

from __future__ import annotations

import re

from product import ROOT, modules

ROW = re.compile(r"^\| (?P<word>[^|]+) \| (?P<meaning>[^|]+) \| `(?P<module>[a-z_.]+)` \|$")


def rows():
    lines = (ROOT / "docs" / "glossary.md").read_text().splitlines()
    return [line for line in lines if line.startswith("| ") and not line.startswith("| word ")]


def test_every_word_has_a_meaning_and_a_module_that_exists():
    known = {each.name for each in modules()}
    found = [(line, ROW.match(line)) for line in rows()]
    assert 40 <= len(found) <= 45, "the words that matter: one more pushes one out"
    assert [line for line, row in found if row is None] == []
    assert {row["word"]: row["module"] for _, row in found if row is not None and row["module"] not in known} == {}


def test_no_word_is_explained_twice():
    words = [line.split("|")[1].strip().strip("`").lower() for line in rows()]
    assert len(words) == len(set(words))


def test_a_meaning_is_a_sentence_or_two():
    for line in rows():
        meaning = line.split("|")[2].strip()
        assert meaning.endswith("."), line
        assert 1 <= len(re.findall(r"\.(?:\s|$)", meaning)) <= 2, line
