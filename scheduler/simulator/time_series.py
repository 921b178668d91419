"""Amounts over time: what their mean was, and how they went, in a bounded number of steps."""

from __future__ import annotations

from typing import Final

_MOST: Final = 2048
_FIRST: Final = 1.0


class TimeSeries:
    """An amount that keeps its value until it is set again. Times are seconds and never go back.

    Its history are means over steps of equal width, ``width`` seconds each; when they get too many they are joined two by
    two. Tracks that were set to the same last moment have steps of the same width.
    """

    def __init__(self) -> None:
        self.width = _FIRST
        self.value = 0.0
        self._since = 0.0
        self._end = 0.0
        self._area = 0.0
        self._steps: list[float] = []

    def set(self, now: float, value: float) -> None:
        """Have another value from ``now`` on."""
        since = self._since
        if since < now <= self._end:
            # It held within the last step only, as nearly always.
            area = self.value * (now - since)
            self._area += area
            self._steps[-1] += area
            self._since = now
        elif now > since:
            self.advance(now)
        self.value = value

    def advance(self, now: float) -> None:
        """Let the value have held until ``now``."""
        if now <= self._since:
            return
        self._area += self.value * (now - self._since)
        while now > self.width * _MOST:
            self._join()
        at, width, steps = self._since, self.width, self._steps
        while at < now:
            step = int(at / width)
            # What a quotient loses in rounding must not make it stand still.
            step += (step + 1) * width <= at
            end = min((step + 1) * width, now)
            while len(steps) <= step:
                steps.append(0.0)
            steps[step] += self.value * (end - at)
            at = end
        self._since = now
        self._end = len(steps) * width

    def _join(self) -> None:
        pairs = zip(self._steps[::2], [*self._steps[1::2], 0.0], strict=False)
        self._steps = [first + second for first, second in pairs]
        self.width *= 2

    @property
    def mean(self) -> float:
        """The mean from zero to the last moment; zero where that is no time."""
        return self._area / self._since if self._since else 0.0

    def history(self) -> tuple[tuple[float, float], ...]:
        """Return the beginning of each step and the mean in it."""
        width, end = self.width, self._since
        spans = (min(width, end - place * width) for place in range(len(self._steps)))
        return tuple(
            (place * width, area / span)
            for place, (area, span) in enumerate(zip(self._steps, spans, strict=True))
            if span > 0
        )
