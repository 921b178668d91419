"""Muster's webhook configurations in a cluster."""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import urlsplit

from muster.kube import errors
from muster.kube.client import Client
from muster.model import kinds, names
from muster.model.kinds import Kind
from muster.model.objects import WebhookConfiguration

NAME: Final = names.WEBHOOK_CONFIGURATION


async def apply(client: Client, mutating: dict[str, Any], validating: dict[str, Any]) -> None:
    """Register the webhooks. The validating ones first: nothing may be admitted that they have not seen."""
    for kind, manifest in ((kinds.VALIDATING, validating), (kinds.MUTATING, mutating)):
        found = await client.find(kind, manifest["metadata"]["name"])
        if found is not None:
            await _let_go(client, kind, found, manifest)
        await client.apply(kind, manifest, manager=names.FIELD_MANAGER)


async def segment_at(client: Client, url: str) -> str:
    """Return the segment that webhooks at an address are called with at present; empty where there is none.

    It isn't ours to write: who registers the webhooks again keeps it.
    """
    from certs import path_secret

    here = urlsplit(url).netloc
    for kind in (kinds.VALIDATING, kinds.MUTATING):
        found = await client.find(kind, NAME)
        entries = path_secret.of_configuration(kind, found).entries if found is not None else ()
        for each in entries:
            if each.segment not in {None, names.NO_SEGMENT} and urlsplit(each.url).netloc == here:
                return each.segment or ""
    return ""


async def _let_go(
    client: Client, kind: Kind[WebhookConfiguration], found: WebhookConfiguration, manifest: dict[str, Any]
) -> None:
    """Have who writes the bundles and paths give up webhooks that this version doesn't have any more."""
    from certs import path_secret, targets

    holder = targets.of_configuration(kind, found)
    gone = frozenset(each.name for each in holder.entries) - {each["name"] for each in manifest["webhooks"]}
    if gone:
        applied = await client.apply(kind, targets.without(holder, gone), manager=targets.MANAGER)
        kept = path_secret.of_configuration(kind, applied).without(gone)
        await client.apply(kind, kept, manager=path_secret.MANAGER)


async def remove(client: Client, url: str = "") -> None:
    """Delete the webhook configurations; fine where there are none. With ``url`` only where they call that address."""
    for kind in (kinds.MUTATING, kinds.VALIDATING):
        if url and not _calls(await client.find(kind, NAME), url):
            continue
        try:
            await client.delete(kind, NAME)
        except errors.NotFoundError:
            continue


def _calls(found: WebhookConfiguration | None, url: str) -> bool:
    entries = (found.webhooks or ()) if found is not None else ()
    return any(urlsplit(each["clientConfig"].get("url") or "").netloc == urlsplit(url).netloc for each in entries)
