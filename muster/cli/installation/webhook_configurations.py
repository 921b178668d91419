"""Muster's webhook configurations in a cluster."""

from __future__ import annotations

from typing import Any, Final

from muster.kube import errors
from muster.kube.client import Client
from muster.model import kinds, names
from muster.model.kinds import Kind
from muster.model.objects import WebhookConfiguration

NAME: Final = "muster"


async def apply(client: Client, mutating: dict[str, Any], validating: dict[str, Any]) -> None:
    """Register the webhooks. The validating ones first: nothing may be admitted that they have not seen."""
    for kind, manifest in ((kinds.VALIDATING, validating), (kinds.MUTATING, mutating)):
        await _let_go(client, kind, manifest)
        await client.apply(kind, manifest, manager=names.FIELD_MANAGER)


async def _let_go(client: Client, kind: Kind[WebhookConfiguration], manifest: dict[str, Any]) -> None:
    """Have who writes the bundles give up webhooks that this version doesn't have any more."""
    from certs import targets

    found = await client.find(kind, manifest["metadata"]["name"])
    if found is None:
        return
    holder = targets.of_configuration(kind, found)
    gone = frozenset(each.name for each in holder.entries) - {each["name"] for each in manifest["webhooks"]}
    if gone:
        await client.apply(kind, targets.without(holder, gone), manager=targets.MANAGER)


async def remove(client: Client) -> None:
    """Delete the webhook configurations; fine where there are none."""
    for kind in (kinds.MUTATING, kinds.VALIDATING):
        try:
            await client.delete(kind, NAME)
        except errors.NotFoundError:
            continue
