"""How many hostile requests the control plane takes with Muster and without it, in turns: what limits `make siege`.

Run: PYTHONPATH=tests/controlplane:tests/support python benchmarks/siege_limit.py [--seconds 120] [--turns 3]   (needs `make controlplane`)
Each time a control plane of its own with the same namespaces, quotas, nodes and rights: Muster installed and its three programs
running, or its programs ended and its webhooks and policies taken out again. CRDs stay, so that the same requests are stored. They
are the siege's, from its first.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
from pathlib import Path
from typing import Any

import endless_attack
import siege
from deployed import Deployed, with_all_programs
from siege import HOSTILE, Siege

from muster.kube import auth
from muster.kube.client import Client
from muster.kube.http import HttpTransport
from muster.model import kinds
from muster.model.kinds import Kind

_REGISTERED: tuple[Kind[Any], ...] = (kinds.VALIDATING, kinds.MUTATING, kinds.POLICYBINDINGS, kinds.POLICIES)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--turns", type=int, default=3)
    options = parser.parse_args()
    rates: dict[str, list[float]] = {"with": [], "without": []}
    for turn in range(options.turns):
        for name in rates if turn % 2 == 0 else reversed(rates):
            with (
                tempfile.TemporaryDirectory() as folder,
                with_all_programs(Path(folder), "GenericWorkload") as deployed,
            ):
                rates[name].append(asyncio.run(_rate(deployed, options.seconds, muster=name == "with")))
            print(f"turn {turn + 1}, {name} Muster: {rates[name][-1]:.1f} requests stored a second", flush=True)
    had, limit = (statistics.median(each) for each in rates.values())
    print(
        f"{had:.1f} a second with Muster, {limit:.1f} without: {had / limit:.2f} of it; in 30 minutes {had * 1800:,.0f} of {limit * 1800:,.0f}"
    )


async def _rate(deployed: Deployed, seconds: float, *, muster: bool) -> float:
    """Return how many requests a second are stored, by three tenants at once."""
    async with HttpTransport(await auth.load(str(deployed.plane.kubeconfig()))) as transport:
        admin = Client(transport)
        await siege.prepare(admin)
        await siege.make_editor(admin)
        async with HttpTransport(await auth.load(str(await deployed.kubeconfig_of(*siege.EDITOR)))) as tenant:
            attacked = Siege(admin, Client(tenant), tuple, in_flight=endless_attack.IN_FLIGHT)
            await siege.settled(attacked)
            if not muster:
                await _take_out(admin)
                for program in (deployed.webhook, deployed.scheduler, deployed.visibility):
                    program.end()
            tasks = [asyncio.create_task(endless_attack.attack(attacked, namespace)) for namespace in HOSTILE]
            ended, _ = await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            stored = attacked.stored["siege"]
            for each in tasks:
                each.cancel()
            await asyncio.wait(tasks)
            for each in ended:
                each.result()  # an attack ends with an error only
            return stored / seconds


async def _take_out(admin: Client) -> None:
    """Delete what the API server asks of Muster, and what it evaluates for it."""
    for kind in _REGISTERED:
        for each in (await admin.list(kind)).items:
            if each.name.startswith("muster"):
                await admin.delete(kind, each.name)


if __name__ == "__main__":
    main()
