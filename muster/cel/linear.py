"""Regular expressions whose matching takes time in proportion to the text, as Go's engine does it.

Python's engine goes back and tries again: a pattern such as ``(a+)+$`` may keep it busy for hours, and nothing can stop
it. Whoever writes an expression may write such a pattern. Here all states that a pattern may be in are followed at once.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

from msgspec import Struct

from muster.cel.values import CostError

MOST_STATES: Final = 10_000
MOST_STEPS: Final = 1_000_000
"""States times characters that one match may take: about half a second."""
_TOKEN: Final = re.compile(
    r"""(?P<repeat>(?:[*+?]|\{\d+(?:,\d*)?\})\??)|(?P<open>\((?:\?(?P<flags>[ims]+)(?P<global>\))|\?(?P<scoped>[ims]*):|\?P<\w+>)?)"""
    r"""|(?P<close>\))|(?P<bar>\|)|(?P<leaf>\[\^?\]?(?:\\.|[^\]\\])*\]|\\x[0-9a-fA-F]{2}|\\.|.)""",
    re.DOTALL,
)
_MOST_KNOWN: Final = 20_000
"""Steps between sets of states that one pattern remembers."""
_ENDS: Final = re.compile(r"(?:\(\?[is]+\))?(?:\^|\\[AZ])")
"""A place at the beginning or the end of the text, whatever stands there."""
_WIDTHLESS: Final = frozenset({"^", "$", r"\A", r"\Z", r"\b", r"\B"})


_START: Final[frozenset[int]] = frozenset()


class _Leaf(Struct, frozen=True):
    """One character, or a place between two."""

    test: re.Pattern[str]
    consumes: bool


class _Split(Struct):
    """Two ways to go on, as distances in the program."""

    first: int
    second: int


_Instruction = _Leaf | _Split
_Program = list[_Instruction]


def attempts(translated: str, length: int) -> int:
    """Return a bound on the ways that Python's engine may try on a text of this length; `MOST_STEPS` + 1 for more."""
    choices, loops, nested = _choices(translated)
    if nested:
        return MOST_STEPS + 1
    # The place where the match begins is one choice more.
    starts_and_ends: int = (length + 1) ** (loops + 1)
    return min(MOST_STEPS + 1, starts_and_ends << min(choices, 64))


@lru_cache(maxsize=512)
def _choices(translated: str) -> tuple[int, int, bool]:
    """Count what is either one or the other, and what may be repeated; tell whether what is repeated has a choice in it."""
    choices = loops = 0
    nested = False
    opened: list[int] = []
    closed = 0
    for token in _TOKEN.finditer(translated):
        if token["open"] and not token["global"]:
            opened.append(choices + loops)
        elif token["close"]:
            closed = choices + loops - opened.pop()
        elif token["bar"] or (token["repeat"] or "").startswith("?"):
            choices += 1
        elif token["repeat"]:
            loops += 1
            nested = nested or closed > 0
        if not token["close"]:
            closed = 0
    return choices, loops, nested


class LinearPattern:
    """A pattern, as the states that it may be in."""

    def __init__(self, translated: str) -> None:
        self._program = _PatternParser(translated).program()
        places = [each for each in self._program if isinstance(each, _Leaf) and not each.consumes]
        self._follows = all(_ENDS.fullmatch(each.test.pattern) for each in places)
        # Where nothing begins behind the first character, what has come to an end there has ended for good.
        later = {**self._closure([0], "..", 1), **self._closure([0], ".", 1)} if self._follows else {}
        self._anchored = self._follows and not any(self._consumes(state) for state in later)
        self._known: dict[object, frozenset[int]] = {}

    @property
    def size(self) -> int:
        """How many states there are."""
        return len(self._program)

    def search(self, text: str) -> bool:
        """Whether the text has a part that matches.

        Raises:
            CostError: it would take too long to find out.
        """
        return self.measured(text)[0]

    def measured(self, text: str) -> tuple[bool, int]:
        """Do as `search`, and tell how many steps that took.

        Raises:
            CostError: it would take too long.
        """
        states: dict[int, None] = {}
        left = MOST_STEPS
        for at in range(len(text) + 1):
            states = self._closure([*states, 0], text, at)
            if len(self._program) in states:
                return True, MOST_STEPS - left
            left -= len(states) + 1
            if left < 0:
                raise CostError
            states = dict.fromkeys(self._advance(states, text, at))
        return False, MOST_STEPS - left

    def matches(self, texts: Iterable[str], most_steps: int) -> tuple[list[bool], int]:
        """Tell which of many texts have a part that matches, and how many steps that took; a step that was taken before costs nothing.

        Raises:
            CostError: it would take more.
        """
        left, found = most_steps, list[bool]()
        for text in texts:
            matched, took = (
                self._follow(text) if self._follows else (self.search(text), len(self._program) * (len(text) + 1))
            )
            left -= took
            if left < 0:
                raise CostError
            found.append(matched)
        return found, most_steps - left

    def _follow(self, text: str) -> tuple[bool, int]:
        """Do as `search` where states depend on no neighbours; return how many steps were taken for the first time, too."""
        states, took, end = _START, 0, len(self._program)
        for at in range(len(text) + 1):
            place = (states, at == 0, at == len(text))
            here = self._known.get(place)
            if here is None:
                here = frozenset(self._closure([*states, 0], text, at))
                took += self._remember(place, here)
            if end in here:
                return True, took
            if at == len(text):
                break
            step = (here, text[at])
            after = self._known.get(step)
            if after is None:
                after = frozenset(self._advance(here, text, at))
                took += self._remember(step, after)
            if not after and self._anchored:
                break
            states = after
        return False, took

    def _remember(self, question: object, answer: frozenset[int]) -> int:
        if len(self._known) >= _MOST_KNOWN:
            self._known.clear()
        self._known[question] = answer
        return len(answer) + 1

    def _closure(self, states: list[int], text: str, at: int) -> dict[int, None]:
        """Follow what needs no character."""
        seen: dict[int, None] = {}
        while states:
            state = states.pop()
            if state in seen:
                continue
            seen[state] = None
            each = self._program[state] if state < len(self._program) else None
            if isinstance(each, _Split):
                states += [state + each.first, state + each.second]
            elif each is not None and not each.consumes and each.test.match(text, at):
                states.append(state + 1)
        return seen

    def _consumes(self, state: int) -> bool:
        each = self._program[state] if state < len(self._program) else None
        return each is None or (isinstance(each, _Leaf) and each.consumes)

    def _advance(self, states: Iterable[int], text: str, at: int) -> Iterable[int]:
        for state in states:
            each = self._program[state] if state < len(self._program) else None
            if isinstance(each, _Leaf) and each.consumes and each.test.match(text, at):
                yield state + 1


class _PatternParser:
    """From a pattern that Python's engine has compiled already, so that its syntax is right, to a program."""

    def __init__(self, translated: str) -> None:
        self._tokens = list(_TOKEN.finditer(translated))
        self._at = 0
        self._leaves: dict[tuple[str, str], _Leaf] = {}

    def program(self) -> _Program:
        return self._alternatives("")

    def _alternatives(self, flags: str) -> _Program:
        found, flags = self._sequence(flags)
        while self._take("bar"):
            other, flags = self._sequence(flags)
            found = _either(found, other)
        return found

    def _sequence(self, flags: str) -> tuple[_Program, str]:
        found: _Program = []
        while self._at < len(self._tokens) and self._tokens[self._at].lastgroup not in {"bar", "close"}:
            token = self._tokens[self._at]
            self._at += 1
            if token["global"]:
                flags += token["flags"]
                continue
            item: _Program = self._group(token, flags) if token["open"] else [self._leaf(token.group(), flags)]
            while (repeat := self._take("repeat")) is not None:
                item = _repeated(item, repeat.rstrip("?") or "?")
            found += item
            if len(found) > MOST_STATES:
                raise CostError
        return found, flags

    def _group(self, token: re.Match[str], flags: str) -> _Program:
        inner = self._alternatives(flags + (token["scoped"] or ""))
        self._take("close")
        return inner

    def _take(self, kind: str) -> str | None:
        token = self._tokens[self._at] if self._at < len(self._tokens) else None
        if token is None or token[kind] is None:
            return None
        self._at += 1
        return token.group()

    def _leaf(self, text: str, flags: str) -> _Leaf:
        if (text, flags) not in self._leaves:
            prefix = f"(?{''.join(sorted(set(flags)))})" if flags else ""
            self._leaves[text, flags] = _Leaf(re.compile(prefix + text, re.ASCII), text not in _WIDTHLESS)
        return self._leaves[text, flags]


def _either(one: _Program, other: _Program) -> _Program:
    return [_Split(1, len(one) + 2), *one, _Split(len(other) + 1, len(other) + 1), *other]


def _repeated(item: _Program, repeat: str) -> _Program:
    least, most = {"*": (0, None), "+": (1, None), "?": (0, 1)}.get(repeat) or _bounds(repeat)
    if (len(item) + 2) * (max(least, most or 0) + 1) > MOST_STATES:
        raise CostError
    found = item * least
    if most is None:
        return [*found, _Split(1, len(item) + 2), *item, _Split(-len(item) - 1, -len(item) - 1)]
    optional: _Program = []
    for _ in range(most - least):
        optional = [_Split(1, len(item) + len(optional) + 1), *item, *optional]
    return [*found, *optional]


def _bounds(repeat: str) -> tuple[int, int | None]:
    least, comma, most = repeat.strip("{}").partition(",")
    return int(least), (int(most) if most else None) if comma else int(least)
