"""The proof: on the real control plane, while clients create objects, not one review fails whatever is rotated.

``MUSTER_SOAK`` says how many thousands of objects are made; `make soak` makes 20,000.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from plane import Plane
from rotating import Rig

from certs import authority, path_controller, path_secret, paths, replicas
from certs.paths import PathAction, PathWaits
from certs.publish import CertificateSettings, RotationTarget
from certs.rotation import RotationCommand
from certs.state import RotationPhase
from muster.model import kinds

pytestmark = [
    pytest.mark.soak,
    pytest.mark.only("kubernetes", reason="an API server that opens TLS connections is what it is about"),
]

OBJECTS = 1000 * int(os.environ.get("MUSTER_SOAK", "1"))
HOSTS = ("127.0.0.1",)
QUICK = PathWaits(timedelta(seconds=0.5), timedelta(seconds=5))
NOTICED = 2.0
ROUNDS = 50
"""Seconds until the API server calls by what a configuration says: it tells nobody."""


@pytest.fixture
async def rig(plane: Plane, make_setting: Any, tmp_path: Path) -> AsyncIterator[Any]:
    target = RotationTarget(await plane.namespace(), plane.unique("certificates"))
    setting = make_setting(plane.client, plane.clock, target)
    setting.fleet = replicas.probe
    await setting.rotator().begin(CertificateSettings(HOSTS, (), setting.short))
    await setting.drive()
    made = Rig(plane, setting, tmp_path)
    await made.start()
    await setting.rotator().begin(CertificateSettings(None, tuple(f"127.0.0.1:{port}" for port in made.ports)))
    yield made
    await made.stop()


async def test_no_review_fails_while_certificates_are_rotated_renewed_rolled_back_and_their_rotator_killed(rig):
    async with rig.load.running():
        for story in (rotate_with_a_lagging_replica, renew, roll_back_from_each_phase, kill_at_every_step):
            await rig.load.another(200)
            await story(rig)
            await rig.load.another(200)
            assert (story, rig.load.failures) == (story, [])
        await rig.load.another(OBJECTS - rig.load.made)
    assert rig.load.failures == []
    assert rig.load.made >= OBJECTS


async def rotate_with_a_lagging_replica(rig: Rig) -> None:
    rig.lag[1] = 3.0
    await rig.setting.drive(RotationPhase.STEADY, RotationCommand.ROTATE)
    rig.lag[1] = 0.0
    assert (await rig.setting.keys()).generation == 2
    # On a busy machine others lag with it.
    assert any(re.search(r"[123] of 3 replicas", said) for said in rig.setting.said)


async def renew(rig: Rig) -> None:
    await rig.setting.drive(RotationPhase.STEADY, RotationCommand.RENEW)
    await rig.followed()


async def roll_back_from_each_phase(rig: Rig) -> None:
    before = await rig.setting.keys()
    for phase in (RotationPhase.PUBLISH, RotationPhase.SPREAD, RotationPhase.SWITCH, RotationPhase.SOAK):
        await rig.setting.drive(phase, RotationCommand.ROTATE, idle=False)
        await rig.setting.drive(RotationPhase.STEADY, RotationCommand.ROLL_BACK)
        after = await rig.setting.keys()
        assert (after.current, after.following) == (before.current, None)


async def kill_at_every_step(rig: Rig) -> None:
    """Run the command, kill -9 it as soon as it says what it did, and run it again."""
    generation, starts = (await rig.setting.keys()).generation, 0
    while (await rig.setting.keys()).generation == generation:
        starts += 1
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "muster.cli", "certs", "rotate-ca", *rig.options()), stdout=asyncio.subprocess.PIPE
        )
        assert process.stdout is not None
        async for line in process.stdout:
            if b"waiting" not in line:
                process.send_signal(signal.SIGKILL)
        assert await process.wait() in {0, -signal.SIGKILL}
    assert starts >= 6


async def test_the_naive_orders_do_fail_reviews_on_the_same_rig(rig):
    """The control: without it, a rig that can't see a failure would prove nothing."""
    keys = await rig.setting.keys()
    rotator = rig.setting.rotator()
    async with rig.load.running():
        for number, ca_first in enumerate((True, False), start=2):
            new = authority.new_ca(rig.plane.clock.now(), number)
            pair = authority.issue(new, HOSTS, rig.plane.clock.now())
            steps = [lambda new=new: rotator.inject(new.certificate), lambda pair=pair: rig.serve(pair)]
            before = len(rig.load.failures)
            first, second = steps if ca_first else reversed(steps)
            await rig.load.another(200)
            await first()
            # The API server goes on with connections that it has, and learns of a new bundle when it does.
            for _ in range(ROUNDS):
                await rig.load.another(200)
                if len(rig.load.failures) > before:
                    break
            await second()
            await rig.load.another(200)
            failed = rig.load.failures[before:]
            assert failed
            assert all(
                "failed to verify certificate: x509: certificate signed by unknown authority" in each for each in failed
            )
    assert (await rig.setting.keys()) == keys


async def test_no_review_fails_while_the_segment_of_the_paths_is_replaced_again_and_again(rig):
    """The third time with a replica that learns of it late."""
    rotator, said, segments = rig.paths(QUICK), [], set()
    async with rig.load.running():
        for lag in (0.0, 0.0, 3.0):
            rig.lag[1] = lag
            await rig.load.another(200)
            await path_controller.replace_now(rotator, lambda step: said.append(step.why))
            segments |= {each.rpartition("/")[2] for each in await called(rig)}
            await rig.load.another(200)
        await rig.load.another(OBJECTS - rig.load.made)
    assert rig.load.failures == []
    assert (len(segments), {len(each) for each in segments}) == (3, {52})
    assert any("1 of 3 replicas" in each for each in said)


async def test_a_segment_that_is_used_before_replicas_know_it_does_fail_reviews_on_the_same_rig(rig):
    rotator = rig.paths(QUICK)
    async with rig.load.running():
        await rig.load.another(200)
        for target in (await rotator.look()).targets:
            manifest = target.manifest(paths.segment(bytes(paths.BYTES)))
            await rig.plane.client.apply(target.kind, manifest, manager=path_secret.MANAGER)
        await rig.load.another(200)
        assert rig.load.failures
        assert all("the server could not find the requested resource" in each for each in rig.load.failures)
        # It is put right, and from then on nothing fails.
        assert (await rotator.take_step()).action is PathAction.WRITE
        await asyncio.sleep(NOTICED)
        before = len(rig.load.failures)
        await rig.load.another(200)
        assert rig.load.failures[before:] == []


async def called(rig: Rig) -> list[str]:
    """Return the URL of every webhook."""
    found = [await rig.plane.client.get(kind, rig.target.configuration) for kind in (kinds.VALIDATING, kinds.MUTATING)]
    return [each["clientConfig"]["url"] for one in found for each in one.webhooks]
