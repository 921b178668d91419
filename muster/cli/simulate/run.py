"""``muster simulate`` over time: files and options in, one or two reports out."""

from __future__ import annotations

import contextlib
import gc
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import click
from msgspec import Struct
from msgspec.structs import replace

from muster.whatif.simulated_admission import InMemoryAdmission
from scheduler.engine.policy import Policy
from scheduler.simulator import report, scenario, trace
from scheduler.simulator.engine import Simulation, SimulationProgress
from scheduler.simulator.report import SimulationReport
from scheduler.simulator.scenario import Scenario
from scheduler.simulator.state import UnreadableObjectError
from scheduler.simulator.trace import TraceJob
from webhooks.settings import WebhookSettings

NEVER: Final = float("inf")


class SimulationOptions(Struct, frozen=True):
    """What a person said of time: which trace, for how long, and by which lot."""

    trace: Path | None
    until: float
    seed: int


def prepare(objects: list[Mapping[str, Any]], schedulers: tuple[str, ...], wishes: SimulationOptions) -> Scenario:
    """Read what is to be simulated.

    Raises:
        ClickException: some of it can't be read; all mistakes of a trace at once, the first ten of them.
    """
    try:
        found = scenario.read(objects, schedulers, seed=wishes.seed, until=wishes.until)
        if wishes.trace is not None:
            found = replace(found, trace=_trace(wishes.trace, found))
    except (UnreadableObjectError, trace.TraceError) as error:
        raise click.ClickException(str(error)) from error
    for kind, count in sorted(found.others.items()):
        click.echo(
            f"note: {count} {kind} left out; simulate knows Jobs, PodGroups and Pods, and what they run on", err=True
        )
    return found


def _trace(file: Path, found: Scenario) -> tuple[TraceJob, ...]:
    known = trace.KnownNames(frozenset(found.queues), frozenset(found.priorities))
    try:
        with file.open(encoding="utf-8", newline="") as lines:
            return trace.parse(lines, str(file), known)
    except UnicodeDecodeError as error:
        raise click.ClickException(f"{file} isn't text in UTF-8: byte {error.start + 1} can't be read") from error
    except OSError as error:
        raise click.ClickException(f"{file}: {error.strerror}") from error


def run(found: Scenario, policy: Policy, label: str) -> SimulationReport:
    """Simulate with one configuration; a bar on the terminal shows how far it is.

    Raises:
        ClickException: admission refuses a queue or a quota of the files.
    """
    admission = InMemoryAdmission(WebhookSettings(found.schedulers, delay=policy.enqueues))
    try:
        simulation = Simulation(found.setting(policy, admission))
    except UnreadableObjectError as error:
        raise click.ClickException(str(error)) from error
    with _bar(found, label) as tell, _rarely_collecting():
        end = simulation.run(tell)
    return report.of(simulation, end)


@contextlib.contextmanager
def _rarely_collecting() -> Iterator[None]:
    """Have garbage looked for less often: nearly all that is made here lives on, or is gone at once without that."""
    usual = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(100_000, 10, 10)
    try:
        yield
    finally:
        gc.set_threshold(*usual)
        gc.unfreeze()


@contextlib.contextmanager
def _bar(found: Scenario, label: str) -> Iterator[Callable[[SimulationProgress], None]]:
    """Show what part of the trace has arrived, or of the time has passed, where either has an end that is known."""
    by_time = found.until != NEVER
    length = round(found.until) if by_time else len(found.trace)
    hidden = not (length and sys.stderr.isatty())
    with click.progressbar(length=max(length, 1), label=label, file=sys.stderr, hidden=hidden) as bar:

        def tell(progress: SimulationProgress) -> None:
            done = round(progress.now) if by_time else progress.arrived
            bar.update(done - bar.pos)

        yield tell
        bar.update(length - bar.pos)
