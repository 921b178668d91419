"""The answer to `muster admit`, for people and for programs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import click

from muster.cli.answers import kubectl
from muster.cli.output import bullets, hanging, wrapped
from muster.model.manifests import Manifest
from muster.model.text import counted
from muster.whatif.admission import AdmissionForecast, Start, Verdict
from muster.whatif.cluster_view import LEGACY_VERSIONS

_ASSUMED: Final = (
    "Assumed: nobody submits, changes or deletes anything else; running PodGroups end in the order in which they began;"
    " pods stay as large as they ask to be."
)
_IN_ORDER: Final = "Objects of the files are created in their order, not within one second."
_SUPPOSED: Final = "Pods that the files don't have are supposed to share their PodGroup's minResources alike."
_COLOURS: Final = {"admitted": "green", "refused": "red", "undecided": "yellow", "unknown": "yellow"}


def lines(finding: AdmissionForecast, width: int) -> Iterator[str]:
    """Write what was found out."""
    for verdict in finding.verdicts:
        yield from _verdict(verdict, width)
    if not finding.starts:
        return
    yield ""
    for start in finding.starts:
        yield from _start(start, width)
    yield ""
    yield from wrapped(_assumed(finding), width)


def _verdict(verdict: Verdict, width: int) -> Iterator[str]:
    answer = verdict.answer
    for warning in answer.warnings:
        yield from hanging(f"Warning: {warning}", width)
    yield f"{_called(answer.manifest)} {click.style(_outcome(verdict), fg=_COLOURS[verdict.outcome])}"
    if verdict.outcome in {"refused", "undecided"}:
        yield from hanging(answer.note or kubectl.text(answer), width)
    if verdict.alone:
        text = "Without the other objects of these files it would be admitted: together they ask for too much."
        yield from hanging(text, width)


def _outcome(verdict: Verdict) -> str:
    if verdict.outcome == "unknown":
        if verdict.answer.manifest.api_version in LEGACY_VERSIONS:
            return "not judged: the cluster doesn't serve this kind; `muster install --legacy-apis` brings it"
        return "not judged: Muster has no rule for this kind"
    if verdict.outcome == "undecided":
        return "can't be told"
    if verdict.outcome == "admitted" and not verdict.answer.created:
        return "admitted, as a change of what is there"
    return verdict.outcome


def _called(manifest: Manifest) -> str:
    group = manifest.api_version.rpartition("/")[0]
    return f"{manifest.kind.lower()}{f'.{group}' if group else ''}/{manifest.name or manifest.body['metadata']['generateName']}"


def _start(start: Start, width: int) -> Iterator[str]:
    yield from hanging(f"{start.label} {_when(start)}", width)
    if start.kind == "never" and start.changes:
        yield "  What would let it start, each by itself:"
        yield from bullets((each.text for each in start.changes), width)


def _when(start: Start) -> str:
    match start.kind:
        case "now":
            return f"would start now, {counted(start.pods, 'pod')}"
        case "soon":
            return f"would start soon, {counted(start.pods, 'pod')}: {start.text}"
        case "after":
            return f"would start after {start.text}"
        case "never" if start.record is not None:
            return f"would not start on the cluster as it is: {start.record.message}"
        case _:
            return f"can't be told when to start: {start.text}"


def _assumed(finding: AdmissionForecast) -> str:
    told = [_ASSUMED]
    if len(finding.starts) > 1:
        told.append(_IN_ORDER)
    if any(each.supposed for each in finding.starts):
        told.append(_SUPPOSED)
    return " ".join(told)


# ── for programs ─────────────────────────────────────────────────────────────────────────────────────────────────


def data(finding: AdmissionForecast) -> dict[str, Any]:
    """Write what was found out as JSON values."""
    return {
        "exitStatus": finding.status,
        "objects": [_object_data(each) for each in finding.verdicts],
        "starts": [_start_data(each) for each in finding.starts],
        "assumed": _assumed(finding) if finding.starts else "",
    }


def _object_data(verdict: Verdict) -> dict[str, Any]:
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


def _start_data(start: Start) -> dict[str, Any]:
    return {
        "podGroup": str(start.key),
        "for": start.label,
        "when": start.kind,
        "pods": start.pods,
        "podsSupposed": start.supposed,
        "after": [str(key) for key in start.after],
        "message": start.record.message if start.record is not None else start.text,
        "changes": [each.data | {"text": each.text} for each in start.changes],
    }
