"""Paths on an API server: what is stored, what the configurations have, and that whoever applies the rest leaves paths alone."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from plane import PATIENCE, Plane, running
from prometheus_client import CollectorRegistry

from certs import authority, path_probe, path_publish, path_secret, stored
from certs.controller import ChangeWatcher
from certs.metrics import PathMetrics
from certs.path_controller import POLL, PathController
from certs.path_probe import PathProbe
from certs.path_publish import PathRotator
from certs.path_secret import PathEntry, StoredPathError
from certs.paths import PathAction, PathPhase, PathWaits, Segments
from certs.serving import CertificateFiles, LiveCertificate
from muster.cli.installation import webhook_configurations
from muster.kube import errors
from muster.kube.clock import SystemClock
from muster.kube.transport import JSON_PATCH
from muster.model import kinds, names, webhooks
from muster.model.objects import Meta, Secret
from webhooks.paths import LivePaths
from webhooks.registration import ServiceRef, UrlBase, configurations
from webhooks.server import ListenOptions, WebhookServer

NOW = datetime(2026, 1, 1, tzinfo=UTC)
ACTIONS = [PathAction.ANNOUNCE, PathAction.SWITCH, PathAction.WRITE, PathAction.RETIRE]


class Setting:
    """A Secret, two configurations by Service and three replicas that take what the Secret says."""

    def __init__(self, plane: Plane, namespace: str, name: str) -> None:
        self.plane = plane
        self.namespace = namespace
        self.name = name
        self.probes: dict[str, PathProbe] = {}
        self.asked: set[str] = set()

    def manifests(self) -> list[tuple[Any, dict[str, Any]]]:
        made = configurations(
            ServiceRef(self.namespace, "muster-webhook", 9443),
            b"",
            scheduler_names=["muster"],
            legacy_apis=False,
            own_namespace="",
        )
        for whole in made:
            whole["metadata"]["name"] = self.name
            for each in whole["webhooks"]:
                # As the chart has them, and nothing that others make is reviewed.
                del each["clientConfig"]["service"]["path"], each["clientConfig"]["caBundle"]
                each["namespaceSelector"] = {"matchLabels": {names.NAMESPACE_NAME: self.namespace}}
                each["rules"] = [
                    {"apiGroups": ["x.io"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["y"]}
                ]
        return list(zip((kinds.MUTATING, kinds.VALIDATING), made, strict=True))

    async def sync(self) -> None:
        """Apply as GitOps does: all of it, again and again, by force."""
        for kind, manifest in self.manifests():
            await self.plane.client.apply(kind, manifest, manager="gitops")

    async def probe(self, address: str, entry: PathEntry, segment: str) -> PathProbe:
        self.asked.add(segment)
        assert entry.host == f"muster-webhook.{self.namespace}.svc"
        return self.probes.get(address) or PathProbe(segment in await self.accepted())

    def rotator(self, waits: PathWaits | None = None) -> PathRotator:
        waits = waits or PathWaits(timedelta(), timedelta())
        return PathRotator(
            self.plane.client, self.plane.clock, self.namespace, self.name, prober=self.probe, waits=waits
        )

    async def secret(self) -> Secret:
        return await self.plane.client.get(kinds.SECRETS, path_secret.PATH, self.namespace)

    async def accepted(self) -> frozenset[str]:
        data = (await self.secret()).data or {}
        return frozenset(base64.b64decode(data.get(names.SEGMENTS_FILE, "")).decode().split())

    async def called(self) -> dict[str, str]:
        """Return the path of every webhook."""
        found = [await self.plane.client.get(kind, self.name) for kind in (kinds.MUTATING, kinds.VALIDATING)]
        return {each["name"]: each["clientConfig"]["service"].get("path", "") for one in found for each in one.webhooks}

    async def segment(self) -> str:
        """Return the segment that every webhook is called with."""
        (segment,) = {
            path.removeprefix(webhooks.PATHS[name]).removeprefix("/") for name, path in (await self.called()).items()
        }
        return segment


@pytest.fixture
async def setting(plane: Plane) -> AsyncIterator[Setting]:
    made = Setting(plane, await plane.namespace(), plane.unique("paths"))
    await plane.client.create(kinds.SECRETS, {"metadata": {"name": path_secret.PATH}}, made.namespace)
    endpoints = [{"addresses": [f"10.0.0.{number}"], "conditions": {"ready": True}} for number in range(3)]
    piece = {
        "metadata": {"name": "muster-webhook-1", "labels": {"kubernetes.io/service-name": "muster-webhook"}},
        "addressType": "IPv4",
        "endpoints": endpoints,
        "ports": [{"port": 9443}],
    }
    with contextlib.suppress(errors.NotFoundError):  # the sandbox has none
        from certs.replicas import ENDPOINTSLICES

        await plane.client.create(ENDPOINTSLICES, piece, made.namespace)
    await made.sync()
    yield made
    for kind in (kinds.VALIDATING, kinds.MUTATING):
        await plane.client.delete(kind, made.name)


async def test_from_no_path_at_all_to_a_segment_and_on_to_the_next(setting):
    rotator = setting.rotator()
    assert set((await setting.called()).values()) == {""}
    # The Secret is filled, and the webhooks get paths: replicas take those without a segment until the first replacement.
    taken = [(await rotator.take_step()).action for _ in range(2)]
    assert taken == [PathAction.FILL, PathAction.WRITE]
    assert await setting.called() == webhooks.PATHS
    before, seen = names.NO_SEGMENT, []
    for _ in range(2):
        for action in ACTIONS:
            assert (await rotator.take_step()).action is action
            accepted = await setting.accepted()
            seen.append(accepted)
            if action is PathAction.WRITE:
                assert before in accepted
                assert await setting.segment() in accepted - {before}
        before = await setting.segment()
        assert len(before) == 52
        # A call fails, so that the next replacement is due.
        setting.probes["10.0.0.1:9443"] = PathProbe(True, setting.plane.clock.now() + timedelta(hours=1))
    assert [len(each) for each in seen] == [2, 2, 2, 1] * 2
    assert before in setting.asked


INJECTED = base64.b64encode(b"-----BEGIN CERTIFICATE-----").decode()


async def inject(setting: Setting) -> None:
    """Write the bundles as cert-manager's injector does, or a person who has certificates of their own: the whole object."""
    for kind in (kinds.MUTATING, kinds.VALIDATING):
        found = await setting.plane.client.get(kind, setting.name)
        bundles = [
            {"op": "add", "path": f"/webhooks/{place}/clientConfig/caBundle", "value": INJECTED}
            for place in range(len(found.webhooks or ()))
        ]
        await setting.plane.client.patch(kind, setting.name, bundles, content_type=JSON_PATCH)


@pytest.mark.parametrize("annotation", ["cert-manager.io/inject-ca-from", ""], ids=["cert-manager", "own files"])
async def test_whoever_issues_certificates_paths_are_replaced_and_the_bundles_stay(setting, annotation):
    """No CA of Muster's is there, and nobody else's writes are undone."""
    if annotation:
        for kind in (kinds.MUTATING, kinds.VALIDATING):
            marked = {"metadata": {"annotations": {annotation: f"{setting.namespace}/muster-webhook"}}}
            await setting.plane.client.patch(kind, setting.name, marked)
    assert await setting.plane.client.find(kinds.SECRETS, stored.CA, setting.namespace) is None
    rotator = setting.rotator()
    used = set()
    for action in (PathAction.FILL, PathAction.WRITE, *ACTIONS, *ACTIONS):
        await inject(setting)
        assert (await rotator.take_step()).action is action
        if action is PathAction.RETIRE:
            used.add(await setting.segment())
            setting.probes["10.0.0.1:9443"] = PathProbe(True, setting.plane.clock.now() + timedelta(hours=1))
        for kind in (kinds.MUTATING, kinds.VALIDATING):
            found = await setting.plane.client.get(kind, setting.name)
            assert {each["clientConfig"]["caBundle"] for each in found.webhooks} == {INJECTED}
            assert annotation == "" or annotation in found.metadata.annotations
    assert len(used) == 2
    assert {len(each) for each in used} == {52}


async def test_who_applies_the_configurations_again_never_sets_a_path(setting):
    rotator = setting.rotator(PathWaits(timedelta(), timedelta(minutes=10)))
    for _ in range(5):
        await rotator.take_step()
    before = await setting.called()
    assert len(await setting.segment()) == 52
    await setting.sync()
    assert await setting.called() == before
    assert (await rotator.take_step()).action is PathAction.WAIT


async def test_a_path_that_somebody_set_is_put_right(setting):
    rotator = setting.rotator()
    for _ in range(5):
        await rotator.take_step()
    before = await setting.called()
    kind, manifest = setting.manifests()[0]
    for each in manifest["webhooks"]:
        each["clientConfig"]["service"]["path"] = "/elsewhere"
    await setting.plane.client.apply(kind, manifest, manager="gitops")
    assert (await rotator.take_step()).action is PathAction.WRITE
    assert await setting.called() == before


async def test_the_controller_notices_that_paths_were_taken_away_before_it_would_look(setting):
    registry = CollectorRegistry()
    changes = ChangeWatcher(setting.plane.client, path_publish.watched(setting.namespace, setting.name))
    rotator = setting.rotator(PathWaits(timedelta(), timedelta(minutes=10)))
    async with running(PathController(rotator, changes, PathMetrics(registry)).run()):
        async with asyncio.timeout(PATIENCE):
            while len((await setting.called())["pods.guarded.muster.sh"]) < 52:  # noqa: ASYNC110 - it tells nobody
                await asyncio.sleep(0.1)
            await asyncio.sleep(1.0)
        before = await setting.called()
        for kind in (kinds.VALIDATING, kinds.MUTATING):
            found = await setting.plane.client.get(kind, setting.name)
            for each in (taken := json.loads(msgspec.json.encode(found.webhooks))):
                del each["clientConfig"]["service"]["path"]
            await setting.plane.client.patch(kind, setting.name, {"webhooks": taken})
        async with asyncio.timeout(POLL / 2):
            while await setting.called() != before:  # noqa: ASYNC110 - it tells nobody
                await asyncio.sleep(0.05)
        since = registry.get_sample_value("muster_webhook_paths_since_timestamp_seconds", {"secret": "true"})
        assert since is not None
    assert registry.get_sample_value("muster_webhook_paths_since_timestamp_seconds", {"secret": "true"}) is None
    assert registry.get_sample_value("muster_webhook_paths_failures_total") == 0


async def test_a_replica_that_does_not_take_the_new_path_keeps_all_on_the_old_one(setting):
    rotator = setting.rotator()
    setting.probes["10.0.0.1:9443"] = PathProbe(False)
    for _ in range(5):
        step = await rotator.take_step()
    assert step.action is PathAction.WAIT
    assert step.why == "1 of 3 replicas don't take the new path yet: 10.0.0.1:9443"
    assert await setting.called() == webhooks.PATHS
    assert names.NO_SEGMENT in await setting.accepted()


async def test_a_secret_that_was_emptied_is_filled_with_what_the_webhooks_are_called_with_and_then_replaced(setting):
    rotator = setting.rotator()
    for _ in range(6):
        await rotator.take_step()
    before, called = await setting.segment(), await setting.called()
    await setting.plane.client.patch(kinds.SECRETS, path_secret.PATH, {"data": None}, setting.namespace)
    assert (await rotator.take_step()).action is PathAction.FILL
    assert await setting.accepted() == {before}
    assert (await rotator.take_step()).action is PathAction.ANNOUNCE
    assert await setting.called() == called
    assert before in await setting.accepted()


async def test_where_replicas_demand_certificates_paths_stay_as_they_are(setting):
    rotator = setting.rotator()
    for _ in range(6):
        await rotator.take_step()
    called, accepted = await setting.called(), await setting.accepted()
    for number in range(3):
        setting.probes[f"10.0.0.{number}:9443"] = PathProbe(hung_up=True)
    step = await rotator.take_step(requested=True)
    assert (step.action, step.why) == (
        PathAction.WAIT,
        "replicas answer only callers with a certificate: any path is taken",
    )
    # One that doesn't answer proves nothing of the others.
    setting.probes["10.0.0.0:9443"] = PathProbe()
    assert (await rotator.take_step()).action is PathAction.ANNOUNCE
    assert (await rotator.take_step()).action is PathAction.WAIT
    assert await setting.called() == called
    assert accepted < await setting.accepted()


async def test_one_that_was_deleted_is_made_again_with_what_the_webhooks_are_called_with(setting):
    rotator = setting.rotator()
    for _ in range(6):
        await rotator.take_step()
    before, called = await setting.segment(), await setting.called()
    await setting.plane.client.delete(kinds.SECRETS, path_secret.PATH, setting.namespace)
    assert (await rotator.take_step()).why == f"there is no Secret {path_secret.PATH}: run `muster certs init`"
    assert await rotator.begin() == f"made Secret {path_secret.PATH}"
    assert await rotator.begin() == ""
    assert await setting.accepted() == {before}
    assert await setting.called() == called


async def test_paths_without_a_segment_stay_when_who_set_them_applies_the_rest(plane):
    """As when a manifest that has paths is replaced by one without: the API server would be without them for a moment."""
    space = await plane.namespace()
    setting = Setting(plane, space, plane.unique("paths"))
    for kind, manifest in setting.manifests():
        for each in manifest["webhooks"]:
            each["clientConfig"]["service"]["path"] = webhooks.PATHS[each["name"]]
        await plane.client.apply(kind, manifest, manager="gitops")
    assert await setting.rotator().begin()
    await setting.sync()
    assert await setting.called() == webhooks.PATHS
    for kind in (kinds.VALIDATING, kinds.MUTATING):
        await plane.client.delete(kind, setting.name)


@pytest.mark.parametrize(
    "spoil", [{"current": None}, {"other": base64.b64encode(b"x").decode()}, {"current": "%"}, {"current": "////"}]
)
async def test_a_damaged_secret_is_told_without_what_it_holds(setting, spoil):
    rotator = setting.rotator()
    await rotator.take_step()
    with contextlib.suppress(errors.ApiError):
        await setting.plane.client.patch(kinds.SECRETS, path_secret.PATH, {"data": spoil}, setting.namespace)
        with pytest.raises(
            StoredPathError, match=rf"^Secret {path_secret.PATH} is damaged \(\w+( steady)?\): empty its data"
        ):
            await rotator.take_step()


def test_what_is_written_is_read_back():
    segments = Segments(PathPhase.SOAK, "new", NOW, NOW + timedelta(minutes=1), "old")
    for each in (segments, segments.retired(NOW), segments.announced("next", NOW)):
        written = path_secret.manifest(each, "7")
        data = {key: value for key, value in written["data"].items() if value is not None}
        secret = Secret(metadata=Meta(annotations=written["metadata"]["annotations"]), data=data)
        assert path_secret.read(secret) == each


@pytest.mark.only("sandbox", reason="while these webhooks are registered, nothing else could be made")
async def test_install_keeps_the_segment_of_webhooks_that_are_called_at_the_same_address(plane):
    def made(url: str, segment: str = "") -> Any:
        base = UrlBase(url, segment)
        return configurations(base, b"", scheduler_names=["muster"], legacy_apis=False, own_namespace="")

    here = "https://127.0.0.1:9443"
    assert await webhook_configurations.segment_at(plane.client, here) == ""
    try:
        await webhook_configurations.apply(plane.client, *made(here))
        assert await webhook_configurations.segment_at(plane.client, here) == ""
        await webhook_configurations.apply(plane.client, *made(here, "abc"))
        assert await webhook_configurations.segment_at(plane.client, f"{here}/") == "abc"
        assert await webhook_configurations.segment_at(plane.client, "https://10.0.0.1:9443") == ""
    finally:
        await webhook_configurations.remove(plane.client)


def test_what_the_api_server_says_of_a_path_is_told_without_its_segment():
    said = 'clientConfig.service.path: Invalid value: "/validate/pods/abc-d": segment[2]: x; Post "https://a:1/mutate/jobs/e?timeout=5s"'
    told = 'clientConfig.service.path: Invalid value: "/validate/pods/…": segment[2]: x; Post "https://a:1/mutate/jobs/…?timeout=5s"'
    assert path_secret.redacted(said) == told


# ── the probe ────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_replica_is_asked_over_tls_and_a_stranger_in_its_place_is_told_nothing(tmp_path: Path) -> None:
    today = SystemClock().now()
    ca, other = authority.new_ca(today), authority.new_ca(today, 2)
    pair = authority.issue(ca, ("127.0.0.1",), today)
    (tmp_path / "tls.crt").write_bytes(pair.certificate)
    (tmp_path / "tls.key").write_bytes(pair.key)
    (tmp_path / names.SEGMENTS_FILE).write_text("one\ntwo\n")
    paths = LivePaths(tmp_path)
    server = WebhookServer(
        None, LiveCertificate(CertificateFiles(tmp_path)), ListenOptions("127.0.0.1", 0, 0.0), paths=paths
    )  # type: ignore[arg-type] # nobody calls
    await server.start()
    address = f"127.0.0.1:{server.port}"

    def entry(trusted: bytes) -> PathEntry:
        return PathEntry("pods.guarded.muster.sh", "/validate/pods", None, None, f"https://{address}", trusted)

    for segment, taken in (("one", True), ("two", True), ("three", False), (names.NO_SEGMENT, False)):
        found = await path_probe.probe(address, entry(ca.certificate), segment)
        assert found.taken is taken
        assert (found.failed_at is not None) is taken
    assert await path_probe.probe(address, entry(other.certificate), "one") == PathProbe()
    await server.stop()
    assert await path_probe.probe(address, entry(ca.certificate), "one") == PathProbe()


async def test_a_replica_that_demands_a_certificate_hangs_up(tmp_path: Path) -> None:
    today = SystemClock().now()
    ca, clients = authority.new_ca(today), authority.new_ca(today, 2)
    pair = authority.issue(ca, ("127.0.0.1",), today)
    for name, content in (("tls.crt", pair.certificate), ("tls.key", pair.key), ("clients.crt", clients.certificate)):
        (tmp_path / name).write_bytes(content)
    files = CertificateFiles(tmp_path, tmp_path / "clients.crt")
    paths = LivePaths(tmp_path, certified=True)
    server = WebhookServer(None, LiveCertificate(files), ListenOptions("127.0.0.1", 0, 0.0), paths=paths)  # type: ignore[arg-type] # nobody calls
    await server.start()
    address = f"127.0.0.1:{server.port}"
    entry = PathEntry("pods.guarded.muster.sh", "/validate/pods", None, None, f"https://{address}", ca.certificate)
    assert await path_probe.probe(address, entry, "any") == PathProbe(hung_up=True)
    stranger = PathEntry(
        "pods.guarded.muster.sh", "/validate/pods", None, None, f"https://{address}", clients.certificate
    )
    assert await path_probe.probe(address, stranger, "any") == PathProbe()
    await server.stop()


@pytest.mark.parametrize(
    ("head", "taken"),
    [
        ("HTTP/1.1 405 Method Not Allowed\r\nMuster-Last-Failure: 1000\r\n\r\n", True),
        ("HTTP/1.1 404 Not Found\r\n\r\n", False),
        ("HTTP/1.1 503 Service Unavailable\r\n\r\n", None),
        ("", None),
        ("HTTP/1.1 405 x\r\nMuster-Last-Failure: 99999999999999999999\r\n\r\n", True),
    ],
)
def test_an_answer_is_read(head: str, taken: Any) -> None:
    found = path_probe.answer(head)
    assert found.taken is taken
    assert found.failed_at == (datetime.fromtimestamp(1000, UTC) if "1000\r" in head else None)
