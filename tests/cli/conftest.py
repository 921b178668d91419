"""What the commands print, whole, against what it was when somebody last read it; and a cluster to ask."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner, Result

from muster.cli.installation import crds
from muster.cli.main import muster
from muster.kube.clock import SystemClock
from muster.model import kinds
from muster.sandbox.core.users import ADMIN
from muster.sandbox.http import HttpFront, kubeconfig
from muster.sandbox.server.requests import ApiServer
from muster.whatif import dump

HERE = Path(__file__).parent
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


@pytest.fixture
def golden() -> Callable[[str, str], None]:
    """Compares a text with the file of that name; GOLDEN=write writes it instead, to be read before it is committed."""

    def compare(name: str, text: str) -> None:
        file = HERE / "golden" / f"{name}.txt"
        if os.environ.get("GOLDEN") == "write":
            file.write_text(text)
        assert text == file.read_text(), f"as it should be read by eye: GOLDEN=write pytest {HERE.name}"

    return compare


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """Runs a command where the files of the tests are."""
    monkeypatch.chdir(HERE)

    def invoke(*words: str, stdin: str | None = None) -> Result:
        return CliRunner().invoke(muster, words, input=stdin)

    return invoke


@pytest.fixture
def noon(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is noon of the day at which the states were taken."""
    monkeypatch.setattr(SystemClock, "now", lambda _: NOON)


@pytest.fixture
async def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, noon: None) -> AsyncIterator[ApiServer]:
    """An API server over HTTP without anything in it; KUBECONFIG says where."""
    made = ApiServer(SystemClock(), seed=0)
    front = HttpFront(made, users={"token": ADMIN})
    (tmp_path / "kubeconfig").write_text(kubeconfig(await front.start(), "token"))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
    yield made
    await front.stop()
    made.close()


@pytest.fixture
def furnished(server: ApiServer) -> Callable[[str], ApiServer]:
    """Puts Muster's kinds and a state into the server."""

    def furnish(state: str) -> ApiServer:
        for definition in crds.manifests(legacy_apis=False):
            server.store.put((kinds.CRDS.group, kinds.CRDS.plural), definition)
        for line in (HERE / "states" / state).read_text().splitlines():
            if line.startswith("- "):
                item = msgspec.json.decode(line[2:])
                kind = next(
                    each for each in dump.KINDS if (each.api_version, each.name) == (item["apiVersion"], item["kind"])
                )
                server.store.put((kind.group, kind.plural), item)
        return server

    return furnish
