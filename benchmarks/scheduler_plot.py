"""Draw how deciding grows: from the CSV of `scheduler_decide.py --csv` to an SVG, both axes logarithmic.

Run: python benchmarks/scheduler_plot.py benchmarks/scheduler_growth.csv benchmarks/scheduler_growth.svg
The dashed lines show linear and quadratic growth.
"""

from __future__ import annotations

import csv
import math
import sys
from collections.abc import Iterator
from pathlib import Path

WIDTH, HEIGHT, EDGE = 640, 420, 60
COLOURS = ("#0b6e4f", "#b3541e", "#3a4f9a", "#8a1c5b")
Point = tuple[float, float]


def read(path: Path) -> dict[str, list[Point]]:
    series: dict[str, list[Point]] = {}
    with path.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            series.setdefault(row["shape"], []).append((float(row["size"]), float(row["min_seconds"])))
    return series


class Scale:
    """Places in the picture for values between two bounds."""

    def __init__(self, values: list[float], start: float, end: float) -> None:
        self.low, self.high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
        self._start, self._end = start, end

    def __call__(self, value: float) -> float:
        part = (math.log10(value) - self.low) / (self.high - self.low)
        return self._start + part * (self._end - self._start)

    def decades(self) -> list[float]:
        return [10.0**power for power in range(self.low, self.high + 1)]


def draw(series: dict[str, list[Point]]) -> Iterator[str]:
    across = Scale([size for points in series.values() for size, _ in points], EDGE, WIDTH - 150)
    up = Scale([seconds for points in series.values() for _, seconds in points], HEIGHT - EDGE, 20)
    yield f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12">'
    yield f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>'
    for value in across.decades():
        yield line([(across(value), 20), (across(value), HEIGHT - EDGE)], "#ddd")
        yield text(across(value), HEIGHT - EDGE + 18, f"{value:g}", "middle")
    for value in up.decades():
        yield line([(EDGE, up(value)), (WIDTH - 150, up(value))], "#ddd")
        yield text(EDGE - 6, up(value) + 4, f"{value:g} s", "end")
    yield text((WIDTH - 90) / 2, HEIGHT - 20, "nodes, pods, queues, jobs", "middle")
    size, seconds = min(point for points in series.values() for point in points)
    for power, name in ((1, "linear"), (2, "quadratic")):
        end = min(10.0**across.high, size * (10.0**up.high / seconds) ** (1 / power))
        points = [(size, seconds), (end, seconds * (end / size) ** power)]
        yield line([(across(x), up(y)) for x, y in points], "#999", dashed=True)
        yield text(across(end) - 4, up(points[1][1]) + 14, name, "end")
    for number, (name, points) in enumerate(series.items()):
        colour = COLOURS[number % len(COLOURS)]
        yield line([(across(x), up(y)) for x, y in points], colour)
        yield text(WIDTH - 140, 40 + 18 * number, name.removeprefix("growth-"), "start", colour)
    yield "</svg>"


def line(points: list[Point], colour: str, *, dashed: bool = False) -> str:
    where = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    dashes = ' stroke-dasharray="5 4"' if dashed else ""
    return f'<polyline points="{where}" fill="none" stroke="{colour}" stroke-width="2"{dashes}/>'


def text(x: float, y: float, words: str, anchor: str, colour: str = "#333") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{colour}">{words}</text>'


def main() -> None:
    if len(sys.argv) != len(("program", "csv", "svg")):
        raise SystemExit(__doc__)
    Path(sys.argv[2]).write_text("\n".join(draw(read(Path(sys.argv[1])))) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
