"""The answer to `muster admit`, for people and for programs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import click

from muster.cli import visible
from muster.cli.answers import kubectl
from muster.cli.output import bullets, hanging, wrapped
from muster.model.manifests import Manifest
from muster.model.text import counted
from muster.whatif.cluster_view import LEGACY_VERSIONS
from muster.whatif.verdicts import AdmissionVerdict, DryRunResult

if TYPE_CHECKING:
    from muster.cli.configuration import Configuration
    from muster.whatif.admission import AdmissionForecast, PredictedStart
    from scheduler.model.snapshot import GroupKey

_ASSUMED: Final = (
    "Assumptions: no other object is created, changed or deleted; running PodGroups end in the order in which they started;"
    " pods use what they request."
)
_IN_ORDER: Final = "Objects are created in the order of the files, not within one second."
_SUPPOSED: Final = "Pods that are not in the files share their PodGroup's minResources equally."
_COLOURS: Final = {"admitted": "green", "refused": "red", "undecided": "yellow", "unknown": "yellow"}


def lines(
    finding: AdmissionForecast, width: int, configured: Configuration, times: Mapping[GroupKey, str] | None = None
) -> Iterator[str]:
    """Write what was found out; ``times``: when groups start, a sentence each."""
    for verdict in finding.verdicts:
        yield from _verdict(verdict, width)
    if not finding.starts:
        return
    yield ""
    for start in finding.starts:
        yield from _start(start, width)
        if times and start.kind not in {"now", "never"} and start.key in times:
            yield from hanging(f"  {times[start.key]}", width)
    yield ""
    yield from wrapped(_assumed(finding, configured), width)


def _verdict(verdict: AdmissionVerdict, width: int) -> Iterator[str]:
    answer = verdict.answer
    for warning in answer.warnings:
        yield from hanging(f"Warning: {warning}", width)
    yield f"{_called(answer.manifest)} {click.style(_outcome(verdict), fg=_COLOURS[verdict.outcome])}"
    if verdict.outcome in {"refused", "undecided"}:
        yield from hanging(answer.note or kubectl.text(answer), width)
    if verdict.alone:
        text = "It would be admitted without the other objects of these files: together they request too much."
        yield from hanging(text, width)


def _outcome(verdict: AdmissionVerdict) -> str:
    if verdict.outcome == "unknown":
        if verdict.answer.manifest.api_version in LEGACY_VERSIONS:
            return "not checked: the cluster does not serve this kind; `muster install --legacy-apis` installs it"
        return "not checked: Muster has no rule for this kind"
    if verdict.outcome == "undecided":
        return "unknown"
    if verdict.outcome == "admitted" and verdict.answer.unchecked:
        return "admitted (its CRD is not known: fields are not checked)"
    if verdict.outcome == "admitted" and not verdict.answer.created:
        return "admitted (update)"
    return verdict.outcome


def _called(manifest: Manifest) -> str:
    group = manifest.api_version.rpartition("/")[0]
    return f"{manifest.kind.lower()}{f'.{group}' if group else ''}/{manifest.name or manifest.body['metadata']['generateName']}"


def _start(start: PredictedStart, width: int) -> Iterator[str]:
    yield from hanging(f"{start.label} {_when(start)}", width)
    if start.kind == "never" and start.changes:
        yield "  Each of these changes alone would let it start:"
        yield from bullets((each.text for each in start.changes), width)


def _when(start: PredictedStart) -> str:
    match start.kind:
        case "now":
            return f"would start now, {counted(start.pods, 'pod')}"
        case "soon":
            return f"would start soon, {counted(start.pods, 'pod')}: {start.text}"
        case "after":
            return f"would start after {start.text}"
        case "never" if start.record is not None:
            return f"would not start on the cluster as it is: {start.record.message}"
        case "running":
            return f"runs already, {counted(start.pods, 'pod')}"
        case "ended":
            return "has ended already"
        case _:
            return f"would start at an unknown time: {start.text}"


def _assumed(finding: AdmissionForecast, configured: Configuration) -> str:
    told = [_ASSUMED]
    if len(finding.starts) > 1:
        told.append(_IN_ORDER)
    if any(each.supposed for each in finding.starts):
        told.append(_SUPPOSED)
    if configured.assumed:
        told.append(f"The scheduler's configuration is taken to be {configured.source}.")
    return " ".join(told)


# ── of the visibility API ────────────────────────────────────────────────────────────────────────────────────────


def told_lines(told: dict[str, Any], wanted: Sequence[Manifest], width: int) -> Iterator[str]:
    """Write what the visibility API told of objects, in the order in which it was asked about them."""
    for each in verdicts_of(told, wanted):
        yield from _verdict(each, width)
    if told["starts"]:
        yield ""
    for each in told["starts"]:
        yield from hanging(f"{each['for']} {visible.start(each)}", width)


def verdicts_of(told: dict[str, Any], wanted: Sequence[Manifest]) -> list[AdmissionVerdict]:
    """Return what became of each object."""
    return [
        AdmissionVerdict(
            DryRunResult(
                manifest,
                each["code"],
                each["status"],
                None,
                each["created"],
                tuple(each["warnings"]),
                each["note"],
                each["unchecked"],
            ),
            each["admittedAlone"],
        )
        for manifest, each in zip(wanted, told["objects"], strict=True)
    ]


def status_of(told: dict[str, Any]) -> int:
    """Return the exit status: 0 admitted, 1 refused, 2 can't tell."""
    outcomes = {each["outcome"] for each in told["objects"]}
    return 1 if "refused" in outcomes else 2 if "undecided" in outcomes else 0


# ── for programs ─────────────────────────────────────────────────────────────────────────────────────────────────


def data(
    finding: AdmissionForecast, configured: Configuration, times: Mapping[GroupKey, dict[str, Any]] | None = None
) -> dict[str, Any]:
    """Write what was found out as JSON values; ``times``: when groups start, as `StartForecast.data` has it."""
    return {
        "exitStatus": finding.status,
        "objects": [_object_data(each) for each in finding.verdicts],
        "starts": [_start_data(each) | _time_data(each, times) for each in finding.starts],
        "assumed": _assumed(finding, configured) if finding.starts else "",
        "configuration": configured.sentence(),
    }


def _time_data(start: PredictedStart, times: Mapping[GroupKey, dict[str, Any]] | None) -> dict[str, Any]:
    return {"start": times[start.key]} if times and start.key in times else {}


def _object_data(verdict: AdmissionVerdict) -> dict[str, Any]:
    answer = verdict.answer
    refused = verdict.outcome in {"refused", "undecided"}
    return {
        "object": _called(answer.manifest),
        "namespace": answer.manifest.namespace,
        "file": answer.manifest.file,
        "outcome": verdict.outcome,
        "message": (answer.note or kubectl.text(answer)) if refused else "",
        "warnings": list(answer.warnings),
        "admittedAlone": verdict.alone,
    }


def _start_data(start: PredictedStart) -> dict[str, Any]:
    return {
        "podGroup": str(start.key),
        "for": start.label,
        "when": start.kind,
        "pods": start.pods,
        "podsSupposed": start.supposed,
        "after": [str(key) for key in start.after],
        "evicts": list(start.evicts),
        "message": start.record.message if start.record is not None else start.text,
        "changes": [each.data | {"text": each.text} for each in start.changes],
    }
