"""`muster certs` as it is typed: what it says, its status, and that a dry run writes nothing."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import click
import pytest
from commands import QUICK, cluster, muster
from plane import running

from certs import authority
from certs.publish import RotationTarget, Rotator
from certs.serving import CertificateFiles, LiveCertificate
from muster.cli.certs import files, installation
from muster.cli.certs.installation import span
from muster.kube.client import Client
from muster.kube.clock import SystemClock
from muster.model import kinds, names
from webhooks.paths import LivePaths
from webhooks.registration import UrlBase, configurations
from webhooks.server import ListenOptions, WebhookServer

SPACE = "muster-system"
pytestmark = pytest.mark.usefixtures("quick_looks")


@pytest.fixture
async def client(tmp_path: Path, monkeypatch) -> AsyncIterator[Client]:
    """A cluster with Muster's namespace, and the commands pointed at it."""
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
    async with cluster(tmp_path) as reached:
        await reached.create(kinds.NAMESPACES, {"metadata": {"name": SPACE}})
        yield reached


async def said(*words: str, status: int = 0) -> str:
    code, text = await muster("certs", *words)
    assert code == status, text
    assert "Traceback" not in text
    return text


async def everything(client: Client) -> Any:
    secrets = (await client.list(kinds.SECRETS, SPACE)).items
    hooks = [each for kind in (kinds.VALIDATING, kinds.MUTATING) for each in (await client.list(kind)).items]
    return {each.name: each.metadata.resource_version for each in (*secrets, *hooks)}


async def register(client: Client, url: str, trusted: bytes) -> None:
    both = configurations(UrlBase(url), trusted, scheduler_names=["muster"], legacy_apis=False, own_namespace=SPACE)
    for kind, manifest in zip((kinds.MUTATING, kinds.VALIDATING), both, strict=True):
        await client.create(kind, manifest)


@pytest.fixture
async def replica(client: Client, tmp_path: Path) -> AsyncIterator[str]:
    """A listener that shows the Secret's certificate, as a webhook server would; its address."""
    await said("init", "--host", "127.0.0.1")
    await said("export", "--folder", str(tmp_path / "served"))
    live = LiveCertificate(CertificateFiles(tmp_path / "served"))
    server = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0, ssl=live.listening)
    address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    await register(client, f"https://{address}", (tmp_path / "served" / "ca.crt").read_bytes())

    async def follow() -> None:
        rotator = Rotator(client, SystemClock(), RotationTarget())
        while True:
            await asyncio.sleep(0.2)
            observation = await rotator.look(probing=False)
            if observation.served.pair.key:
                files.write(tmp_path / "served", files.content(observation, authority=False))
                live.refresh()

    async with running(follow()):
        yield address
    server.close()


@pytest.mark.parametrize(
    "command", ["renew", "rotate-ca", "rollback", "inject", "status", "verify", "export --folder x"]
)
async def test_before_init_each_command_says_what_to_run(client, command):
    looks = command in {"status", "verify"}
    text = await said(*command.split(), status={"status": 0, "verify": 1}.get(command, 1))
    assert ("muster certs init" in text) or looks
    assert len(text.strip().splitlines()) <= 2


async def test_without_its_namespace_init_says_who_makes_it(client):
    text = await said("init", "-n", "nowhere", status=1)
    assert text == "Error: namespace nowhere doesn't exist: run `muster install`, which makes it\n"


async def test_a_dry_run_says_what_would_be_done_and_does_nothing(client, replica, tmp_path):
    before = await everything(client)
    probe = ("--probe", replica)
    assert "would do nothing: nothing to do" in await said("renew", "--dry-run")
    assert "would issue a certificate: requested" in await said("renew", "--now", "--dry-run")
    assert "would enter phase publish" in await said("rotate-ca", *probe, "--dry-run")
    assert "every webhook has the bundle" in await said("inject", "--dry-run")
    assert "nothing to roll back" in await said("rollback", "--dry-run")
    assert "would do nothing" in await said("init", "--dry-run")
    assert "would annotate Mutating" in await said("init", "--cert-manager", "a/b", "--dry-run")
    assert "would announce a new segment: another path is requested" in await said("rotate-path", "--dry-run")
    assert "would write" in await said("export", "--folder", str(tmp_path / "new"), "--dry-run")
    assert not (tmp_path / "new").exists()
    assert await everything(client) == before


async def test_a_dry_run_of_init_names_what_it_would_make(client):
    await register(client, "https://127.0.0.1:1", authority.new_ca(SystemClock().now()).certificate)
    text = await said("init", "--dry-run")
    assert "would make a CA and a certificate for 127.0.0.1\n" in text
    assert "would rotate from the CA that is trusted at present to it" in text
    assert await everything(client) == {"muster": (await everything(client))["muster"]}


async def test_a_rotation_by_url_needs_to_know_the_replicas(client, replica):
    text = await said("rotate-ca", status=1)
    assert "name each with --probe HOST:PORT" in text


@pytest.mark.parametrize("command", ["renew --now", "rotate-ca --probe 127.0.0.1:1"])
async def test_what_can_not_be_done_is_a_failure_that_says_why(client, replica, monkeypatch, command):
    class Behind:
        def now(self) -> datetime:
            return SystemClock().now() - timedelta(minutes=10)

    before = await everything(client)
    monkeypatch.setattr(installation, "SystemClock", Behind)
    text = await said(*command.split(), status=1)
    assert text.splitlines()[-1] == (
        "Error: the API server's clock is 10 minutes ahead of this machine's, so nothing is issued: set the clocks by NTP"
    )
    after = await everything(client)
    assert {name: after[name] for name in ("muster", "muster-webhook-tls")} == {
        name: before[name] for name in ("muster", "muster-webhook-tls")
    }


@pytest.mark.processes
async def test_two_rotations_at_once_are_one(client, replica):
    options = ("rotate-ca", "--probe", replica, "--publish-wait", "0.5s", "--soak", "0.5s")
    # In processes of their own: in this one they would share the standard output.
    both = [
        await asyncio.create_subprocess_exec(*QUICK, "certs", *options, stdout=asyncio.subprocess.PIPE)
        for _ in range(2)
    ]
    for process in both:
        assert b"steady: CA until" in (await process.communicate())[0]
    status = json.loads(await said("status", "-o", "json"))
    assert (status["phase"], status["generation"]) == ("steady", 2)
    assert {tuple(each) for each in status["webhooks"].values()} == {(status["cas"]["current"][0]["fingerprint"],)}
    assert status["replicas"][replica] == status["leaf"]
    assert "1 replica is accepted by" in await said("verify")


async def test_inject_mends_what_somebody_broke_and_verify_had_found_it(client, replica):
    change = {"webhooks": []}
    found = await client.get(kinds.MUTATING, "muster")
    hooks = [each | {"clientConfig": {"url": each["clientConfig"]["url"]}} for each in found.webhooks]
    await client.patch(kinds.MUTATING, "muster", change | {"webhooks": hooks})
    text = await said("verify", "--probe", replica, status=1)
    assert "MutatingWebhookConfiguration muster jobs.mutate.muster.sh: it has no caBundle" in text
    assert "wrote the bundle to MutatingWebhookConfiguration muster" in await said("inject")
    await said("verify", "--probe", replica)


async def test_a_bundle_of_one_s_own_is_tried_on_the_replicas_before_it_is_written(client, replica, tmp_path):
    for name in ("muster-webhook-ca", "muster-webhook-tls"):
        await client.delete(kinds.SECRETS, name, SPACE)
    right, wrong = tmp_path / "right.crt", tmp_path / "wrong.crt"
    right.write_bytes((tmp_path / "served" / "ca.crt").read_bytes())
    wrong.write_bytes(authority.new_ca(SystemClock().now(), 5).certificate)
    before = await everything(client)
    text = await said("inject", "--ca-file", str(wrong), "--probe", replica, status=1)
    assert "not written, since reviews would fail: replica" in text
    assert "to try the bundle on" in await said("inject", "--ca-file", str(right), status=1)
    assert "every webhook has the bundle" in await said("inject", "--ca-file", str(right), "--probe", replica)
    assert await everything(client) == before


@pytest.mark.parametrize(
    ("text", "seconds"), [("10s", 10), ("2m", 120), ("1h30m", 5400), ("0", 0), ("0.5s", 0.5), ("200ms", 0.2)]
)
def test_spans_of_time_are_read_as_people_write_them(text, seconds):
    assert span(None, None, text) == timedelta(seconds=seconds)


@pytest.mark.parametrize("text", ["", "10", "m", "-1s", "1d", "10 s", "1s2"])
def test_what_is_no_span_of_time_is_refused(text):
    with pytest.raises(click.BadParameter, match="is not a span of time like 10s"):
        span(None, None, text)


async def test_a_span_that_is_none_is_said_in_one_line(client):
    text = await said("rotate-ca", "--soak", "soon", status=2)
    assert "'soon' is not a span of time like 10s, 2m or 1h30m" in text


def test_files_that_can_not_be_written_are_an_error_of_the_system(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="file"):
        files.write(tmp_path / "file" / "folder", {"tls.crt": b"x"})


async def test_the_secret_of_the_paths_is_made_by_init_written_by_export_and_replaced_by_rotate_path(client, tmp_path):
    """As for a server outside the cluster that follows what `export` writes each minute."""
    folder = tmp_path / "served"
    assert "Error: there is no Secret muster-webhook-path: run `muster certs init`" in await said(
        "rotate-path", status=1
    )
    made = await said("init", "--host", "127.0.0.1")
    assert "made Secret muster-webhook-path" in made
    assert "muster-webhook-path" not in await said("init", "--host", "127.0.0.1")
    await said("export", "--folder", str(folder))
    assert (folder / names.SEGMENTS_FILE).read_text() == "-\n"
    files_, paths = CertificateFiles(folder), LivePaths(folder)
    server = WebhookServer(None, LiveCertificate(files_), ListenOptions("127.0.0.1", 0, 0.0), paths=paths)  # type: ignore[arg-type] # nobody calls
    await server.start()
    address = f"127.0.0.1:{server.port}"
    await register(client, f"https://{address}", (folder / "ca.crt").read_bytes())
    await said("init", "--probe", address)
    assert "paths end in no segment yet; phase steady" in await said("status")

    async def export() -> None:
        while True:
            await asyncio.sleep(0.2)
            await said("export", "--folder", str(folder))
            paths.refresh()

    async with running(export()):
        told = await said("rotate-path", "--spread", "1s", "--soak", "1s")
    called = [
        each for kind in (kinds.MUTATING, kinds.VALIDATING) for each in (await client.get(kind, "muster")).webhooks
    ]
    steps = [
        "announce a new segment: another path is requested",
        "use the new segment: every ready replica is seen to take the new path",
        f"write the paths to the webhook configurations: {len(called)} of {len(called)} webhooks are called by another path",
    ]
    # A write whose answer is lost is found done, and not told: the end shows in what is accepted, below.
    shown = [line.partition(": ")[2] for line in told.splitlines() if "wait" not in line]
    assert [step for step in steps if step in shown] == [step for step in shown if step in steps] != []
    await said("export", "--folder", str(folder))
    (segment,) = (folder / names.SEGMENTS_FILE).read_text().split()
    found = [
        each for kind in (kinds.MUTATING, kinds.VALIDATING) for each in (await client.get(kind, "muster")).webhooks
    ]
    assert {each["clientConfig"]["url"].rpartition("/")[2] for each in found} == {segment}
    text = await said("status") + await said("status", "-o", "json") + told
    assert "paths in use since" in text
    assert segment not in text
    await server.stop()
