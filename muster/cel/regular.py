"""Regular expressions of Go (RE2) on Python's engine, or on `linear` where that could take long.

The two agree on most patterns. What they read differently is translated, what only one of them knows is refused, so
that no pattern means something else here than on a real server.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from muster.cel import linear

_CLASSES: Final = {
    "alpha": "a-zA-Z",
    "digit": "0-9",
    "alnum": "a-zA-Z0-9",
    "upper": "A-Z",
    "lower": "a-z",
    "xdigit": "0-9a-fA-F",
    "word": r"\w",
    "space": r"\s",
    "punct": r"!-/:-@\[-`{-~",
}  # fmt: skip - one row of names
_ESCAPES: Final = frozenset("dDwWsSbBAafnrtv")
_GROUP: Final = re.compile(r"\(\?(?::|P<[A-Za-z_]\w*>|<[A-Za-z_]\w*>|[ims]+[:)])", re.ASCII)
_POSIX: Final = re.compile(r"\[:(\^?)([a-z]+):\]")


_KEPT_STATES: Final = 1000
"""States of a pattern that is kept: a few hundred patterns of ten thousand would take all the memory of a container."""
_FAST: Final = 200
"""Attempts of Python's engine in the time of one step of `linear`."""


class PatternError(ValueError):
    """Not a pattern of RE2, or one that can't be translated. The text names the part."""


class Pattern:
    """A pattern that is matched by Python's engine where that can't take long, else by `linear`."""

    def __init__(self, translated: str) -> None:
        self._translated = translated
        self._fast = re.compile(translated, re.ASCII)
        self._linear: linear.LinearPattern | None = None

    def search(self, text: str) -> bool:
        """Whether the text has a part that matches.

        Raises:
            CelError: it would take too long to find out.
        """
        return self.measured(text)[0]

    def measured(self, text: str) -> tuple[bool, int]:
        """Do as `search`, and tell how many steps that took.

        Raises:
            CelError: it would take too long.
        """
        attempts = linear.attempts(self._translated, len(text))
        if attempts <= linear.MOST_STEPS:
            return self._fast.search(text) is not None, (attempts + len(text)) // _FAST
        return self._by_states().measured(text)

    def matches(self, texts: Sequence[str], most_steps: int) -> tuple[list[bool], int]:
        """Tell which of many texts have a part that matches, and how many steps that took.

        Raises:
            CelError: it would take more.
        """
        longest = max(map(len, texts), default=0)
        if linear.attempts(self._translated, longest) * len(texts) <= linear.MOST_STEPS:
            return [self._fast.search(text) is not None for text in texts], 0
        return self._by_states().matches(texts, most_steps)

    def _by_states(self) -> linear.LinearPattern:
        if self._linear is not None:
            return self._linear
        made = linear.LinearPattern(self._translated)
        if made.size <= _KEPT_STATES:
            self._linear = made
        return made


@lru_cache(maxsize=512)
def compile_pattern(pattern: str) -> Pattern:
    """Compile a pattern of Go's ``regexp`` package.

    Raises:
        PatternError: it is malformed, or means something that Python's engine can't do.
    """
    try:
        return Pattern(translated(pattern))
    except (re.error, OverflowError, RecursionError) as error:
        raise PatternError(f"error parsing regexp: {error}: `{pattern}`") from error


def translated(pattern: str) -> str:
    """Return the pattern as Python's engine reads it.

    Raises:
        PatternError: it means something that Python's engine can't do.
    """
    return _Translation(pattern).result()


class _Translation:
    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._at = 0

    def result(self) -> str:
        parts = []
        multiline = False
        while self._at < len(self._pattern):
            character = self._pattern[self._at]
            if character == "\\":
                parts.append(self._escape())
            elif character == "[":
                parts.append(self._set())
            elif self._pattern.startswith("(?", self._at):
                group = self._group()
                multiline = multiline or "m" in group.partition("P<")[0]
                parts.append(group)
            elif character == "$":
                # Python's $ also matches before a final newline.
                parts.append("$" if multiline else r"\Z")
                self._at += 1
            else:
                parts.append(self._plain(character))
        return "".join(parts)

    def _plain(self, character: str) -> str:
        self._at += 1
        if character in "*+?}" and self._pattern[self._at : self._at + 1] == "+":
            raise PatternError(f"error parsing regexp: invalid nested repetition operator: `{character}+`")
        return character

    def _escape(self) -> str:
        name = self._pattern[self._at + 1 : self._at + 2]
        self._at += 2
        if name in _ESCAPES or (name and not name.isalnum()):
            return "\\" + name
        if name == "z":
            return r"\Z"
        if name == "x":
            return self._hexadecimal()
        shown = f"\\{name}"
        raise PatternError(f"error parsing regexp: invalid escape sequence, or one that Muster doesn't know: `{shown}`")

    def _hexadecimal(self) -> str:
        match = re.compile(r"\{([0-9a-fA-F]+)\}|([0-9a-fA-F]{2})").match(self._pattern, self._at)
        if match is None or int(match[1] or match[2], 16) > 0x10FFFF:
            raise PatternError("error parsing regexp: invalid escape sequence: `\\x`")
        self._at = match.end()
        return re.escape(chr(int(match[1] or match[2], 16)))

    def _group(self) -> str:
        match = _GROUP.match(self._pattern, self._at)
        if match is None:
            shown = self._pattern[self._at : self._at + 4]
            raise PatternError(f"error parsing regexp: invalid or unsupported Perl syntax: `{shown}`")
        self._at = match.end()
        text = match.group()
        if text.endswith(")") and match.start() != 0:
            raise PatternError(f"error parsing regexp: flags inside of a pattern aren't supported by Muster: `{text}`")
        return text.replace("(?<", "(?P<") if text.startswith("(?<") else text

    def _set(self) -> str:
        parts = ["["]
        self._at += 1
        if self._pattern.startswith("^", self._at):
            parts.append("^")
            self._at += 1
        first = True
        while self._at < len(self._pattern) and (first or self._pattern[self._at] != "]"):
            parts.append(self._member())
            first = False
        if self._at >= len(self._pattern):
            raise PatternError(f"error parsing regexp: missing closing ]: `{self._pattern}`")
        self._at += 1
        return "".join([*parts, "]"])

    def _member(self) -> str:
        if posix := _POSIX.match(self._pattern, self._at):
            if posix[1] or posix[2] not in _CLASSES:
                raise PatternError(f"error parsing regexp: invalid character class range: `{posix.group()}`")
            self._at = posix.end()
            return _CLASSES[posix[2]]
        character = self._pattern[self._at]
        if character == "\\":
            return self._escape()
        self._at += 1
        # Python warns of these: it may one day read them as operators on sets.
        return "\\" + character if character in "[&~|" else character
