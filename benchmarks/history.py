"""Recorded runs of `bench.py`: a table of one beside the last, and a plot of all ratios."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

SLOWER: Final = 1.1
"""A ratio to the limit that is so much over the last run's is called slower; what is less is the machine."""

_WIDTH, _ROW, _LABELS = 760, 22, 300
_NOW, _BEFORE = "#0b6e4f", "#c9c9c9"

Run = Mapping[str, Any]


def read(path: Path) -> list[Run]:
    """Return all recorded runs, the oldest first; none where nothing was recorded."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def append(path: Path, run: Run) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(run, ensure_ascii=False) + "\n")


def table(figures: Sequence[Run], last: Run | None) -> str:
    """Return the goals as a table of Markdown: the ratio first, for it is what says something."""
    before = {each["name"]: each for each in last["figures"]} if last is not None else {}
    lines = ["| what | to its limit | absolute | limit | goal | |", "|---|---|---|---|---|---|"]
    for each in figures:
        limit = f"{each['limit']:.4g} {each['unit']}" if each["limit"] else "the calibration"
        ratio = _ratio(each)
        said = [{True: "met", False: "**not met**", None: ""}[each["met"]]]
        said += _compared(each, before.get(each["name"]))
        said += [each["note"]] if each["note"] else []
        words = "; ".join(filter(None, said))
        lines.append(
            f"| {each['name']} | {ratio} | {each['value']:.4g} {each['unit']} | {limit} | {each['goal']} | {words} |"
        )
    return "\n".join(lines)


def with_table(page: str, table: str) -> str:
    """Return a page with ``table`` between its two marks."""
    before, mark, rest = page.partition("<!-- bench -->\n")
    _, end, after = rest.partition("<!-- /bench -->")
    if not (mark and end):
        raise SystemExit("the page lacks the marks <!-- bench --> and <!-- /bench -->")
    return f"{before}{mark}\n{table}\n\n{end}{after}"


def _compared(figure: Run, before: Run | None) -> list[str]:
    if before is None:
        return []
    change = _worse(figure) / _worse(before)
    if change >= SLOWER:
        return [f"**slower**: {_ratio(before)} in the last run"]
    return [f"faster: {_ratio(before)} in the last run"] if change <= 1 / SLOWER else []


def _ratio(figure: Run) -> str:
    return f"{figure['over']:.2f}" if figure["limit"] else f"{figure['over']:,.0f} loops"


def _worse(figure: Run) -> float:
    """Return the ratio by which more is worse; of a rate that is limit to value."""
    over = float(figure["over"])
    return 1 / over if figure["unit"] == "/s" else over


def plot(runs: Sequence[Run]) -> str:
    """Return a picture (SVG) of each goal's ratio to its limit, the last run beside the one before."""
    now = [each for each in runs[-1]["figures"] if each["limit"]]
    before = {each["name"]: each for each in runs[-2]["figures"]} if len(runs) > 1 else {}
    most = max([_worse(each) for each in now] + [_worse(each) for each in before.values() if each["limit"]])
    height = 50 + _ROW * len(now)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" font-family="sans-serif" font-size="12">',
        f'<rect width="{_WIDTH}" height="{height}" fill="white"/>',
        '<text x="10" y="20" font-weight="bold">Times as much as the limit of the same minute (less is better; grey: the run before)</text>',
    ]
    scale = (_WIDTH - _LABELS - 60) / most
    at_limit = _LABELS + scale
    for number, each in enumerate(now):
        top = 34 + number * _ROW
        parts.append(f'<text x="{_LABELS - 8}" y="{top + 13}" text-anchor="end">{_escaped(each["name"])}</text>')
        if each["name"] in before:
            parts.append(_bar(top, 16, _worse(before[each["name"]]) * scale, _BEFORE))
        parts.append(_bar(top + 4, 8, _worse(each) * scale, _NOW))
        parts.append(f'<text x="{_LABELS + _worse(each) * scale + 6:.0f}" y="{top + 13}">{_worse(each):.2f}</text>')
    parts.append(f'<line x1="{at_limit:.0f}" x2="{at_limit:.0f}" y1="30" y2="{height - 12}" stroke="#b3541e"/>')
    return "\n".join([*parts, "</svg>", ""])


def _bar(top: float, thick: int, width: float, colour: str) -> str:
    return f'<rect x="{_LABELS}" y="{top}" width="{width:.0f}" height="{thick}" fill="{colour}"/>'


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;")
