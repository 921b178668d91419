from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import binaries
import pytest
from controlplane import ControlPlane
from deployed import Deployed

from muster.kube import auth
from muster.kube.client import Client
from muster.kube.http import HttpTransport

_MISSING = [binary.name for binary in binaries.BINARIES if binaries.find(binary.name) is None]


@pytest.fixture(scope="module")
def muster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployed]:
    """Muster under its own accounts on a control plane of its own, whose audit log speaks of nobody else."""
    if _MISSING:
        pytest.skip(f"real control plane: not run, {', '.join(_MISSING)} missing (make controlplane)")
    with ControlPlane(gates=("GenericWorkload",), audited=True) as plane:
        deployed = Deployed(plane, tmp_path_factory.mktemp("muster"))
        deployed.start_certificates()
        yield deployed
        programs = (deployed.scheduler, deployed.webhook, deployed.certificates)
        assert [program.end() for program in programs] == [0, 0, 0]


@pytest.fixture
async def admin(muster: Deployed) -> AsyncIterator[Client]:
    async with HttpTransport(await auth.load(str(muster.plane.kubeconfig()))) as transport:
        yield Client(transport)
