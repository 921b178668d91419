"""Names for shell completion, read from the cluster; on an error or a timeout there are none."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from muster.model.kinds import Kind

SECONDS: Final = 1.0
"""For the whole question: a shell that hangs is worse than one that knows no names."""

_METADATA: Final = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"


def queues(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the queues whose names begin so."""
    from muster.model import kinds

    return _named(ctx, kinds.QUEUES, incomplete)


def namespaces(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the namespaces whose names begin so."""
    from muster.model import kinds

    return _named(ctx, kinds.NAMESPACES, incomplete)


def podgroups(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the PodGroups of the namespace whose names begin so."""
    from muster.kube import auth, errors
    from muster.model import kinds

    try:
        namespace = ctx.params.get("namespace") or auth.namespace(
            ctx.params.get("kubeconfig"), ctx.params.get("context")
        )
    except errors.KubeError:
        return []
    return _named(ctx, kinds.PODGROUPS, incomplete, namespace)


def _named(ctx: click.Context, kind: Kind[Any], incomplete: str, namespace: str = "") -> list[CompletionItem]:
    from click.shell_completion import CompletionItem

    names = asyncio.run(_names(kind, namespace, ctx.params.get("kubeconfig"), ctx.params.get("context")))
    return [CompletionItem(name) for name in names if name.startswith(incomplete)]


async def _names(kind: Kind[Any], namespace: str, kubeconfig: str | None, context: str | None) -> list[str]:
    from muster.cli.connect import connected
    from muster.kube import decoding, errors
    from muster.kube.transport import Request
    from muster.model.kinds import Kind
    from muster.model.objects import Object

    bare: Kind[Object] = Kind(kind.group, kind.version, kind.plural, kind.name, Object, namespaced=kind.namespaced)
    try:
        async with asyncio.timeout(SECONDS), connected(kubeconfig, context) as client:
            request = Request("GET", bare.path(namespace), {"resourceVersion": "0"}, accept=_METADATA)
            answer = await client.send(request)
            return sorted(each.name for each in decoding.page(bare, answer.body).items)
    except (errors.KubeError, OSError, TimeoutError):
        # A person in the middle of a line has no use for an error.
        return []
