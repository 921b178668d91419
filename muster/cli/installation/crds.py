"""Muster's CRDs: as the files of ``deploy`` have them, with those of kube-batch's groups derived from them."""

from __future__ import annotations

import asyncio
import copy
from functools import cache
from importlib import resources
from typing import Any, Final

import msgspec

from muster.cli.installation import preflight
from muster.kube import wait
from muster.kube.client import Client
from muster.model import kinds, names
from muster.model.manifests import documents
from muster.model.objects import CustomResourceDefinition

_ESTABLISHED_SECONDS: Final = 30.0
GONE_SECONDS: Final = 30.0
"""For which the deletion of CRDs is waited for."""
_UNAPPROVED: Final = "unapproved, served by Muster for workloads written for kube-batch"


def manifests(*, legacy_apis: bool) -> list[dict[str, Any]]:
    """Return the CRDs; with ``legacy_apis`` also those of kube-batch's two groups."""
    primary = msgspec.json.decode(_read(), type=list[dict[str, Any]])
    if not legacy_apis:
        return primary
    shared = [each for each in primary if each["spec"]["group"] == names.VOLCANO_GROUP]
    groups = {kind.group: kind.version for kind in kinds.LEGACY_QUEUES}
    return primary + [_legacy(each, group, version) for group, version in groups.items() for each in shared]


@cache
def _read() -> bytes:
    """Return the files' documents as a list in JSON: YAML takes long to read, and callers change what they are given."""
    folder = resources.files("deploy") / "crds"
    files = sorted((entry for entry in folder.iterdir() if entry.name.endswith(".yaml")), key=lambda entry: entry.name)
    return msgspec.json.encode([documents(entry.read_text(), entry.name)[0] for entry in files])


def _legacy(primary: dict[str, Any], group: str, version: str) -> dict[str, Any]:
    """Derive a legacy CRD: the same schema, but no short names, which would be ambiguous beside the primary group's."""
    crd = copy.deepcopy(primary)
    spec = crd["spec"]
    crd["metadata"]["name"] = f"{spec['names']['plural']}.{group}"
    if group.endswith(".k8s.io"):
        # The API server refuses a CRD in a protected group that doesn't say this of itself.
        crd["metadata"]["annotations"] = {"api-approved.kubernetes.io": _UNAPPROVED}
    spec["group"] = group
    spec["versions"][0]["name"] = version
    spec["names"].pop("shortNames", None)
    spec["names"].pop("categories", None)
    return crd


async def apply(client: Client, *, legacy_apis: bool, adopt: bool) -> None:
    """Apply the CRDs and wait until the API server serves them.

    Raises:
        ClickException: the cluster is too old, or a CRD stands in the way; nothing was changed.
        TimeoutError: one was not established in time.
    """
    wanted = manifests(legacy_apis=legacy_apis)
    await preflight.version(client)
    await preflight.definitions(client, wanted, adopt=adopt)
    for crd in wanted:
        await client.apply(kinds.CRDS, crd, manager=names.FIELD_MANAGER)
    for crd in wanted:
        name = crd["metadata"]["name"]
        await wait.until(client, kinds.CRDS, name, holds=established, within=_ESTABLISHED_SECONDS)


def established(crd: CustomResourceDefinition | None) -> bool:
    """Whether the API server serves a CRD."""
    conditions = (crd.status or {}).get("conditions") if crd else None
    return any(each["type"] == "Established" and each["status"] == "True" for each in conditions or ())


async def remove(client: Client) -> list[str]:
    """Delete our CRDs, and with them every object of theirs; another product's stay.

    Returns the names of those that aren't gone in `GONE_SECONDS`: a finalizer holds an object of theirs.
    """
    deleted = []
    for crd in manifests(legacy_apis=True):
        found = await client.find(kinds.CRDS, crd["metadata"]["name"])
        if found is not None and found.metadata.label(names.PART_OF) == "muster":
            await client.delete(kinds.CRDS, found.name)
            deleted.append(found)
    gone = await asyncio.gather(*(_gone(client, each) for each in deleted))
    return [each.name for each, is_gone in zip(deleted, gone, strict=True) if not is_gone]


async def _gone(client: Client, crd: CustomResourceDefinition) -> bool:
    """Wait for the end of a deletion, which the API server does in the background, objects first."""

    def is_gone(found: CustomResourceDefinition | None) -> bool:
        return found is None or found.metadata.uid != crd.metadata.uid

    try:
        await wait.until(client, kinds.CRDS, crd.name, holds=is_gone, within=GONE_SECONDS)
    except TimeoutError:
        return False
    return True
