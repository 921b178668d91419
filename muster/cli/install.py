"""``muster install`` and ``uninstall``: the kinds, roles and webhook configurations of Muster in a cluster."""

from __future__ import annotations

import copy
from importlib import resources
from typing import Any, Final

import click
import yaml

from muster.kube import errors, wait
from muster.kube.client import Client
from muster.model import kinds, names
from muster.model.objects import CustomResourceDefinition

SYSTEM_NAMESPACE: Final = "muster-system"
WEBHOOKS_NAME: Final = "muster"
_PART_OF: Final = "app.kubernetes.io/part-of"
_ESTABLISHED_SECONDS: Final = 30.0
_UNAPPROVED: Final = "unapproved, served by Muster for workloads written for kube-batch"


def definitions(*, legacy_apis: bool) -> list[dict[str, Any]]:
    """Give the CRDs; with ``legacy_apis`` also those of kube-batch's two groups."""
    folder = resources.files("deploy") / "crds"
    primary = [
        yaml.safe_load(entry.read_text())
        for entry in sorted(folder.iterdir(), key=lambda entry: entry.name)
        if entry.name.endswith(".yaml")
    ]
    if not legacy_apis:
        return primary
    shared = [each for each in primary if each["spec"]["group"] == names.VOLCANO_GROUP]
    groups = {kind.group: kind.version for kind in kinds.LEGACY_QUEUES}
    return primary + [_legacy(each, group, version) for group, version in groups.items() for each in shared]


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


async def apply_kinds(client: Client, *, legacy_apis: bool, adopt: bool) -> None:
    """Apply the CRDs and wait until the API server serves them.

    Raises:
        ClickException: a CRD of another product stands in the way.
        TimeoutError: one was not established in time.
    """
    wanted = definitions(legacy_apis=legacy_apis)
    for crd in wanted:
        found = await client.find(kinds.CRDS, crd["metadata"]["name"])
        if found is not None and not adopt and found.metadata.label(_PART_OF) != "muster":
            raise click.ClickException(
                f"{crd['metadata']['name']} exists and isn't Muster's; --adopt-crds replaces its schema, objects stay"
            )
    for crd in wanted:
        await client.apply(kinds.CRDS, crd, manager=names.FIELD_MANAGER)
    for crd in wanted:
        name = crd["metadata"]["name"]
        await wait.until(client, kinds.CRDS, name, holds=_established, within=_ESTABLISHED_SECONDS)


def _established(crd: CustomResourceDefinition | None) -> bool:
    conditions = (crd.status or {}).get("conditions") if crd else None
    return any(each["type"] == "Established" and each["status"] == "True" for each in conditions or ())


async def ensure_namespace(client: Client, name: str) -> None:
    """Create the namespace where it is missing."""
    if await client.find(kinds.NAMESPACES, name) is None:
        try:
            await client.create(kinds.NAMESPACES, {"metadata": {"name": name, "labels": {_PART_OF: "muster"}}})
        except errors.AlreadyExistsError:
            return  # another one of us was quicker


async def apply_webhooks(client: Client, mutating: dict[str, Any], validating: dict[str, Any]) -> None:
    """Register the webhooks. The validating ones first: nothing may be let in that they have not seen."""
    await client.apply(kinds.VALIDATING, validating, manager=names.FIELD_MANAGER)
    await client.apply(kinds.MUTATING, mutating, manager=names.FIELD_MANAGER)


async def remove_webhooks(client: Client) -> None:
    """Take the webhook configurations away; fine where there are none."""
    for kind in (kinds.MUTATING, kinds.VALIDATING):
        try:
            await client.delete(kind, WEBHOOKS_NAME)
        except errors.NotFoundError:
            continue
