"""Plays a sequence of requests, which is data, against one control plane, and keeps what came back.

A step is a mapping. Its verb (one key in capitals) says what to do with which path; a path without a slash in front is
``plural/name/subresource`` in the sequence's namespace. The other keys:

with      body: a mapping is sent as JSON, a string as it stands
type      Content-Type;  accept: Accept;  headers: any others
as        name under which the answer can be referred to
expect    status to be awaited: the request is repeated until it comes, since a server doesn't say when a configuration
          of its admission or a definition has come into force
until     AWAIT: values by path that the object has to have, or ``gone``
count     WATCH: how many events to read; last: values by path of the last one; without either until the server ends
show      parts of the answer (paths) that are compared, where the rest is not for this sequence to say

Placeholders in any string: ${ns} ${rv:NAME} ${uid:NAME} ${NAME.path.to.value} ${hooks} ${ca} ${otherca}.
"""

from __future__ import annotations

import asyncio
import json
import re
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from hooks import READY, Hooks
from planes import Answer, Plane

WITHIN = 60.0
_AGAIN = 0.02
_PATCHES = {
    "MERGE": "application/merge-patch+json",
    "JSON": "application/json-patch+json",
    "STRATEGIC": "application/strategic-merge-patch+json",
    "APPLY": "application/apply-patch+yaml",
}
_ROOTS = {
    "/api/v1": "configmaps events limitranges pods resourcequotas secrets serviceaccounts services endpoints "
    "replicationcontrollers persistentvolumeclaims",
    "/apis/apps/v1": "deployments replicasets statefulsets daemonsets controllerrevisions",
    "/apis/batch/v1": "jobs cronjobs",
    "/apis/coordination.k8s.io/v1": "leases",
    "/apis/policy/v1": "poddisruptionbudgets",
    "/apis/rbac.authorization.k8s.io/v1": "roles rolebindings",
    "/apis/differential.muster.sh/v1": "widgets",
}
_CLUSTER_ROOTS = {
    "/api/v1": "namespaces nodes persistentvolumes",
    "/apis/scheduling.k8s.io/v1": "priorityclasses",
    "/apis/storage.k8s.io/v1": "storageclasses",
    "/apis/rbac.authorization.k8s.io/v1": "clusterroles clusterrolebindings",
    "/apis/apiextensions.k8s.io/v1": "customresourcedefinitions",
    "/apis/admissionregistration.k8s.io/v1": "validatingwebhookconfigurations mutatingwebhookconfigurations "
    "validatingadmissionpolicies validatingadmissionpolicybindings",
}
NAMESPACED = {plural: root for root, plurals in _ROOTS.items() for plural in plurals.split()}
CLUSTER = {plural: root for root, plurals in _CLUSTER_ROOTS.items() for plural in plurals.split()}
_PLACEHOLDER = re.compile(r"\$\{([^}]+)\}")
_VERB = re.compile(r"[A-Z]+")

Json = dict[str, Any]


class SequenceError(AssertionError):
    """The sequence can't be played to its end; the text says on which plane and why."""


@dataclass(frozen=True)
class Seen:
    """What a step showed: ``answer`` for a request, ``value`` for anything else."""

    step: str
    answer: Answer | None = None
    value: Any = None


class Runner:
    """Plays one sequence on one plane in a namespace of its own, which has the same name on both."""

    def __init__(self, plane: Plane, hooks: Hooks, namespace: str) -> None:
        self._plane = plane
        self._hooks = hooks
        self._namespace = namespace
        self._saved: dict[str, Any] = {}
        self._to_delete: list[str] = []

    async def play(self, steps: list[Json]) -> list[Seen]:
        """Play all steps; what was made outside of the namespace is deleted in the end."""
        await self._prepare()
        try:
            return [await self._step(step) for step in steps]
        finally:
            for path in reversed(self._to_delete):
                await self._plane.send("DELETE", path, {}, None)

    async def define(self, definition: Json) -> None:
        """Create a definition of custom resources, and wait until they are served."""
        made = await self._request("POST", {"POST": "customresourcedefinitions", "with": definition})
        # A real control plane is one for all modules of a process, and an earlier one may have defined it there.
        if made.status not in {201, 409}:
            raise SequenceError(f"{self._plane.name}: {made.body}")
        names = definition["spec"]["names"]
        version = definition["spec"]["versions"][0]["name"]
        await self._expected("GET", f"/apis/{definition['spec']['group']}/{version}/{names['plural']}", {}, None, 200)

    async def _prepare(self) -> None:
        body = json.dumps({"metadata": {"name": self._namespace}}).encode()
        made = await self._plane.send("POST", "/api/v1/namespaces", {"Content-Type": "application/json"}, body)
        if made.status != 201:
            raise SequenceError(f"{self._plane.name}: namespace {self._namespace}: {made.body}")
        # Its controllers' objects are there before a list can see them or not.
        for path in ("serviceaccounts/default", "configmaps/kube-root-ca.crt"):
            await self._await(self._path(path), {})

    async def _step(self, step: Json) -> Seen:
        verb = next(key for key in step if _VERB.fullmatch(key))
        shown = f"{verb} {step[verb]}"
        match verb:
            case "HOOK":
                self._hooks.answer(self._plane.name, self._namespace, step["HOOK"], self._filled(step["answer"]))
                return Seen(shown)
            case "CALLS":
                calls = self._hooks.calls(self._plane.name, self._namespace, step["CALLS"])
                return Seen(shown, value=calls if "show" not in step else [_parts(each, step) for each in calls])
            case "REGISTER":
                return Seen(shown, await self._register(step))
            case "AWAIT":
                found = await self._await(self._path(self._filled(step["AWAIT"])), self._filled(step.get("until", {})))
                return Seen(shown, value=self._kept(step, found))
            case "WATCH":
                return await self._watch(shown, step)
        answer = await self._request(verb, step)
        return Seen(shown, Answer(answer.status, self._kept(step, answer.body), answer.headers))

    # ── requests ─────────────────────────────────────────────────────────────────────────────────────────────────

    async def _request(self, verb: str, step: Json) -> Answer:
        path = self._path(self._filled(step[verb]))
        headers = dict(step.get("headers", {}))
        body = self._body(step.get("with"))
        if verb in _PATCHES:
            headers["Content-Type"] = step.get("type", _PATCHES[verb])
        elif step.get("type", body is not None and "application/json"):
            headers["Content-Type"] = step.get("type", "application/json")
        if "accept" in step:
            headers["Accept"] = step["accept"]
        method = "PATCH" if verb in _PATCHES else verb
        answer = await self._expected(method, path, headers, body, step.get("expect"))
        if method == "POST" and answer.status == 201 and path.count("/") <= 4 and "/namespaces" not in path:
            self._clean_up(path, answer.body)
        return answer

    async def _expected(
        self, method: str, path: str, headers: dict[str, str], body: bytes | None, status: int | None
    ) -> Answer:
        answer = await self._plane.send(method, path, headers, body)
        deadline = asyncio.get_running_loop().time() + WITHIN
        while status is not None and answer.status != status:
            if asyncio.get_running_loop().time() > deadline:
                raise SequenceError(f"{self._plane.name}: {method} {path}: {answer.status} and not {status}: {answer}")
            await asyncio.sleep(_AGAIN)
            answer = await self._plane.send(method, path, headers, body)
        return answer

    def _clean_up(self, path: str, made: Any) -> None:
        plural = path.partition("?")[0].rpartition("/")[2]
        if plural in CLUSTER and isinstance(made, dict) and "name" in made.get("metadata", {}):
            self._to_delete.append(f"{CLUSTER[plural]}/{plural}/{made['metadata']['name']}")

    def _path(self, text: str) -> str:
        if text.startswith("/"):
            return text
        plural = re.split(r"[/?]", text, maxsplit=1)[0]
        if plural in CLUSTER:
            return f"{CLUSTER[plural]}/{text}"
        return f"{NAMESPACED[plural]}/namespaces/{self._namespace}/{text}"

    def _body(self, body: Any) -> bytes | None:
        if body is None:
            return None
        filled = self._filled(body)
        return filled.encode() if isinstance(filled, str) else json.dumps(filled).encode()

    def _kept(self, step: Json, body: Any) -> Any:
        if "as" in step:
            self._saved[step["as"]] = body
        return _parts(body, step) if "show" in step else body

    # ── watching ─────────────────────────────────────────────────────────────────────────────────────────────────

    async def _watch(self, shown: str, step: Json) -> Seen:
        path = self._path(self._filled(step["WATCH"]))
        path += ("&" if "?" in path else "?") + "watch=true"
        headers = {"Accept": step["accept"]} if "accept" in step else {}
        seen: list[Any] = []
        try:
            async with asyncio.timeout(WITHIN), self._plane.watch(path, headers) as events:
                if isinstance(events, Answer):
                    return Seen(shown, events)
                async for event in events:
                    seen.append(_parts(event, step) if "show" in step else event)
                    if len(seen) == step.get("count") or ("last" in step and _has(event, step["last"])):
                        break
        except TimeoutError as error:
            raise SequenceError(f"{self._plane.name}: {shown}: only {seen}") from error
        return Seen(shown, value=seen)

    async def _await(self, path: str, until: Any) -> Any:
        """Watch one object until it has those values, and give it; or until it is gone, and give None."""
        collection, _, name = path.rpartition("/")
        selector = quote(f"metadata.name={name}", safe="")
        query = f"?watch=true&fieldSelector={selector}&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"
        last: Any = None
        try:
            async with (
                asyncio.timeout(WITHIN),
                self._plane.watch(f"{collection}{query}&allowWatchBookmarks=true", {}) as events,
            ):
                if isinstance(events, Answer):
                    raise SequenceError(f"{self._plane.name}: {path}: {events.body}")
                async for event in events:
                    if event["type"] != "BOOKMARK":
                        last = event["object"] if event["type"] in {"ADDED", "MODIFIED"} else None
                    # Before the bookmark what isn't shown may be still to come.
                    gone = last is None and event["type"] in {"BOOKMARK", "DELETED"}
                    if gone if until == "gone" else last is not None and _has(last, until):
                        return last
        except TimeoutError as error:
            raise SequenceError(f"{self._plane.name}: {path} never came to {until}: {last}") from error
        raise SequenceError(f"{self._plane.name}: the watch of {path} ended")

    # ── webhooks ─────────────────────────────────────────────────────────────────────────────────────────────────

    async def _register(self, step: Json) -> Answer:
        """Create a webhook configuration for this namespace, and wait until it is in force."""
        ready = {"hook": READY, "rules": [_rule("CREATE", "leases", "coordination.k8s.io")], "name": "ready.muster.sh"}
        hooks = [self._hook(each) for each in [*self._filled(step["webhooks"]), ready]]
        name = f"{self._namespace}-{step.get('name', 'hooks')}"
        path = f"{step['REGISTER']}webhookconfigurations"
        made = await self._request("POST", {"POST": path, "with": {"metadata": {"name": name}, "webhooks": hooks}})
        if made.status == 201:
            probe = json.dumps({"metadata": {"name": "ready"}}).encode()
            headers = {"Content-Type": "application/json"}
            await self._expected("POST", f"{self._path('leases')}?dryRun=All", headers, probe, 403)
        return made

    def _hook(self, given: Json) -> Json:
        url = f"{self._hooks.url}/{self._plane.name}/{self._namespace}/{given.pop('hook', 'hook')}"
        return {
            "name": "hook.muster.sh",
            "clientConfig": {"url": url, "caBundle": self._hooks.ca_bundle},
            "rules": [_rule("*", "configmaps")],
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
            "timeoutSeconds": 5,
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": self._namespace}},
        } | given

    # ── placeholders ─────────────────────────────────────────────────────────────────────────────────────────────

    def _filled(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {self._filled(key): self._filled(each) for key, each in value.items()}
        if isinstance(value, list):
            return [self._filled(each) for each in value]
        if isinstance(value, str):
            return _PLACEHOLDER.sub(lambda match: self._placeholder(match[1]), value)
        return value

    def _placeholder(self, name: str) -> str:
        fixed = {
            "ns": self._namespace,
            "hooks": f"{self._hooks.url}/{self._plane.name}/{self._namespace}",
            "ca": self._hooks.ca_bundle,
            "otherca": self._hooks.other_bundle,
        }
        if name in fixed:
            return fixed[name]
        short, _, saved = name.partition(":")
        path = (
            f"{saved}.metadata.{ {'rv': 'resourceVersion', 'uid': 'uid', 'continue': 'continue'}[short] }"
            if saved
            else name
        )
        try:
            return quote(str(at(self._saved, path)), safe="")
        except (KeyError, IndexError) as error:
            raise SequenceError(
                f"{self._plane.name}: ${{{name}}}: {self._saved.get(path.partition('.')[0])}"
            ) from error


def at(value: Any, path: str) -> Any:
    """Return the value at a path as ``a.0.b``; ``[Ready]`` picks the entry of that type, or of that name."""
    for part in path.split("."):
        if part.startswith("["):
            value = next(each for each in value if part[1:-1] in {each.get("type"), each.get("name")})
        else:
            value = value[int(part)] if isinstance(value, list) else value[part]
    return value


def _parts(value: Any, step: Json) -> Any:
    return {path: _or_absent(value, path) for path in step["show"]}


def _or_absent(value: Any, path: str) -> Any:
    try:
        return at(value, path)
    except (KeyError, IndexError, StopIteration, TypeError):
        return None


def _has(obj: Any, until: Json) -> bool:
    return all(_or_absent(obj, path) == value for path, value in until.items())


def _rule(operation: str, plural: str, group: str = "") -> Json:
    return {"apiGroups": [group], "apiVersions": ["*"], "operations": [operation], "resources": [plural]}
