"""``muster admit``: would these files be admitted, and when would they start?"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
import msgspec

from muster.cli import manifests
from muster.cli.answers import kubectl
from muster.cli.connect import connected, done, explaining, reading, uncollected
from muster.cli.options import examples, policy_of, prepared, question_options, state_of, tell
from muster.cli.output import DOCUMENTS, UNBROKEN, WIDTH, bullets, counted, document, hanging, wrapped
from muster.kube import errors
from muster.kube.client import Client
from muster.kube.clock import SystemClock
from muster.kube.transport import Request
from muster.whatif.cluster_view import LEGACY_VERSIONS, read

if TYPE_CHECKING:
    from muster.cli.manifests import Manifest
    from muster.whatif.admission import Finding, Start, Verdict
    from muster.whatif.cluster_view import State
    from scheduler.engine.policy import Policy

CANT_TELL: Final = 2

_ASSUMED: Final = (
    "Assumed: nobody submits, changes or deletes anything else; running PodGroups end in the order in which they began;"
    " pods stay as large as they ask to be."
)
_IN_ORDER: Final = "Objects of the files are created in their order, not within one second."
_SUPPOSED: Final = "Pods that the files don't have are supposed to share their PodGroup's minResources alike."
_COLOURS: Final = {"admitted": "green", "refused": "red", "undecided": "yellow", "unknown": "yellow"}


@click.command(
    epilog=examples("muster admit -f train.yaml", "muster admit -f queue.yaml -f train.yaml --state state.yaml -o json")
)
@click.argument("more_files", metavar="[FILE]...", nargs=-1)
@click.option("-f", "--filename", "files", multiple=True, metavar="FILE", help="Objects; repeatable, - is stdin.")
@question_options
@uncollected()
@explaining(CANT_TELL)
def admit(
    more_files: tuple[str, ...],
    files: tuple[str, ...],
    namespace: str | None,
    state_file: str | None,
    configuration: Path | None,
    schedulers: tuple[str, ...],
    output: str,
    **cluster: str | None,
) -> None:
    """Say whether the objects of files would be admitted, and when what they start would start. Changes nothing.

    All objects are tried together, in the order of the files, by the rules of the webhooks and with the quota ledger of
    the cluster (or of a dump of it). What is refused is told in the words that kubectl would print.

    Files may be named without -f, too, as pre-commit does it. Exit status: 0 all admitted, 1 something refused, 2 can't tell.
    """
    files = (*files, *more_files)
    if not files:
        raise click.UsageError("which files? name them with -f")
    where = namespace or ("default" if state_file else _namespace(**cluster))
    wanted = manifests.read_for(files, where)
    state, whole, policy = reading(_read(state_file, wanted, configuration, **cluster))
    from muster.sandbox import virtual_time
    from muster.whatif import admission

    # In virtual time, nobody waits for what has to be tried again.
    finding = virtual_time.run(admission.find_out(state, wanted, whole, policy, schedulers))
    if output in DOCUMENTS:
        document(data(finding), output)
    else:
        for line in lines(finding, UNBROKEN if output == "wide" else WIDTH):
            click.echo(line)
    done(finding.status)


async def _read(
    state_file: str | None,
    wanted: Sequence[Manifest],
    configuration: Path | None,
    kubeconfig: str | None,
    context: str | None,
) -> tuple[State, list[dict[str, Any]], Policy]:
    """Read the state, those of the objects that exist, and the scheduler's configuration."""
    if state_file is not None:
        policy = policy_of(configuration)
        return await state_of(state_file, None, None), [], policy
    async with connected(kubeconfig, context) as client:
        # While the API server writes its answers there is time to import what judges them.
        ready = asyncio.create_task(asyncio.to_thread(prepared, configuration, "muster.whatif.admission"))
        state, whole = await asyncio.gather(read(client, SystemClock().now()), _existing(client, wanted, ready))
        policy = await ready
    tell(state)
    return state, whole, policy


def _namespace(kubeconfig: str | None, context: str | None) -> str:
    from muster.kube import auth

    return auth.namespace(kubeconfig, context)


async def _existing(client: Client, wanted: Sequence[Manifest], ready: asyncio.Task[Policy]) -> list[dict[str, Any]]:
    """Read those of the objects that exist, with all their fields; what knows where is ``ready`` first."""
    await ready
    from muster.whatif.dry_run import path_of

    paths = [path for each in wanted if each.name and (path := path_of(each))]
    found = await asyncio.gather(*(_object(client, path) for path in dict.fromkeys(paths)))
    return [each for each in found if each is not None]


async def _object(client: Client, path: str) -> dict[str, Any] | None:
    try:
        answer = await client.send(Request("GET", path))
    except (errors.NotFoundError, errors.ForbiddenError):
        # Who may create may not be allowed to read: then it is taken to be new.
        return None
    body: dict[str, Any] = msgspec.json.decode(answer.body)
    return body


# ── for people ───────────────────────────────────────────────────────────────────────────────────────────────────


def lines(finding: Finding, width: int) -> Iterator[str]:
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


def _assumed(finding: Finding) -> str:
    told = [_ASSUMED]
    if len(finding.starts) > 1:
        told.append(_IN_ORDER)
    if any(each.supposed for each in finding.starts):
        told.append(_SUPPOSED)
    return " ".join(told)


# ── for programs ─────────────────────────────────────────────────────────────────────────────────────────────────


def data(finding: Finding) -> dict[str, Any]:
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
