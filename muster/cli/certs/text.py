"""The output of ``muster certs``: tables of the state, and lines of the steps done and the steps ahead."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import click

from certs import bundle, rotation
from certs.controller import PROBE_INTERVAL
from certs.observation import Observation
from certs.paths import PathStep, Segments
from certs.publish import Rotator, StepResult
from certs.rotation import RotationAction, RotationStep
from certs.state import CertificateState, Leaf, RotationPhase, RotationWaits
from muster.cli.output import age, table
from muster.kube.clock import Clock
from muster.model.names import NO_SEGMENT


def span(length: timedelta) -> str:
    """Write a span of time: 12d, 1h30m, 2m, 10s, 0.5s."""
    seconds = length.total_seconds()
    if length >= timedelta(days=2):
        return f"{length.days}d"
    if seconds < 60:
        return f"{seconds:.3g}s"
    hours, rest = divmod(round(seconds), 3600)
    minutes, rest = divmod(rest, 60)
    parts = [f"{value}{unit}" for value, unit in ((hours, "h"), (minutes, "m"), (rest, "s")) if value]
    return "".join(parts)


class RotationProgress:
    """Prints each step, and each thing that is waited for, once; with the time, in UTC."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._waiting = ""

    def __call__(self, result: StepResult) -> None:
        """Tell of one turn."""
        if result.did:
            self._waiting = ""
            self._line(result.did)
        elif result.step.why != self._waiting and result.state.phase is not RotationPhase.STEADY:
            self._waiting = result.step.why
            until = result.step.until
            left = f", {span(max(until - self._clock.now(), timedelta()))} left" if until is not None else ""
            self._line(f"{result.state.phase.value}: waiting: {result.step.why}{left}")

    def _line(self, text: str) -> None:
        click.echo(f"{self._clock.now():%H:%M:%S} {text}")


def standing(state: CertificateState) -> None:
    """Say in one line how things stand."""
    leaf = state.leaf
    until = f"certificate until {_day(leaf.certificate.not_after)}" if leaf is not None else "no certificate"
    renewed = f", renewed from {_day(rotation.renewal(leaf.certificate))} on" if leaf is not None else ""
    click.echo(f"{state.phase.value}: CA until {_day(state.current.not_after)}, {until}{renewed}")


def would(step: RotationStep) -> None:
    """Say what the next step would be."""
    if step.action is RotationAction.WAIT:
        click.echo(f"would do nothing: {step.why}")
    elif step.action is RotationAction.ENTER:
        click.echo(f"would enter phase {step.phase.value}: {step.why}")
    else:
        click.echo(f"would {step.action.value}: {step.why}")


def would_init(observation: Observation, usual: Sequence[str], hosts: Sequence[str]) -> None:
    """Say what ``init`` would do."""
    named = ", ".join(hosts or usual)
    if observation.keys is None:
        trusted = any(entry.trusted for target in observation.targets for entry in target.entries)
        click.echo(f"would make a CA and a certificate for {named}")
        if trusted:
            click.echo("would rotate from the CA that is trusted at present to it")
        for target in observation.targets:
            click.echo(f"would write the bundle to {target}")
        return
    would(rotation.plan(observation.state(), observation.now))


def would_rotate(step: RotationStep, state: CertificateState, waits: RotationWaits) -> None:
    """Say through which phases a rotation would go."""
    would(step)
    if step.action is RotationAction.WAIT and state.phase is RotationPhase.STEADY:
        return
    told = {
        RotationPhase.PUBLISH: "every webhook trusts the old CA and the new one",
        RotationPhase.SPREAD: f"{span(waits.spread)} for every API server to notice",
        RotationPhase.SWITCH: f"every replica serves a certificate of the new CA ({_count(state)} to be seen)",
        RotationPhase.SOAK: f"{span(waits.soak)} in which none comes up with the old one",
        RotationPhase.RETIRE: "every webhook trusts the new CA alone, and the old key is deleted",
    }
    passed = list(told).index(state.phase) if state.phase in told else 0
    for phase in list(told)[passed:]:
        click.echo(f"{phase.value}: {told[phase]}")


def _count(state: CertificateState) -> str:
    if state.served is None:
        return "none known yet"
    return "1 replica" if len(state.served) == 1 else f"{len(state.served)} replicas"


async def served(rotator: Rotator) -> None:
    """Wait until every replica serves the Secret's certificate, telling who doesn't."""
    said = ""
    while True:
        observation = await rotator.look(probing=True)
        state = observation.state()
        if state.served is None:
            click.echo("nobody knows the replicas of a webhook called by URL; each takes it up within seconds")
            return
        behind = [address for address, leaf in state.served.items() if leaf != state.leaf]
        if not behind:
            click.echo(f"served by {_count(state)}")
            return
        text = f"waiting: {len(behind)} of {_count(state)}: {', '.join(behind[:3])}"
        if text != said:
            click.echo(text)
        said = text
        # No event tells what a replica shows.
        await asyncio.sleep(PROBE_INTERVAL)


def status(observation: Observation) -> None:
    """Print all there is as tables."""
    if observation.keys is None:
        click.echo(
            "no CA of Muster's own: certificates come from files or cert-manager, or `muster certs init` wasn't run"
        )
        webhooks(observation, {})
        return
    state = observation.state()
    label = _labels(state)
    ages = age(state.since, observation.now)
    hold = f", held in {state.hold.value}" if state.hold is not None else ""
    click.echo(
        f"phase {state.phase.value} since {_moment(state.since)} ({ages}), generation {observation.keys.generation}{hold}"
    )
    if state.foreign:
        click.echo(state.foreign)
    click.echo()
    table(("certificate", "name", "expires", "renewed from"), list(_certificates(state)))
    click.echo()
    webhooks(observation, label)
    click.echo()
    _replicas(state, observation)


def _labels(state: CertificateState) -> dict[str, str]:
    label = {each.fingerprint: "CA" for each in state.current.certificates}
    if state.following is not None:
        label = dict.fromkeys(label, "old CA") | dict.fromkeys(state.following.trusted, "new CA")
    return label


def _certificates(state: CertificateState) -> Any:
    label = _labels(state)
    known = [*state.current.certificates, *(state.following.certificates if state.following is not None else ())]
    for each in known:
        yield label[each.fingerprint], each.subject, _moment(each.not_after), _moment(rotation.renewal(each))
    if state.leaf is not None:
        leaf = state.leaf.certificate
        yield "leaf", ", ".join(sorted(leaf.names)), _moment(leaf.not_after), _moment(rotation.renewal(leaf))


def webhooks(observation: Observation, label: dict[str, str]) -> None:
    """Print which webhook trusts whom."""
    rows = [
        (target.key(entry), " + ".join(sorted(label.get(each, each[:12]) for each in entry.fingerprints)) or "nobody")
        for target in observation.targets
        for entry in target.entries
    ]
    if rows:
        table(("webhook", "trusts"), rows)
    else:
        click.echo("no webhook configuration of this name")


def _replicas(state: CertificateState, observation: Observation) -> None:
    if state.served is None:
        click.echo("replicas: nobody knows them, webhooks are called by URL; name each with --probe HOST:PORT")
        return
    rows = [
        (
            address,
            *(_shown(leaf, state) if leaf is not None else ("nothing", (observation.shown or {})[address].trouble)),
        )
        for address, leaf in state.served.items()
    ]
    if rows:
        table(("replica", "serves", "expires"), rows)
    else:
        click.echo("no replica is ready")


def _shown(leaf: Leaf, state: CertificateState) -> tuple[str, str]:
    by = _labels(state).get(leaf.issuer, "a stranger")
    what = "the Secret's leaf" if leaf == state.leaf else "another leaf"
    return f"{what}, by {'the ' if by.endswith('CA') else ''}{by}", _moment(leaf.certificate.not_after)


def paths(segments: Segments | None, now: datetime) -> None:
    """Say how old the paths of the webhooks are, and never what they end in."""
    if segments is None:
        return
    click.echo()
    if segments.current == NO_SEGMENT:
        click.echo(f"paths end in no segment yet; phase {segments.phase.value} since {_moment(segments.entered)}")
        return
    in_use = f"paths in use since {_moment(segments.since)} ({age(segments.since, now)})"
    click.echo(f"{in_use}; phase {segments.phase.value} since {_moment(segments.entered)}")


class PathProgress:
    """Says what each step of a replacement does; waiting once for each reason."""

    def __init__(self) -> None:
        self._said = ""

    def __call__(self, step: PathStep) -> None:
        """Print a step, without what was printed last."""
        line = f"{step.phase.value}: {step.action.value}: {step.why}"
        if line != self._said:
            click.echo(line)
        self._said = line


def paths_as_json(segments: Segments | None) -> dict[str, Any]:
    """Return the same as JSON."""
    if segments is None:
        return {}
    shown = {
        "phase": segments.phase.value,
        "since": segments.since.isoformat(),
        "secret": segments.current != NO_SEGMENT,
    }
    return {"paths": shown}


def as_json(observation: Observation) -> dict[str, Any]:
    """Return all there is as JSON."""
    entries = [(target.key(entry), entry) for target in observation.targets for entry in target.entries]
    whole: dict[str, Any] = {"webhooks": {name: sorted(entry.fingerprints) for name, entry in entries}}
    if observation.keys is None:
        return whole
    state = observation.state()
    return {
        "phase": state.phase.value,
        "since": state.since.isoformat(),
        "generation": observation.keys.generation,
        "hold": state.hold.value if state.hold is not None else None,
        "cas": {
            label: [{"subject": each.subject, "fingerprint": each.fingerprint, "notAfter": each.not_after.isoformat()} for each in one.certificates]
            for label, one in (("current", state.current), ("following", state.following))
            if one is not None
        },
        "leaf": _leaf(state.leaf),
        **whole,
        "replicas": {address: _leaf(leaf) for address, leaf in state.served.items()} if state.served is not None else None,
    }  # fmt: skip


def _leaf(leaf: Leaf | None) -> dict[str, Any] | None:
    if leaf is None:
        return None
    certificate = leaf.certificate
    return {
        "fingerprint": certificate.fingerprint,
        "issuer": leaf.issuer,
        "names": sorted(certificate.names),
        "notAfter": certificate.not_after.isoformat(),
    }


def fine(observation: Observation) -> str:
    """Say that nothing is wrong, and of how much that is said."""
    webhooks_ = sum(len(target.entries) for target in observation.targets)
    replicas = len(observation.shown or {})
    ends = [bundle.describe(shown.chain[0]).not_after for shown in (observation.shown or {}).values()]
    until = f", until {_day(min(ends))}" if ends else ""
    plural = "replica is" if replicas == 1 else "replicas are"
    return f"{replicas} {plural} accepted by {webhooks_} webhook{'' if webhooks_ == 1 else 's'}{until}"


def _day(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d}"


def _moment(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M:%SZ}"
