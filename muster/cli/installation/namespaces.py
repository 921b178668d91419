"""The namespace that Muster is installed in."""

from __future__ import annotations

from typing import Any

from muster.kube import errors
from muster.kube.client import Client
from muster.model import kinds, names


def manifest(name: str) -> dict[str, Any]:
    """Return the manifest of a namespace of ours."""
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": {names.PART_OF: "muster"}}}


async def ensure(client: Client, name: str) -> None:
    """Create the namespace where it is missing."""
    if await client.find(kinds.NAMESPACES, name) is None:
        try:
            await client.create(kinds.NAMESPACES, manifest(name))
        except errors.AlreadyExistsError:
            return  # another one of us was quicker
