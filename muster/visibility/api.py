"""The API `visibility.muster.sh/v1alpha1`: what is asked for, by whom, and the answer; without HTTP.

Discovery is static, for a group that can't be discovered breaks more than itself. Nothing here may be written, so nothing has the
verbs that garbage collection and the deletion of namespaces look for.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from muster.kube.errors import KubeError
from muster.kube.transport import JSON, Request, Response
from muster.visibility import answers, forecasts
from muster.visibility.access import Access, Attributes
from muster.visibility.answers import RefusedObjectsError
from muster.visibility.forecasts import StartForecasts
from muster.visibility.metrics import OTHER, VisibilityMetrics
from muster.visibility.paths import GROUP, ROOT, VERSION
from muster.visibility.plays import NoForecastError
from muster.visibility.questions import NotKnownYetError, Questions, TooManyQuestionsError
from muster.visibility.requestheader import Caller
from muster.whatif.cluster_view import ClusterObjects

_AGAIN: Final = 1
"""Seconds after which a caller shall ask again."""
_RESOURCES: Final = (
    ("admissions", True, "Admission", ("create",)),
    ("podgroups/position", True, "PodGroupPosition", ("get",)),
    ("podgroups/why", True, "PodGroupExplanation", ("get",)),
    ("queues", False, "QueueStanding", ("get", "list")),
    ("starts", True, "PodGroupStart", ("list",)),
    ("workloads/why", True, "PodGroupExplanation", ("get",)),
)
_REASONS: Final[Mapping[int, str]] = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    405: "MethodNotAllowed",
    413: "RequestEntityTooLarge",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
}

log = logging.getLogger(__name__)


def resources() -> dict[str, Any]:
    """Return the discovery document: no short names and no categories, so that no name of kubectl changes its meaning."""
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": f"{GROUP}/{VERSION}",
        "resources": [
            {"name": name, "singularName": "", "namespaced": namespaced, "kind": kind, "verbs": list(verbs)}
            for name, namespaced, kind, verbs in _RESOURCES
        ],
    }


def group() -> dict[str, Any]:
    """Return the group's discovery document."""
    version = {"groupVersion": f"{GROUP}/{VERSION}", "version": VERSION}
    return {"kind": "APIGroup", "apiVersion": "v1", "name": GROUP, "versions": [version], "preferredVersion": version}


def failure(code: int, message: str, *, after: int | None = None) -> Response:
    """Return a refusal as API servers write it; ``after``: the seconds until it is worth asking again."""
    details = {"details": {"retryAfterSeconds": after}} if after is not None else {}
    status: dict[str, Any] = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": _REASONS[code],
        "code": code,
        **details,
    }
    headers = {"content-type": JSON} | ({"retry-after": str(after)} if after is not None else {})
    return Response(code, msgspec.json.encode(status), headers)


class VisibilityApi:
    """Answers requests of callers whose names are proved already."""

    def __init__(
        self, questions: Questions, starts: StartForecasts, access: Access, definitions: Sequence[Mapping[str, Any]]
    ) -> None:
        self._questions = questions
        self._starts = starts
        self._access = access
        self._definitions = definitions
        self.metrics = VisibilityMetrics(tuple(name for name, *_ in _RESOURCES))
        self.metrics.watch(questions.waiting, questions.age)

    async def handle(self, request: Request, caller: Caller) -> Response:
        """Answer a request, and count it."""
        clock = asyncio.get_running_loop().time
        began, asked = clock(), _attributes(request.path.rstrip("/"))
        answer = await self._handle(request, caller)
        self.metrics.answered(_called(asked) if asked is not None else OTHER, answer.status, clock() - began)
        return answer

    async def _handle(self, request: Request, caller: Caller) -> Response:
        path = request.path.rstrip("/")
        documents = {ROOT: resources, f"/apis/{GROUP}": group}
        if path in documents:
            return _json(documents[path]()) if request.method == "GET" else _not_allowed(request)
        asked = _attributes(path)
        if asked is None:
            return failure(404, "the server could not find the requested resource")
        verb = {"GET": "get" if asked.name else "list", "POST": "create"}.get(request.method, "")
        if not any(verb in verbs for name, _, _, verbs in _RESOURCES if name == _called(asked)):
            return _not_allowed(request)
        asked = msgspec.structs.replace(asked, verb=verb)
        try:
            if not await self._access.allowed(caller, asked):
                return failure(403, _forbidden(caller, asked))
            return await self._answer(request, asked)
        except TooManyQuestionsError as error:
            return failure(429, f"{error}: ask again later", after=_AGAIN)
        except NotKnownYetError as error:
            return failure(503, f"the cluster isn't known yet: {error}", after=_AGAIN)
        except KubeError as error:
            log.warning("who may ask can't be asked of the API server: %s", error)
            return failure(503, "the API server can't be asked what you may ask", after=_AGAIN)
        except RefusedObjectsError as error:
            return failure(400, str(error))
        except Exception:
            log.exception("%s %s: an error in Muster", request.method, asked)
            return failure(500, "an error in Muster; its log says more")

    async def _answer(self, request: Request, asked: Attributes) -> Response:
        space, name = asked.namespace, asked.name
        match _called(asked):
            case "admissions":
                wanted = answers.read_objects(request.body, space)
                told, after = await self._questions.ask(space, answers.admission(wanted, self._definitions))
                if request.query.get("start") == "true" and after is not None:
                    await self._add_starts(told, space, after)
                return _json({**_head("Admission", "", space), "status": told}, 201)
            case "starts":
                return _json(self._starts_of(space))
            case "queues" if name:
                found = await self._questions.ask("", answers.queues, "queues")
                shown = next((each for each in found if each["queue"] == name), None)
                if shown is None:
                    return failure(404, f'queues.{GROUP} "{name}" not found')
                return _json({**_head("QueueStanding", name), "status": shown})
            case "queues":
                found = await self._questions.ask("", answers.queues, "queues")
                items = [{**_head("QueueStanding", each["queue"]), "status": each} for each in found]
                return _json({**_head("QueueStandingList", ""), "items": items})
            case "podgroups/position":
                stands = self._questions.ask(space, answers.position(space, name), ("position", space, name))
                kind, answer = "PodGroupPosition", await stands
            case _:
                title = name.replace(":", "/", 1) if asked.resource == "workloads" else f"podgroup/{name}"
                tried = request.query.get("changes") == "true"
                waits = self._questions.ask(space, answers.why(space, title, trying=tried), (space, title, tried))
                kind, answer = "PodGroupExplanation", await waits
        if answer is None:
            return failure(404, f'{asked.resource}.{GROUP} "{name}" not found')
        return _json({**_head(kind, name, space), "status": answer})

    def _starts_of(self, space: str) -> dict[str, Any]:
        """Return when the groups of a namespace start, with the age of what is told."""
        known = self._starts.known()
        items = [
            {**_head("PodGroupStart", each.key.name, space), "status": forecasts.told(each, space)}
            for each in known.found or ()
            if each.key.namespace == space
        ]
        return {**_head("PodGroupStartList", ""), "items": items, "forecast": self._starts.about(known)}

    async def _add_starts(self, told: dict[str, Any], space: str, after: ClusterObjects) -> None:
        """Add to what would be admitted when it starts, which is played for it alone."""
        try:
            found = {
                each.key.name: each for each in await self._starts.suppose(space, after) if each.key.namespace == space
            }
        except (NoForecastError, OSError) as error:
            told["startUnknown"] = str(error)
            return
        for each in told["starts"]:
            if each["podGroup"] in found:
                each["start"] = forecasts.told(found[each["podGroup"]], space)


def _attributes(path: str) -> Attributes | None:
    """Return what a path asks for; None where it is none of ours."""
    if not path.startswith(f"{ROOT}/"):
        return None
    match path.removeprefix(f"{ROOT}/").split("/"):
        case ["queues"]:
            return Attributes("", "queues")
        case ["queues", str(name)] if name:
            return Attributes("", "queues", name=name)
        case ["namespaces", str(space), "admissions" | "starts" as resource] if space:
            return Attributes("", resource, namespace=space)
        case ["namespaces", str(space), "podgroups", str(name), "why" | "position" as part] if space and name:
            return Attributes("", "podgroups", part, space, name)
        case ["namespaces", str(space), "workloads", str(name), "why"] if space and name:
            return Attributes("", "workloads", "why", space, name)
        case _:
            return None


def _called(asked: Attributes) -> str:
    return f"{asked.resource}/{asked.subresource}" if asked.subresource else asked.resource


def _forbidden(caller: Caller, asked: Attributes) -> str:
    named = f'{asked.resource}.{GROUP} "{asked.name}"' if asked.name else f"{asked.resource}.{GROUP}"
    scope = f'in the namespace "{asked.namespace}"' if asked.namespace else "at the cluster scope"
    return (
        f'{named} is forbidden: User "{caller.name}" cannot {asked.verb} resource "{_called(asked)}"'
        f' in API group "{GROUP}" {scope}'
    )


def _not_allowed(request: Request) -> Response:
    return failure(405, f"the server does not allow {request.method} on the requested resource")


def _head(kind: str, name: str, namespace: str = "") -> dict[str, Any]:
    meta = {key: value for key, value in (("name", name), ("namespace", namespace)) if value}
    return {"kind": kind, "apiVersion": f"{GROUP}/{VERSION}", "metadata": meta}


def _json(body: Mapping[str, Any], code: int = 200) -> Response:
    return Response(code, msgspec.json.encode(body), {"content-type": JSON})
