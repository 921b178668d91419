"""A look at an overview: the section, its order, the filter; and what each key makes of it. Pure."""

from __future__ import annotations

from typing import Final

from msgspec import Struct
from msgspec.structs import replace

SECTIONS: Final = ("queues", "waiting", "quotas", "evictions")
ORDERS: Final = ("name", "used", "borrowed", "waiting")
KEYS: Final = "q quit · tab section · ↑↓ scroll · s sort · r resource · / filter · space read now"
_ENDS: Final = frozenset({"\r", "\n", "\x1b"})
_ERASES: Final = frozenset({"\x7f", "\b"})
_MOVES: Final = {"j": 1, "\x1b[B": 1, "\x1bOB": 1, "k": -1, "\x1b[A": -1, "\x1bOA": -1, "\x1b[6~": 10, "\x1b[5~": -10}


class View(Struct, frozen=True):
    """How an overview is looked at.

    Attributes:
        order: by what queues are sorted among those of the same parent.
        filter: a part of names, queues or reasons; empty for all.
        typing: whether keys go into the filter.
        resource: what bars show; an index into those that there are.
        section: the one that scrolls and gets what room is left.
        offset: how many of its lines are above the screen.
        again: how often it was asked to read again.
    """

    order: str = ORDERS[0]
    filter: str = ""
    typing: bool = False
    resource: int = 0
    section: str = SECTIONS[0]
    offset: int = 0
    again: int = 0
    ended: bool = False


def press(view: View, key: str) -> View:
    """Return what a key makes of a view; keys without a meaning change nothing."""
    if view.typing and key != "\x03":
        return _type(view, key)
    if key in {"q", "\x03", "\x1b"}:
        return replace(view, ended=True)
    if key in _MOVES:
        return replace(view, offset=max(view.offset + _MOVES[key], 0))
    if key in {"\t", "\x1b[Z"}:
        return replace(view, section=_next(SECTIONS, view.section, -1 if key == "\x1b[Z" else 1), offset=0)
    if key == "s":
        return replace(view, order=_next(ORDERS, view.order))
    if key == "r":
        return replace(view, resource=view.resource + 1)
    if key == "/":
        return replace(view, typing=True, filter="", offset=0)
    return replace(view, again=view.again + 1) if key == " " else view


def _type(view: View, key: str) -> View:
    if key in _ENDS:
        return replace(view, typing=False, filter="" if key == "\x1b" else view.filter)
    if key in _ERASES:
        return replace(view, filter=view.filter[:-1])
    return replace(view, filter=view.filter + key, offset=0) if key.isprintable() else view


def _next(known: tuple[str, ...], one: str, step: int = 1) -> str:
    return known[(known.index(one) + step) % len(known)]


def keys(text: str) -> list[str]:
    """Split what a terminal sent into keys: an escape sequence is one."""
    found: list[str] = []
    while text:
        length = 1
        if text[0] == "\x1b" and text[1:2] in {"[", "O"}:
            end = next((at for at, each in enumerate(text[2:], 2) if each.isalpha() or each == "~"), len(text) - 1)
            length = end + 1
        found.append(text[:length])
        text = text[length:]
    return found
