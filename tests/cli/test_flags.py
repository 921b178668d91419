"""kubectl's global flags, wherever they stand, and what the API server says beside its answers."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from commands import cluster, muster

from certs.authority import new_ca
from muster.cli.connect import WarningTransport, connected
from muster.cli.installation import crds
from muster.kube.client import Client
from muster.kube.clock import SystemClock
from muster.kube.transport import Request, Response
from muster.model import kinds, names


@pytest.fixture
async def client(tmp_path: Path, monkeypatch: Any) -> AsyncIterator[Client]:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
    async with cluster(tmp_path) as reached:
        yield reached


@pytest.fixture
async def installed(client: Client) -> Client:
    assert (await muster("install"))[0] == 0
    await client.create(kinds.QUEUES, {"metadata": {"name": "research"}})
    return client


PLACES = [
    ["{flag}", "queue", "list", "-o", "name"],
    ["queue", "{flag}", "list", "-o", "name"],
    ["queue", "list", "-o", "name", "{flag}"],
]


def placed(words: list[str], flag: str) -> list[str]:
    return [each.format(flag=flag) for each in words]


@pytest.mark.parametrize("words", PLACES)
async def test_a_flag_counts_wherever_it_stands(installed, tmp_path, words):
    for flag in ("--context=nowhere", "--cluster=nowhere", "--user=nowhere"):
        status, said = await muster(*placed(words, flag))
        assert status == 1
        assert "'nowhere'" in said
        assert "muster-sandbox" in said
    assert await muster(*placed(words, "--context=muster-sandbox")) == (0, "queue.scheduling.volcano.sh/research\n")
    assert (await muster(*placed(words, "--request-timeout=10s")))[0] == 0
    assert (await muster(*placed(words, "--request-timeout=soon")))[0] == 2
    status, said = await muster(*placed(words, "--tls-server-name=other.example"))
    assert (status, "certificate is not valid for 'other.example'" in said) == (1, True)
    for flag in ("-v=6", "--v=6"):
        status, said = await muster(*placed(words, flag))
        assert status == 0
        assert re.search(
            r"^GET /apis/scheduling.volcano.sh/v1beta1/queues 200 in \d+ milliseconds$", said, re.MULTILINE
        )
    assert "GET" not in (await muster(*placed(words, "-v=5")))[1]
    status, said = await muster(*placed(words, f"--kubeconfig={tmp_path / 'no-such-file'}"))
    assert (status, "no-such-file doesn't exist" in said) == (1, True)


async def test_the_namespace_counts_wherever_it_stands(installed):
    await installed.create(kinds.NAMESPACES, {"metadata": {"name": "team"}})
    await installed.create(kinds.PODGROUPS, {"metadata": {"name": "train"}, "spec": {"minMember": 1}}, "team")
    for flag in (("-n", "team"), ("-n=team",), ("-nteam",), ("--namespace=team",), ("--namespace", "team")):
        for words in (
            (*flag, "pg", "list", "-o=name"),
            ("pg", *flag, "list", "-oname"),
            ("pg", "list", *flag, "-o", "name"),
        ):
            assert await muster(*words) == (0, "podgroup.scheduling.volcano.sh/train\n"), words
    assert (await muster("-n", "other", "pg", "list", "-n", "team", "-o", "name"))[1].endswith("/train\n")
    # As for kubectl, it says nothing of what is in no namespace.
    for words in (("q", "list", "-n", "team"), ("-n=team", "queue", "list"), ("queue", "list", "-nteam")):
        assert (await muster(*words))[0] == 0, words
    # Also where a command has another default than the context's.
    assert "namespace elsewhere doesn't exist" in (await muster("-n", "elsewhere", "certs", "init"))[1]


@pytest.mark.processes
@pytest.mark.parametrize("words", PLACES)
async def test_somebody_else_is_acted_as(real_control_plane, words):
    file = str(real_control_plane.kubeconfig())
    async with connected(file, None) as client:
        await crds.apply(client, legacy_apis=False, adopt=False)
    words = [*words, f"--kubeconfig={file}"]
    status, said = await muster(*placed(words, "--as=somebody"))
    assert status == 1
    assert (
        'the cluster denies permission: queues.scheduling.volcano.sh is forbidden: User "somebody" cannot list' in said
    )


@pytest.mark.processes
async def test_groups_are_named_each_in_a_header_of_its_own(real_control_plane):
    words = ("queue", "list", f"--kubeconfig={real_control_plane.kubeconfig()}", "--as=somebody")
    _, said = await muster(*words, "--as-group=a", "--as-group=system:masters")
    assert "denies permission" not in said
    _, said = await muster(*words, "--as-group=system:masters\r\nX: a")
    assert "the credentials hold characters that no header has" in said


async def test_a_dry_run_may_have_kubectl_s_values(installed):
    for flag in ("--dry-run", "--dry-run=server", "--dry-run=client"):
        assert await muster("queue", "create", flag, "night") == (0, "queue night created (dry run)\n"), flag
    assert await muster("queue", "create", "--dry-run=none", "night") == (0, "queue night created\n")


async def test_groups_need_a_user(installed):
    assert (await muster("queue", "list", "--as-group=a"))[1].startswith("Error: --as-group needs --as")


async def test_a_server_and_a_token_take_the_place_of_the_kubeconfig_s(installed, tmp_path, monkeypatch):
    config = json.loads((tmp_path / "kubeconfig").read_text())
    server = config["clusters"][0]["cluster"]["server"]
    said = await muster("queue", "list", "--server=https://127.0.0.1:1")
    assert said[1].startswith("Error: the API server does not answer")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG")
    flags = (f"--server={server}", "--insecure-skip-tls-verify", "--token=token")
    assert await muster("queue", "list", "-o", "name", *flags) == (0, "queue.scheduling.volcano.sh/research\n")
    # Instead of trusting anybody, the CA of that server; another one's is refused.
    right, wrong = tmp_path / "ca.crt", tmp_path / "other.crt"
    right.write_bytes(base64.b64decode(config["clusters"][0]["cluster"]["certificate-authority-data"]))
    wrong.write_bytes(new_ca(SystemClock().now()).certificate)
    flags = (f"--server={server}", "--token=token")
    listed = await muster("queue", "list", "-o", "name", *flags, f"--certificate-authority={right}")
    assert listed == (0, "queue.scheduling.volcano.sh/research\n")
    status, said = await muster("queue", "list", *flags, f"--certificate-authority={wrong}")
    assert (status, "certificate" in said) == (1, True)
    status, said = await muster("queue", "list", *flags, f"--certificate-authority={tmp_path / 'nowhere'}")
    assert (status, f"--certificate-authority {tmp_path / 'nowhere'} can't be read" in said) == (1, True)


async def test_credentials_that_are_refused_are_named_with_their_file_context_and_user(installed, tmp_path):
    status, said = await muster("queue", "list", "--token=wrong")
    assert status == 1
    assert said.startswith(
        f"Error: the API server doesn't accept the credentials of {tmp_path / 'kubeconfig'}, context muster-sandbox, "
        "the token of --token: "
    )
    config = json.loads((tmp_path / "kubeconfig").read_text())
    config["users"][0]["user"]["token"] = "old"
    (tmp_path / "kubeconfig").write_text(json.dumps(config))
    assert "context muster-sandbox, user muster-sandbox: " in (await muster("podgroup", "list"))[1]


@pytest.mark.parametrize(
    "words",
    [
        ["queue", "list"],
        ["queue", "create", "research"],
        ["queue", "view", "research"],
        ["queue", "close", "research"],
        ["podgroup", "list"],
        ["podgroup", "view", "train"],
        ["why", "train"],
        ["quota", "view"],
        ["dump"],
    ],
    ids=" ".join,
)
async def test_a_cluster_without_muster_is_called_that(client, words):
    status, said = await muster(*words)
    assert status in {1, 2}
    assert "this cluster does not have Muster's CRDs: run `muster install`" in said


async def test_a_check_of_a_cluster_without_muster_says_all_that_is_missing(client):
    status, said = await muster("check")
    assert status == 1
    wrong = [line[8:].partition(":")[0] for line in said.splitlines() if line.startswith("WRONG")]
    assert wrong == ["CRDs", "policies", "webhooks", "admission", "scheduler", "queue default"]
    assert (await muster("version"))[1].splitlines()[1] == "server: not installed: run `muster install`"


async def test_where_muster_is_installed_is_found_by_its_webhooks(installed):
    service = {"name": "muster-webhook", "namespace": "team", "path": "/"}
    webhook = {"name": "x.muster.sh", "clientConfig": {"service": service}, "sideEffects": "None"}
    webhook |= {"admissionReviewVersions": ["v1"], "rules": []}
    assert "nobody holds the Lease muster-system/muster-scheduler" in (await muster("check"))[1]
    await installed.create(kinds.VALIDATING, {"metadata": {"name": names.WEBHOOK_CONFIGURATION}, "webhooks": [webhook]})
    assert "nobody holds the Lease team/muster-scheduler" in (await muster("check"))[1]
    assert "nobody holds the Lease other/muster-scheduler" in (await muster("check", "-n", "other"))[1]


@pytest.mark.parametrize(("alias", "command"), [("pg", "podgroup"), ("q", "queue")])
async def test_short_names_are_the_same_command(installed, alias, command):
    assert await muster(alias, "list", "-o", "name") == await muster(command, "list", "-o", "name")


async def test_warnings_of_the_api_server_are_printed_once(capsys):
    class Warns:
        async def request(self, _request: Request, *, within: float) -> Response:  # noqa: ARG002 - a Transport
            return Response(200, b"{}", {"warning": '299 - "use \\"v2\\"", 299 - "a, b"'})

    transport = WarningTransport(Warns())  # type: ignore[arg-type]
    for _ in range(2):
        await transport.request(Request("GET", "/"), within=1)
    assert capsys.readouterr().err == 'Warning: use "v2"\nWarning: a, b\n'
