"""What accounts did to an API server, from its audit log, and what their roles let them do."""

from __future__ import annotations

import asyncio
import json
import time
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from muster.kube.client import Client
from muster.kube.transport import Request
from muster.model import kinds

PREFIX = "system:serviceaccount:muster-system:"
_FLUSH_SECONDS = 30.0
Event = dict[str, Any]


@dataclass(frozen=True, slots=True, order=True)
class Right:
    """One verb on one resource, as roles grant it and requests use it."""

    account: str
    group: str
    resource: str
    verb: str

    def __str__(self) -> str:
        return f"{self.account}: {self.verb} {self.resource}{'.' if self.group else ''}{self.group}"


def granted(manifests: Sequence[dict[str, Any]]) -> set[Right]:
    """Return the rights that roles and bindings give to service accounts."""
    rules = {(each["kind"], each["metadata"]["name"]): _rules(each, manifests) for each in manifests}
    bindings = [each for each in manifests if "roleRef" in each]
    return {
        Right(subject["name"], group, resource, verb)
        for binding in bindings
        for subject in binding["subjects"]
        for rule in rules[binding["roleRef"]["kind"], binding["roleRef"]["name"]]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def _rules(role: dict[str, Any], manifests: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return a role's rules; of one that is aggregated, those that it gathers."""
    wanted = [each["matchLabels"] for each in role.get("aggregationRule", {}).get("clusterRoleSelectors", ())]
    gathered = [
        rule
        for each in manifests
        if any(labels.items() <= each["metadata"].get("labels", {}).items() for labels in wanted)
        for rule in each["rules"]
    ]
    return [*role.get("rules", ()), *gathered]


def used(events: Iterable[Event]) -> set[Right]:
    """Return the rights that Muster's accounts made use of."""
    return {right for event in events if (right := _right(event)) is not None and not _forbidden(event)}


def refused(events: Iterable[Event]) -> set[str]:
    """Return what Muster's accounts asked for without a right to it. An admission's refusal is none of these."""
    return {str(_right(event) or event["requestURI"]) for event in events if _ours(event) and _forbidden(event)}


def written(events: Iterable[Event]) -> set[str]:
    """Return the fields of what Muster's accounts wrote to objects that aren't theirs, each as "patch jobs.batch: spec.suspend"."""
    return {
        f"{right.verb} {right.resource}{'.' if right.group else ''}{right.group}: {field}"
        for event in events
        if (right := _right(event)) is not None and _writes(right) and event.get("requestObject")
        for field in _fields(event["requestObject"])
    }


def denied(events: Iterable[Event]) -> set[str]:
    """Return the writes of Muster's accounts that a policy on them refused."""
    return {
        f"{_right(event)}: {said}"
        for event in events
        if _ours(event) and ".accounts.muster.sh" in (said := (event.get("responseStatus") or {}).get("message", ""))
    }


_OTHER_WRITES = {
    ("create", "pods/binding"),
    ("create", "pods/eviction"),
    ("create", "resourceclaims"),
    ("delete", "jobs"),
    ("delete", "resourceclaims"),
}


def _writes(right: Right) -> bool:
    """Whether a request changes an object of others, and says how."""
    return right.verb in {"patch", "update"} or (right.verb, right.resource) in _OTHER_WRITES


_LEAVES = ("metadata.annotations", "metadata.labels")


def _fields(value: Any, path: str = "") -> Iterable[str]:
    """Write the fields that a patch names: annotations and labels by their keys, entries of lists without their places."""
    if isinstance(value, list):
        for each in value:
            yield from _fields(each, f"{path}[]")
    elif not isinstance(value, dict) or not value:
        yield path
    elif path in _LEAVES:
        yield from (f"{path}[{key}]" for key in value)
    else:
        for key, each in value.items():
            yield from _fields(each, f"{path}.{key}" if path else key)


async def read(file: Path, client: Client) -> list[Event]:
    """Read the log up to now, whole.

    The server writes it behind its back, but in order: so ask for something nobody else asks for, and read that far.
    """
    mark = f"mark-{uuid.uuid4()}"
    assert await client.find(kinds.CONFIGMAPS, mark, "default") is None
    written = await asyncio.to_thread(_written_to, file, mark)
    metrics = (await client.send(Request("GET", "/metrics"))).body.decode()
    assert "apiserver_audit_error_total{" not in metrics, "the server couldn't keep up with its audit log"
    return [json.loads(line) for line in written.splitlines()]


def _written_to(file: Path, mark: str) -> str:
    """Return the log up to the last whole line, once the mark is in it."""
    deadline = time.monotonic() + _FLUSH_SECONDS
    while mark not in (text := file.read_text()):
        assert time.monotonic() < deadline, "the audit log isn't written"
        time.sleep(0.1)
    return text[: text.rindex("\n")]


def _ours(event: Event) -> bool:
    name: str = event["user"].get("username", "")
    return name.startswith(PREFIX)


def _forbidden(event: Event) -> bool:
    return bool((event.get("annotations") or {}).get("authorization.k8s.io/decision") == "forbid")


def _right(event: Event) -> Right | None:
    about = event.get("objectRef")
    if not _ours(event) or about is None:
        return None
    resource = "/".join(filter(None, (about["resource"], about.get("subresource"))))
    account = event["user"]["username"].removeprefix(PREFIX)
    return Right(account, about.get("apiGroup", ""), resource, event["verb"])
