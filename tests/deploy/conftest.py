"""The image, and an installation of the chart on a control plane of its own."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import binaries
import chart
import image as images
import pytest
import yaml
from controlplane import ControlPlane
from installation import Installation

from muster.kube import auth
from muster.kube.client import Client
from muster.kube.http import HttpTransport

REVISION = "0123abc"
_MISSING = [binary.name for binary in binaries.BINARIES if binaries.find(binary.name) is None]


@pytest.fixture(scope="session")
def image() -> Iterator[Path]:
    """The venv of an image."""
    folder = Path(tempfile.mkdtemp(prefix="muster-image-"))
    yield images.build(folder, REVISION)
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def value_sets() -> Any:
    """Return sets of values, by name."""
    return yaml.safe_load((Path(__file__).parent / "values.yaml").read_text())


@pytest.fixture(scope="session")
def render(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Return the manifests that the chart makes of values; each set once."""
    chart.needed()
    made: dict[str, list[Any]] = {}

    def rendered(values: dict[str, Any]) -> list[Any]:
        key = json.dumps(values)
        if key not in made:
            done = chart.template(values)
            assert done.returncode == 0, done.stderr
            made[key] = [each for each in yaml.safe_load_all(done.stdout) if each]
        return made[key]

    return rendered


@pytest.fixture(scope="module")
def cluster(image: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    """A control plane of its own whose Services have addresses of loopback, and what stands in for its nodes."""
    if _MISSING:
        pytest.skip(f"real control plane: not run, {', '.join(_MISSING)} missing (make controlplane)")
    # Two processes that run this on one machine must not listen at the same addresses.
    services = f"127.{64 + os.getpid() % 128}.{os.getpid() // 128 % 256}.0/24"
    folder = tmp_path_factory.mktemp("installation")
    with ControlPlane(nodes_simulated=False, services=services) as plane, Installation(plane, folder, image) as made:
        yield made


@pytest.fixture
async def admin(cluster: Installation) -> AsyncIterator[Client]:
    async with HttpTransport(await auth.load(str(cluster.plane.kubeconfig()))) as transport:
        yield Client(transport)
