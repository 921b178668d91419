from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator

import binaries
import pytest
import siege
from asking import FrontProxy
from deployed import Deployed, Program, with_all_programs
from plane import running
from revisions import Recorder
from sandboxed import DeployedOnSandbox, SandboxProcess
from siege import Siege, Watched

from muster.kube import auth
from muster.kube.client import Client
from muster.kube.http import HttpTransport

_MISSING = [binary.name for binary in binaries.BINARIES if binaries.find(binary.name) is None]


def _watched(name: str, program: Program) -> Watched:
    return Watched(name, program.pid, program.probes)


@pytest.fixture(scope="module")
def deployed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployed]:
    """Muster under its own accounts on a control plane of its own, with both tenants' namespaces.

    The parameter ``sandbox`` has it on a sandbox; without one it is the real control plane.
    """
    folder = tmp_path_factory.mktemp("hostile")
    if getattr(request, "param", "") == "sandbox":
        with SandboxProcess(folder) as process:
            made = DeployedOnSandbox(process, folder)
            asyncio.run(_prepare(made))
            yield made
            for program in _programs(made).values():
                program.kill()
    elif _MISSING:
        pytest.skip(f"real control plane: not run, {', '.join(_MISSING)} missing (make controlplane)")
    else:
        with with_all_programs(folder, "GenericWorkload") as deployed:
            asyncio.run(_prepare(deployed))
            yield deployed


def _programs(deployed: Deployed) -> dict[str, Program]:
    """Return what runs; what answers tenants believes an API server's front proxy, which the sandbox hasn't."""
    two = {"webhook": deployed.webhook, "scheduler": deployed.scheduler}
    return two if isinstance(deployed, DeployedOnSandbox) else two | {"visibility": deployed.visibility}


async def _prepare(deployed: Deployed) -> None:
    async with HttpTransport(await auth.load(str(deployed.plane.kubeconfig()))) as transport:
        await siege.prepare(Client(transport))
        await siege.make_editor(Client(transport))


@pytest.fixture
async def besieged(deployed: Deployed) -> AsyncIterator[Siege]:
    config = await deployed.kubeconfig_of(*siege.EDITOR)
    async with (
        HttpTransport(await auth.load(str(deployed.plane.kubeconfig()))) as admin,
        HttpTransport(await auth.load(str(config))) as tenant,
        contextlib.AsyncExitStack() as stack,
    ):
        proxy = None
        if not isinstance(deployed, DeployedOnSandbox):
            port, authority = deployed.visibility_port, deployed.plane.proxy_authority
            proxy = await stack.enter_async_context(
                FrontProxy(port, deployed.folder / "ca.crt", authority, deployed.folder)
            )
        made = Siege(
            Client(admin),
            Client(tenant),
            lambda: tuple(_watched(name, each) for name, each in _programs(deployed).items()),
            proxy,
        )
        await siege.settled(made)
        yield made


@pytest.fixture
async def recorded(besieged: Siege) -> AsyncIterator[Recorder]:
    """What the quotas of both namespaces hold from now on, at every revision."""
    recorder = Recorder(besieged.admin, (siege.VICTIM, "guaranteed"))
    await recorder.begin()
    async with running(recorder.follow()):
        yield recorder
