"""Random histories of a server that forgets, drops, stalls and fails: in the end the view equals the server."""

from __future__ import annotations

import asyncio
import contextlib
import random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.kube import errors
from muster.kube.cache import ObjectCache
from muster.kube.client import Client
from muster.kube.reflector import Reflector
from muster.kube.transport import Response
from muster.model.kinds import PODS
from muster.sandbox.virtual_time import run

OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.integers(0, 4), st.booleans()),
        st.tuples(st.just("remove"), st.integers(0, 4)),
        st.tuples(st.just("remake"), st.integers(0, 4)),
        st.tuples(st.just("spoil"), st.integers(0, 4)),
        st.tuples(st.just("compact")),
        st.tuples(st.just("lose_touch"), st.integers(0, 4)),
        st.tuples(st.just("drop")),
        st.tuples(st.just("bookmark")),
        st.tuples(st.just("wait"), st.floats(0, 90)),
        st.tuples(st.just("fail"), st.sampled_from([0.0, 0.3, 0.9])),
    ),
    max_size=40,
)


class Server:
    """Pods with versions, a history of changes that can be compacted, lists of two to a page."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.version = 1
        self.pods = {}
        self.uids = 0
        self.log = []  # (version, event)
        self.forgotten = 1
        self.watchers = []
        self.fails = 0.0
        self.snapshots = {}

    # ── what happens ─────────────────────────────────────────────────────────────────────────────────────────────

    def change(self, type_, name, pod):
        self.version += 1
        pod = pod | {"metadata": pod["metadata"] | {"resourceVersion": str(self.version)}}
        self.pods.pop(name, None)
        if type_ != "DELETED":
            self.pods[name] = pod
        self.send(self.version, {"type": type_, "object": pod})

    def send(self, version, event):
        self.log.append((version, event))
        for queue in self.watchers:
            queue.put_nowait(event)

    def put(self, number, *, bad=False):
        name = f"p{number}"
        known = self.pods.get(name)
        if known is None:
            self.uids += 1
        pod = known or {"metadata": {"name": name, "namespace": "ns", "uid": f"u{self.uids}"}}
        pod = {"metadata": pod["metadata"]} | ({"spec": {"containers": "bad"}} if bad else {})
        self.change("MODIFIED" if known else "ADDED", name, pod)

    def remove(self, number):
        name = f"p{number}"
        if name in self.pods:
            self.change("DELETED", name, self.pods[name])

    async def do(self, operation, *details):
        match operation:
            case "put":
                self.put(details[0])
            case "spoil":
                self.put(details[0], bad=True)
            case "remove":
                self.remove(details[0])
            case "remake":
                self.remove(details[0])
                self.put(details[0])
            case "compact":
                self.forgotten = self.version
                self.log.clear()
                self.snapshots.clear()
            case "lose_touch":
                # What happens before the view is back is never told.
                await self.do("drop")
                await self.do("remake", details[0])
                await self.do("compact")
            case "drop":
                for queue in self.watchers:
                    queue.put_nowait(self.random.choice([None, errors.UnreachableError("cut", maybe_applied=False)]))
            case "bookmark":
                for queue in self.watchers:
                    queue.put_nowait(
                        {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": str(self.version)}}}
                    )
            case "wait":
                await asyncio.sleep(details[0])
            case "fail":
                self.fails = details[0]

    # ── what is asked ────────────────────────────────────────────────────────────────────────────────────────────

    def trouble(self):
        if self.random.random() < self.fails:
            raise self.random.choice(
                [errors.UnreachableError("down", maybe_applied=False), errors.ServerError(500, "", "oops")]
            )

    async def request(self, request, *, within):  # noqa: ARG002 - what a transport is called with
        await asyncio.sleep(self.random.uniform(0, 2))
        self.trouble()
        token = request.query.get("continue")
        version, start = map(int, token.split("/")) if token else (self.version, 0)
        if token and version not in self.snapshots:
            return Response(410, b'{"kind": "Status", "reason": "Expired"}')
        pods = self.snapshots.setdefault(version, [self.pods[name] for name in sorted(self.pods)])
        size = 2 if "limit" in request.query else len(pods)
        following = f"{version}/{start + size}" if start + size < len(pods) else ""
        meta = {"resourceVersion": str(version), "continue": following}
        return Response(200, msgspec.json.encode({"metadata": meta, "items": pods[start : start + size]}))

    @contextlib.asynccontextmanager
    async def watch(self, request, *, idle):
        self.trouble()
        since = int(request.query["resourceVersion"])
        if since < self.forgotten:
            raise errors.GoneError(410, "Expired", "too old")
        queue = asyncio.Queue()
        for version, event in self.log:
            if version > since:
                queue.put_nowait(event)
        self.watchers.append(queue)
        try:
            yield self.lines(queue, idle)
        finally:
            self.watchers.remove(queue)

    async def lines(self, queue, idle):
        while True:
            try:
                event = await asyncio.wait_for(queue.get(), idle)
            except TimeoutError as error:
                raise errors.UnreachableError("idle", maybe_applied=False) from error
            if event is None:
                return
            if isinstance(event, Exception):
                raise event
            yield msgspec.json.encode(event)


class Replay:
    """A view built from nothing but the changes."""

    def __init__(self):
        self.pods = {}

    def take(self, change):
        if change.type == "ADDED":
            assert change.old is None
            assert change.new.name not in self.pods
            self.pods[change.new.name] = change.new
        elif change.type == "MODIFIED":
            assert self.pods[change.new.name] == change.old != change.new
            assert change.old.metadata.uid == change.new.metadata.uid
            self.pods[change.new.name] = change.new
        else:
            assert change.new is None
            assert self.pods.pop(change.old.name) == change.old


def told(replay, failures):
    def take(change):
        try:
            replay.take(change)
        except (AssertionError, KeyError) as error:
            failures.append((change, error))

    return take


async def story(operations, seed):
    server, replay, failures = Server(seed), Replay(), []
    cache = ObjectCache(indexes={"uid": lambda pod: [pod.metadata.uid]})
    for number in range(5):
        server.put(number)
    cache.subscribe(told(replay, failures))
    revisions = []
    cache.subscribe(lambda _: revisions.append(int(cache.revision)))
    task = asyncio.create_task(Reflector(Client(server), PODS, cache).run())
    for operation in operations:
        await server.do(*operation)
        assert not failures
        assert {pod.name: pod for pod in cache.items()} == replay.pods
    await server.do("fail", 0.0)
    await server.do("put", 0)
    await asyncio.wait_for(cache.reached(str(server.version)), 120)
    readable = {name: pod["metadata"] for name, pod in server.pods.items() if "spec" not in pod}
    shown = {pod.name: pod for pod in cache.items()}
    for name, meta in readable.items():
        assert shown[name].metadata.uid == meta["uid"]
        assert shown[name].metadata.resource_version == meta["resourceVersion"]
    spoilt = {name: pod["metadata"]["uid"] for name, pod in server.pods.items() if "spec" in pod}
    for name in shown.keys() - readable.keys():
        # Only the last readable state of the same object may be shown in its place.
        assert shown[name].metadata.uid == spoilt[name]
    assert {name for _, name in cache.unreadable} == spoilt.keys()
    assert replay.pods == shown
    assert revisions == sorted(revisions)
    assert not failures
    assert len(cache) == len(shown)
    for pod in shown.values():
        assert list(cache.indexed("uid", pod.metadata.uid)) == [pod]
    assert not task.done()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert server.watchers == []


@settings(max_examples=150, deadline=None)
@given(operations=OPERATIONS, seed=st.integers(0, 2**16))
def test_in_the_end_the_view_equals_the_server_and_the_changes_replay_to_it(operations, seed):
    run(story(operations, seed))
