"""Words that the project has retired, in what people read: docstrings, comments, messages, documents, alerts, dashboard.

`make lint` runs this module as a program.
"""

from __future__ import annotations

import io
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
PRODUCT = [
    path for name in ("muster", "webhooks", "scheduler", "certs", "deploy") for path in (ROOT / name).rglob("*.py")
]
DOCUMENTS = [
    *(
        ROOT / name
        for name in ("README.md", "CONTRIBUTING.md", "deploy/alerts/muster.yaml", "deploy/dashboards/muster.json")
    ),
    *(ROOT / "docs").glob("*.md"),
    *(ROOT / "deploy/crds").glob("*.yaml"),
    *(ROOT / "deploy/policies").glob("*.yaml"),
    *(ROOT / "deploy/rbac").glob("*.yaml"),
]


class Retired(NamedTuple):
    """A pattern, the word to write instead, and why."""

    pattern: str
    instead: str
    why: str


EVERYWHERE = (
    Retired(
        r"\bpromis(?:e|es|ing)\b",
        "reservation, reserve",
        "Muster reserves quota and nodes; Kubernetes knows no promises",
    ),
    Retired(r"\bpromised\b", "reserved", "Muster reserves quota and nodes; Kubernetes knows no promises"),
    Retired(
        r"\b(?:let|lets|letting) (?:\w+ ){0,2}?in\b(?! (?:time|one|once|turn|at))", "admit", "kubernetes.io's word"
    ),
    Retired(r"\bmend(?:s|ed|ing)?\b", "fix", "the usual word"),
    Retired(r"\brights\b|\b(?:a|the) right to\b", "permissions", "RBAC grants permissions"),
)
DOCSTRINGS = (Retired(r"\A\"{3}Gives? ", "Return, or the noun alone", "a function returns; a noun names a value"),)
MODULES = (
    Retired(
        r"\A\"{3}(?:What|Who|Whose|Which|Where|When|Whether|Why|How) ", "the noun", "a module is a thing, no question"
    ),
)
PAGES = (
    Retired(
        r"\b(?:Muster's|its|our|install(?:s|ed)? the|the three|appl(?:y|ies) the) kinds\b",
        "CRDs",
        "what is installed is CRDs",
    ),
    Retired(
        r"\b(?:take|takes|taking|taken) (?:\w+ ){0,3}?away\b", "uninstall, delete or remove", "kubernetes.io's words"
    ),
    Retired(r"\bfor ever\b", "forever", "one word"),
    Retired(r"\basks? for (?=(?:[0-9]+|how much|cpu|memory)\b)", "request", "pods request resources"),
)
CODE = re.compile(r"\{[^{}]*\}|``[^`]*``|`[^`]*`")


def texts(path: Path) -> Iterator[tuple[int, str]]:
    """Return (line, text) of each comment and string of a module, without what stands for code in them."""
    for token in tokenize.generate_tokens(io.StringIO(path.read_text()).readline):
        if token.type in {tokenize.COMMENT, tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING)}:
            yield token.start[0], CODE.sub(lambda found: "\n" * found[0].count("\n"), token.string)


def findings(where: str, line: int, text: str, words: tuple[Retired, ...]) -> Iterator[str]:
    for retired in words:
        for found in re.finditer(retired.pattern, text, re.IGNORECASE):
            at = line + text.count("\n", 0, found.start())
            yield f"{where}:{at}: {found[0]!r}: write {retired.instead} ({retired.why})"


def found_in_product() -> list[str]:
    return [
        finding
        for path in PRODUCT
        for line, text in texts(path)
        for finding in findings(
            str(path.relative_to(ROOT)), line, text, (*EVERYWHERE, *DOCSTRINGS, *(MODULES if line == 1 else ()))
        )
    ]


def found_in_documents() -> list[str]:
    return [
        finding
        for path in DOCUMENTS
        for finding in findings(str(path.relative_to(ROOT)), 1, CODE.sub("", path.read_text()), (*EVERYWHERE, *PAGES))
    ]


def test_no_retired_word_is_in_the_product():
    found = found_in_product()
    assert found == [], "\n".join(found)


def test_no_retired_word_is_in_the_documents():
    found = found_in_documents()
    assert found == [], "\n".join(found)


@pytest.mark.parametrize(
    "text",
    [
        "What was promised holds.",
        "A group that is let in waits.",
        "Mend it.",
        "It has the rights to do so.",
        '"""Give the sum."""',
        "It installs the kinds.",
        "Take the webhooks away.",
        "The Job asks for 6 cpu.",
        '"""What a queue has."""',
        '"""Whether it fits."""',
    ],
)
def test_a_retired_word_is_found(text):
    assert len(list(findings("here", 1, text, (*EVERYWHERE, *DOCSTRINGS, *MODULES, *PAGES)))) == 1


@pytest.mark.parametrize(
    "text", ["let it go in time", "the right order", "built-in kinds", "compromise", "recommended", "amend"]
)
def test_other_words_pass(text):
    assert list(findings("here", 1, text, (*EVERYWHERE, *DOCSTRINGS, *PAGES))) == []


if __name__ == "__main__":
    sys.exit("\n".join([*found_in_product(), *found_in_documents()]) or None)
