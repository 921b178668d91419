from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import binaries
import pytest
from controlplane import ControlPlane
from deployed import Deployed
from fleet import Fleet

from muster.kube import auth
from muster.kube.client import Client
from muster.kube.http import HttpTransport

_MISSING = [binary.name for binary in binaries.BINARIES if binaries.find(binary.name) is None]


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """Muster under its own accounts on a control plane of its own, in three and two replicas."""
    if _MISSING:
        pytest.skip(f"real control plane: not run, {', '.join(_MISSING)} missing (make controlplane)")
    with ControlPlane() as plane:
        folder = tmp_path_factory.mktemp("fleet")
        fleet = Fleet(Deployed(plane, folder, programs=False))
        try:
            yield fleet
        finally:
            fleet.end()


@pytest.fixture
async def admin(fleet: Fleet) -> AsyncIterator[Client]:
    async with HttpTransport(await auth.load(str(fleet.deployed.plane.kubeconfig()))) as transport:
        yield Client(transport)
