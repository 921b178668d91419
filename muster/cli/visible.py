"""Answers of the visibility API, for who may not read the whole cluster: asking for them, and writing them for people."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import click
import msgspec
from msgspec import Struct

from muster.cli import output
from muster.cli.connect import connected
from muster.kube import errors
from muster.kube.clock import SystemClock
from muster.kube.transport import Request
from muster.model.amounts import Resources
from muster.model.text import counted, listed
from muster.visibility.paths import GROUP, ROOT

if TYPE_CHECKING:
    from muster.whatif.start_forecast import StartForecast

Json = dict[str, Any]

PARTIAL: Final = "this is the visibility API's answer: of other tenants it has amounts and positions, no names"
_TRIES: Final = 5
_PAUSE: Final = 1.0
_PLAYED: Final = 60
"""Times that a forecast is asked for until there is one."""
_MORE: Final = "Other changes may, too: to try all takes longer than an answer may."
_NONE: Final = "No change was found that alone would let it start; to try all takes longer than an answer may."


def why_path(namespace: str, name: str) -> str:
    """Return where to ask about what is called ``name``, or kind/name."""
    return f"{ROOT}/namespaces/{quote(namespace, safe='')}/workloads/{quote(name.replace('/', ':', 1), safe=':')}/why"


def starts_path(namespace: str) -> str:
    """Return where to ask when the groups of a namespace start."""
    return f"{ROOT}/namespaces/{quote(namespace, safe='')}/starts"


def admission_path(namespace: str) -> str:
    """Return where to ask about objects of a namespace."""
    return f"{ROOT}/namespaces/{quote(namespace, safe='')}/admissions"


async def answer(
    kubeconfig: str | None, context: str | None, request: Request, denied: errors.ForbiddenError
) -> Json | None:
    """Return what the visibility API answers; None where there is no such thing.

    Raises:
        ForbiddenError: ``denied``, which led here, where the API isn't served or may not be asked either.
        KubeError: it can't answer now.
    """
    async with connected(kubeconfig, context) as client:
        for attempt in range(_TRIES):
            try:
                found: Json = msgspec.json.decode((await client.send(request)).body)
            except errors.NotFoundError as error:
                if f'.{GROUP} "' in str(error):
                    return None
                raise denied from error
            except errors.ForbiddenError as error:
                raise denied from error
            except (errors.ServerError, errors.TooManyRequestsError) as error:
                if attempt == _TRIES - 1:
                    raise
                await asyncio.sleep(error.retry_after or _PAUSE)
            else:
                return found
    raise denied


async def starts(
    kubeconfig: str | None, context: str | None, namespace: str, denied: errors.ForbiddenError
) -> VisibleStarts:
    """Return when the groups of a namespace start; the first who asks waits until the cluster's future was played.

    Raises:
        ForbiddenError: as of `answer`.
        KubeError: it can't answer now.
        ClickException: there is no forecast.
    """
    for attempt in range(_PLAYED):
        told = await answer(kubeconfig, context, Request("GET", starts_path(namespace)), denied)
        if told is None:
            raise denied
        if told["forecast"]["state"] != "pending" or attempt == _PLAYED - 1:
            return _read_starts(told)
        await asyncio.sleep(_PAUSE)
    raise denied


def _read_starts(told: Json) -> VisibleStarts:
    about = told["forecast"]
    if "taken" not in about:
        raise click.ClickException(about["message"])
    if about["state"] == "failed":
        click.echo(f"note: {about['message']}", err=True)
    found = {each["metadata"]["name"]: each["status"] for each in told["items"]}
    return VisibleStarts(found, datetime.fromisoformat(about["taken"]), about["ageSeconds"])


class VisibleStarts(Struct, frozen=True):
    """The starts of a namespace's groups, by name, as the API tells them, as of ``taken``, ``age`` seconds ago."""

    groups: Mapping[str, Json]
    taken: datetime
    age: int

    def forecast(self, name: str) -> StartForecast | None:
        """Return when a group starts; None where it doesn't wait, or didn't then."""
        found = self.groups.get(name)
        return start_forecast(found) if found is not None else None

    def data(self, name: str) -> Json:
        """Write it for programs, with its age."""
        return {**self.groups[name], "ageSeconds": self.age}

    def text(self, name: str) -> str:
        """Say it in a sentence, with its age; empty where there is none."""
        found = self.forecast(name)
        return f"{found.text(self.taken)} (as of {self.age} s ago)" if found is not None else ""


def start_forecast(told: Json) -> StartForecast:
    """Read a start that the API tells."""
    from muster.whatif.start_forecast import StartForecast

    others = ["workloads of other namespaces"] if told.get("unknownOthers") else []
    return StartForecast.read(told, (*told.get("unknown", ()), *others))


def tell_partial() -> None:
    """Print on stderr that an answer is a part of the truth."""
    click.echo(f"note: {PARTIAL}", err=True)


# ── why ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def facts(told: Json) -> Iterator[tuple[str, str]]:
    """Write why a group waits, a fact a line."""
    for each in _limit(told):
        yield "limit", each
    yield "needs", told["needs"]
    others = told["position"] - 1 - len(told["ahead"])
    ahead = [*told["ahead"], *([f"{others} of other namespaces"] if others else [])]
    yield (
        "place",
        f"{told['position']} in the line of queue {told['queue']}" + (f", behind {', '.join(ahead)}" if ahead else ""),
    )
    if nodes := told.get("nodes"):
        yield "nodes", f"{nodes['fitting']} of {nodes['total']} fit its pods now, {nodes['needed']} needed"
        if nodes["keptForOthers"]:
            yield "nodes", f"{nodes['keptForOthers']} kept for others"
    for each in told["quotas"]:
        stands = f"{each['reserved']} of {each['hard']} reserved, {each['other']} used by other pods"
        yield "quota", f"{each['quota']}, {each['resource']}: {stands}"


def _limit(told: Json) -> Iterator[str]:
    limit = told.get("limit")
    if limit and limit["short"]:
        named = f"{limit['kind']} {limit['name']}" if limit["name"] else f"the {limit['kind']}"
        yield f"{named}, short by {amounts(limit['short'])}"


def why_lines(told: Json, title: str, width: int, start: str = "") -> Iterator[str]:
    """Write an answer on one screen; ``start`` is when it starts, a sentence."""
    if "message" in told:
        yield from output.hanging(f"{title} does not wait for Muster: {told['message']}", width)
        return
    if "stage" not in told:
        yield from output.hanging(
            f"{title} does not wait: it is {told['phase']}, {counted(told['running'], 'pod')} running", width
        )
        return
    more = f", {told['podsWaiting']} more pods" if "podsWaiting" in told else ""
    reason = f", {told['reason']}" if told["reason"] else ""
    yield from output.hanging(f"{title} is {told['phase']}{more}: waiting at stage {told['stage']}{reason}", width)
    yield ""
    yield from output.facts([*facts(told), *([("start", start)] if start else [])], width)
    if written := changes(told):
        yield ""
        yield "Each of these changes alone would let it start:"
        yield from output.bullets(written, width)
    if told.get("changesIncomplete"):
        yield ""
        yield from output.hanging(_MORE if written else _NONE, width)


def changes(told: Json) -> list[str]:
    """Write the changes that would each let it start."""
    return [_change(each) for each in told.get("changes", ())]


def _change(change: Mapping[str, Any]) -> str:
    """Write a change; of one that this version doesn't know there is its kind."""
    written = _CHANGES.get(change["kind"])
    return written(change) if written is not None else str(change["kind"])


def _node(change: Mapping[str, Any]) -> str:
    return f"add a node with {amounts(change['free'])} free" if "free" in change else "add a node, or change one"


def _capability(change: Mapping[str, Any]) -> str:
    limit, of = change["capability"], f"the capability of queue {change['queue']}"
    return f"remove {of}" if limit is None else f"set {of} to {amounts(limit)}"


def _quota(change: Mapping[str, Any]) -> str:
    raised = (f"{each['resource']} of ResourceQuota {each['name']} to {each['hard']}" for each in change["quotas"])
    return f"raise {listed(raised)}"


_CHANGES: Final[Mapping[str, Callable[[Mapping[str, Any]], str]]] = {
    "action": lambda change: f"add {change['action']} to the scheduler's actions",
    "capability": _capability,
    "maxPodGroups": lambda change: f"set maxPodGroups of queue {change['queue']} to {change['maxPodGroups']}",
    "minMember": lambda change: f"set minMember to {change['minMember']}",
    "node": _node,
    "nodes": lambda change: f"add {counted(change['count'], 'node')} like those there are",
    "open": lambda change: f"open queue {change['queue']}",
    "pods": lambda change: f"create {counted(change['count'], 'more pod')}",
    "queue": lambda change: f"create queue {change['queue']}",
    "quota": _quota,
    "time": lambda _: "wait: the scheduler starts it once what it evicts is gone",
    "weight": lambda change: f"set the weight of queue {change['queue']} to {change['weight']}",
}


def amounts(wanted: Mapping[str, str]) -> str:
    """Write amounts of resources."""
    return str(Resources.parse(wanted))


# ── admit ────────────────────────────────────────────────────────────────────────────────────────────────────────


def start(told: Json) -> str:
    """Write when a group would start."""
    return (
        f"{_start(told)}; {start_forecast(told['start']).text(SystemClock().now())}"
        if "start" in told
        else _start(told)
    )


def _start(told: Json) -> str:
    own, others = told["after"], told["afterOthers"]
    after = ", ".join([*own, *([counted(others, "PodGroup") + " of other namespaces"] if others else [])])
    leaving = len(told["evicts"]) + told["evictsOthers"]
    match told["when"]:
        case "now":
            return f"would start now, {counted(told['pods'], 'pod')}"
        case "soon" if leaving:
            return f"would start soon, {counted(told['pods'], 'pod')}: the scheduler evicts {counted(leaving, 'pod')}"
        case "soon":
            return f"would start soon, {counted(told['pods'], 'pod')}" + (f": {after} gives way" if after else "")
        case "after":
            return f"would start after {after}"
        case "never":
            return "would not start on the cluster as it is" + "".join(f": {each}" for each in _limit(told))
        case "running":
            return f"runs already, {counted(told['pods'], 'pod')}"
        case "ended":
            return "has ended already"
    return "would start at an unknown time" + (f": {told['reason']}" if "reason" in told else "")
