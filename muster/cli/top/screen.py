"""An overview as the lines of a terminal. Pure: colours add nothing that the characters don't say."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import Final, NamedTuple, TypeVar

import click

from muster.cli.output import age
from muster.cli.top.view import KEYS, ORDERS, SECTIONS, View
from muster.model.text import counted
from muster.whatif.overview import Amount, GroupLine, Overview, QueueLine

T = TypeVar("T")

_NONE: Final = Amount(0, "-")
_NOTES: Final = 2
"""Lines of what is missing, on a screen of a given height."""


class Marks(NamedTuple):
    """The characters of a bar: what is used within the deserved amount, what is borrowed, what is deserved and unused, what is free."""

    used: str
    borrowed: str
    deserved: str
    free: str
    guarantee: str


BLOCKS: Final = Marks("█", "▒", "░", " ", "│")
PLAIN: Final = Marks("#", "+", ".", " ", "|")
"""For terminals whose encoding has no blocks."""


class Style(NamedTuple):
    """How lines are written."""

    width: int
    colour: bool = False
    marks: Marks = BLOCKS


def lines(seen: Overview, view: View, style: Style, height: int | None = None) -> list[str]:
    """Write an overview; without a height all of it, else what fits: the section that is looked at has most."""
    sections = {name: _SECTIONS[name](seen, view, style) for name in SECTIONS}
    notes = [_cut(f"note: {each}", style.width) for each in seen.missing]
    if height is None:
        return [_title(seen, view, style), *notes, *_all(sections, style)]
    shown = notes if len(notes) <= _NOTES else [*notes[: _NOTES - 1], f"note: and {len(notes) - _NOTES + 1} more"]
    room = height - len(shown) - 2 - 2 * len(SECTIONS)
    body = list(_fitted(sections, view, style, max(room, len(SECTIONS))))[: max(height - len(shown) - 2, 0)]
    body += [""] * (height - len(shown) - 2 - len(body))
    return [_title(seen, view, style), *shown, *body, _cut(_foot(view), style.width)]


def _title(seen: Overview, view: View, style: Style) -> str:
    waiting = sum(each.waits for each in seen.groups)
    running = sum(each.phase == "Running" for each in seen.groups)
    parts = [
        f"muster top  {seen.taken:%H:%M:%S}",
        counted(len(seen.queues), "queue"),
        f"{running} running",
        f"{waiting} waiting",
        f"by {view.order}",
        *([f"filter: {view.filter}"] if view.filter else []),
    ]
    return _bold(_cut("  ".join(parts), style.width), style)


def _foot(view: View) -> str:
    return f"filter: {view.filter}_   enter keeps it, escape removes it" if view.typing else KEYS


def _all(sections: dict[str, list[str]], style: Style) -> Iterator[str]:
    for head, *rows in sections.values():
        yield ""
        yield _bold(head, style)
        yield from rows or ["none"]


def _fitted(sections: dict[str, list[str]], view: View, style: Style, room: int) -> Iterator[str]:
    """Return the sections, each with its part of the lines; what others don't need goes to the one that is looked at, then to the first."""
    wanted = {name: max(len(found) - 1, 1) for name, found in sections.items()}
    given = {name: min(wanted[name], room // len(SECTIONS)) for name in SECTIONS}
    left = room - sum(given.values())
    for name in (view.section, *SECTIONS):
        more = min(wanted[name] - given[name], left)
        given[name] += more
        left -= more
    for name, (head, *rows) in sections.items():
        yield ""
        focused = name == view.section
        yield _bold(f"{'>' if focused else ' '}{head[1:]}", style)
        begin = min(view.offset, max(len(rows) - given[name], 0)) if focused else 0
        part = rows[begin : begin + given[name]]
        hidden = len(rows) - begin - len(part)
        yield from ([*part[:-1], f"  … {hidden + 1} more"] if hidden and part else part or ["  none"])


# ── sections: a head, then rows ──────────────────────────────────────────────────────────────────────────────────


def _queues(seen: Overview, view: View, style: Style) -> list[str]:
    resources = seen.resources() or ["cpu"]
    resource = resources[view.resource % len(resources)]
    wide = max(style.width - 79, 0)
    name, bar = 15 + min(wide // 2, 25), 20 + min(wide - min(wide // 2, 25), 40)
    marks = f"{resource} {style.marks.used}used {style.marks.borrowed}borrowed"
    head = f"  {'QUEUE':<{name - 2}} {_cut(marks, bar):<{bar}} {'USED':>8} {'DESERVED':>8} {'GUARANTEE':>9} {'BORROWED':>8} {'WAIT':>4}"
    most = max((_most(each, resource) for each in seen.queues), default=0)
    rows = [head]
    for queue, depth in _tree(_filtered(seen.queues, view, _queue_text), view.order, resource):
        label = _cut(f"{'  ' * depth}{queue.name}{'' if queue.state == 'Open' else f' ({queue.state})'}", name)
        used, deserved, guarantee, borrowed = (
            amounts.get(resource, _NONE) for amounts in (queue.used, queue.deserved, queue.guarantee, queue.borrowed)
        )
        drawn = _bar(used.value, deserved.value, guarantee.value, most, bar, style)
        rows.append(
            f"{label:<{name}} {drawn} {used.text:>8} {deserved.text:>8} {guarantee.text:>9} {borrowed.text:>8} {queue.waiting or '-':>4}"
        )
    return rows


def _most(queue: QueueLine, resource: str) -> float:
    return max(amounts.get(resource, _NONE).value for amounts in (queue.used, queue.deserved, queue.guarantee))


def _bar(used: float, deserved: float, guarantee: float, most: float, width: int, style: Style) -> str:
    """Draw what a queue uses of what it deserves; a mark stands where its guarantee ends."""

    def column(value: float) -> int:
        return round(value / most * width) if most else 0

    marks, own = style.marks, column(min(used, deserved) if deserved else used)
    borrowed = max(column(used) - own, 0)
    unused = max(column(deserved) - own - borrowed, 0)
    parts = [(marks.used * own, "green"), (marks.borrowed * borrowed, "yellow"), (marks.deserved * unused, "")]
    parts.append((marks.free * (width - own - borrowed - unused), ""))
    at = column(guarantee) - 1 if guarantee else -1
    drawn = ""
    for text, colour in parts:
        place = at - len(click.unstyle(drawn))
        marked = f"{text[:place]}{marks.guarantee}{text[place + 1 :]}" if 0 <= place < len(text) else text
        drawn += click.style(marked, fg=colour) if style.colour and colour and marked else marked
    return drawn


def _tree(queues: Sequence[QueueLine], order: str, resource: str) -> Iterator[tuple[QueueLine, int]]:
    """Return queues below their parents, each with its depth; where a parent isn't shown they stand at the left."""
    shown = {each.name for each in queues}
    below: dict[str, list[QueueLine]] = {}
    for each in queues:
        below.setdefault(each.parent if each.parent in shown else "", []).append(each)
    rest = [(each, 0) for each in reversed(sorted_by(below.get("", []), order, resource))]
    while rest:
        queue, depth = rest.pop()
        yield queue, depth
        rest += [(each, depth + 1) for each in reversed(sorted_by(below.get(queue.name, []), order, resource))]


def sorted_by(queues: Sequence[QueueLine], order: str, resource: str) -> list[QueueLine]:
    """Return queues in an order: by name, or the most first."""
    values: dict[str, Callable[[QueueLine], float]] = {
        "used": lambda each: each.used.get(resource, _NONE).value,
        "borrowed": lambda each: each.borrowed.get(resource, _NONE).value,
        "waiting": lambda each: each.waiting,
    }
    assert order in ORDERS, order
    value = values.get(order)
    return sorted(queues, key=lambda each: (-value(each) if value is not None else 0, each.name))


def _waiting(seen: Overview, view: View, style: Style) -> list[str]:
    wide = max(style.width - 80, 0)
    name, queue = 22 + min(wide // 4, 24), 10 + min(wide // 8, 12)
    waiting = _filtered(seen.waiting(), view, lambda one: f"{called(one)} {one.queue} {one.message}")
    # Of a start the time comes first; the times around it are for who has room.
    start = min(max((len(each.expected) for each in waiting), default=0), 14 + wide // 2)
    rows = [f"  {'WAITS':<{name - 2}} {'QUEUE':<{queue}} {'#':>3} {'FOR':>5} {_head('START', start)}WHY"]
    for each in waiting:
        why = f"{each.stage}: {each.message}" if each.stage else each.message or each.phase
        parts = [
            f"{_cut(called(each), name):<{name}}",
            f"{_cut(each.queue, queue):<{queue}}",
            f"{each.place or '-'!s:>3}",
            f"{_since(each.created, seen):>5}",
            *([f"{_cut(each.expected or '-', start):<{start}}"] if start else []),
            *why.split(),
        ]
        rows.append(_cut(" ".join(parts), style.width))
    return rows


def _head(text: str, width: int) -> str:
    """Return the head of a column that may not be there."""
    return f"{text[:width]:<{width}} " if width else ""


def called(group: GroupLine) -> str:
    """Write what to ask `muster why` about: ``team/train``, ``team/job/train`` of a group that was made for a Job."""
    kind, _, name = group.title.partition(" ")
    return f"{group.namespace}/{name if kind == 'PodGroup' else f'{kind.lower()}/{name}'}"


def _quotas(seen: Overview, view: View, style: Style) -> list[str]:
    name, bar = 40 + max(style.width - 80, 0) // 2, 12
    rows = [f"  {'QUOTA':<{name - 2}} {'TAKEN':<{bar}} {'HARD':>10} {'RESERVED':>9} FREE"]
    for each in _filtered(seen.quotas, view, lambda one: f"{one.namespace}/{one.quota} {one.resource}"):
        label = _cut(f"{each.namespace}/{each.quota} {each.resource}", name)
        drawn = _bar(min(each.used.value, each.hard.value), each.hard.value, 0, each.hard.value, bar, style)
        rows.append(f"{label:<{name}} {drawn} {each.hard.text:>10} {each.reserved or '-':>9} {each.free}")
    return rows


def _evictions(seen: Overview, view: View, style: Style) -> list[str]:
    rows = [f"  {'EVICTED':<30} {'AGO':>6} WHY"]
    for each in _filtered(seen.evictions, view, lambda one: f"{one.namespace}/{one.name} {one.message}"):
        label = _cut(f"{each.namespace}/{each.name}", 32)
        rows.append(_cut(f"{label:<32} {_since(each.when, seen):>6} {each.reason}: {each.message}", style.width))
    return rows


_SECTIONS: Final[dict[str, Callable[[Overview, View, Style], list[str]]]] = {
    "queues": _queues,
    "waiting": _waiting,
    "quotas": _quotas,
    "evictions": _evictions,
}


def _filtered(items: Sequence[T], view: View, text: Callable[[T], str]) -> list[T]:
    wanted = view.filter.lower()
    return [each for each in items if wanted in text(each).lower()]


def _queue_text(queue: QueueLine) -> str:
    return queue.name


def _since(when: datetime | None, seen: Overview) -> str:
    return age(when, seen.taken) if when is not None else "-"


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: width - 1]}…"


def _bold(text: str, style: Style) -> str:
    return click.style(text, bold=True) if style.colour else text
