"""Both control planes at once, and a way to play the same requests on them."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import aiohttp
import hooks
import planes
import pytest
import pytest_asyncio
from comparing import differences
from controlplane import ControlPlane
from runner import Runner

Compare = Callable[[list[dict[str, Any]]], Awaitable[None]]

_NUMBERS = itertools.count(1)
"""Of a process, as the real control plane is: the fixture may be set up more than once."""

_WIDGETS = {
    "metadata": {"name": "widgets.differential.muster.sh"},
    "spec": {
        "group": "differential.muster.sh",
        "scope": "Namespaced",
        "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "shortNames": ["wd"]},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "subresources": {
                    "status": {},
                    "scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"},
                },
                "additionalPrinterColumns": [
                    {"name": "Size", "type": "integer", "jsonPath": ".spec.size"},
                    {"name": "Colour", "type": "string", "jsonPath": ".spec.colour", "priority": 1},
                ],
                "selectableFields": [{"jsonPath": ".spec.colour"}],
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {
                            "spec": {
                                "type": "object",
                                "properties": {
                                    "size": {"type": "integer", "minimum": 1, "maximum": 100},
                                    "replicas": {"type": "integer", "default": 1},
                                    "colour": {"type": "string", "enum": ["red", "green", "blue"], "default": "red"},
                                    "tags": {"type": "object", "additionalProperties": {"type": "string"}},
                                    "parts": {
                                        "type": "array",
                                        "x-kubernetes-list-type": "map",
                                        "x-kubernetes-list-map-keys": ["name"],
                                        "items": {
                                            "type": "object",
                                            "required": ["name"],
                                            "properties": {
                                                "name": {"type": "string", "maxLength": 20},
                                                "count": {"type": "integer", "default": 1},
                                            },
                                        },
                                    },
                                },
                            },
                            "status": {
                                "type": "object",
                                "properties": {"replicas": {"type": "integer"}, "phase": {"type": "string"}},
                            },
                        },
                    }
                },
            }
        ],
    },
}


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def compare(real_control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Compare]:
    """Return a function that plays steps on both and fails, with a diff, where the sandbox differs."""
    folder = tmp_path_factory.mktemp("planes")
    async with (
        aiohttp.ClientSession() as session,
        hooks.serving(folder) as server,
        planes.sandbox(folder, session) as sandbox,
    ):
        both = (sandbox, planes.kubernetes(real_control_plane, session))

        async def play(steps: list[dict[str, Any]]) -> None:
            namespace = f"sequence-{next(_NUMBERS)}"
            async with asyncio.TaskGroup() as group:
                ours, theirs = (group.create_task(Runner(each, server, namespace).play(steps)) for each in both)
            if difference := differences(ours.result(), theirs.result()):
                pytest.fail(difference, pytrace=False)

        for plane in both:
            await Runner(plane, server, "prepared").define(_WIDGETS)
        yield play
        # First of all, so that the servers see their clients go and have closed each connection when they stop.
        await session.close()
