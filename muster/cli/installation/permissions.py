"""Permissions of Muster's programs: the service accounts with their roles, and the policy that keeps ledgers to them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from importlib import resources
from typing import Any, Final

import click
import yaml

from muster.kube import errors
from muster.kube.client import Client
from muster.model import kinds, names
from muster.model.kinds import Kind

Manifest = dict[str, Any]

_LEGACY: Final = "legacy.yaml"
_METRICS: Final = "metrics.yaml"
_VISIBILITY: Final = "visibility.yaml"
_WRITERS: Final = "writers"
_SCHEDULERS: Final = "schedulers"
_KINDS: Final[dict[str, Kind[Any]]] = {
    kind.name: kind
    for kind in (
        kinds.SERVICEACCOUNTS,
        kinds.CLUSTERROLES,
        kinds.CLUSTERROLEBINDINGS,
        kinds.ROLES,
        kinds.ROLEBINDINGS,
        kinds.POLICIES,
        kinds.POLICYBINDINGS,
    )
}


def roles(*, legacy_apis: bool, metrics: bool = False, visibility: bool = False) -> list[Manifest]:
    """Return the service accounts, roles and bindings.

    ``legacy_apis``: also those for kube-batch's two groups; ``metrics``: also those for reviewing the tokens of who reads metrics;
    ``visibility``: also those of the visibility API.
    """
    wanted = {_LEGACY: legacy_apis, _METRICS: metrics, _VISIBILITY: visibility}
    return _read("rbac", without=[name for name, given in wanted.items() if not given])


def for_everyone() -> Manifest:
    """Return the binding that the chart adds where every authenticated user may read queues: to be removed with the rest."""
    meta = {"name": "muster-visibility-queues"}
    role = {"apiGroup": kinds.CLUSTERROLES.group, "kind": "ClusterRole", "name": "muster-visibility-queues"}
    subject = {"apiGroup": kinds.CLUSTERROLES.group, "kind": "Group", "name": "system:authenticated"}
    api_version, kind = kinds.CLUSTERROLEBINDINGS.api_version, kinds.CLUSTERROLEBINDINGS.name
    return {"apiVersion": api_version, "kind": kind, "metadata": meta, "roleRef": role, "subjects": [subject]}


def policies(*users: str, schedulers: Sequence[str] = (names.SCHEDULER_NAME,)) -> list[Manifest]:
    """Return the policies and bindings.

    ``users`` may write ledgers as Muster's own accounts may; ``schedulers``: those whose Jobs these accounts may delete.
    """
    whole = _read("policies")
    for manifest in whole:
        for variable in manifest["spec"].get("variables", ()):
            # A list of strings in JSON is one in CEL.
            if variable["name"] == _WRITERS:
                variable["expression"] = json.dumps([*json.loads(variable["expression"]), *users])
            elif variable["name"] == _SCHEDULERS:
                variable["expression"] = json.dumps([*schedulers])
    return whole


def _read(folder: str, without: Iterable[str] = ()) -> list[Manifest]:
    found = sorted((resources.files("deploy") / folder).iterdir(), key=lambda file: file.name)
    texts = [file.read_text() for file in found if file.name.endswith(".yaml") and file.name not in without]
    return [manifest for text in texts for manifest in yaml.safe_load_all(text)]


def kind_of(manifest: Manifest) -> Kind[Any]:
    """Return the kind of a manifest of this module."""
    return _KINDS[manifest["kind"]]


async def apply(client: Client, manifests: Iterable[Manifest]) -> None:
    """Apply manifests of this module, in order.

    Raises:
        ClickException: the cluster is too old to serve one of their kinds.
    """
    for manifest in manifests:
        namespace = manifest["metadata"].get("namespace", "")
        kind = _KINDS[manifest["kind"]]
        try:
            await client.apply(kind, manifest, namespace, manager=names.FIELD_MANAGER)
        except errors.NotFoundError as error:
            if namespace:
                raise
            text = f"this cluster doesn't serve {kind.name} ({kind.api_version}): Muster needs Kubernetes 1.30 or newer"
            raise click.ClickException(text) from error


async def remove(client: Client, manifests: Iterable[Manifest], namespace: str = names.SYSTEM_NAMESPACE) -> None:
    """Take manifests of this module away, the last first, where they are in ``namespace``; fine where one isn't there.

    ClusterRoles that collect others go before these: what they collect is written by a controller, which would make one
    again that is gone when it has a change to write.
    """
    backwards = list(manifests)[::-1]
    for manifest in sorted(backwards, key=lambda each: "aggregationRule" not in each):
        meta = manifest["metadata"]
        try:
            own = meta.get("namespace", "")
            space = namespace if own == names.SYSTEM_NAMESPACE else own
            await client.delete(_KINDS[manifest["kind"]], meta["name"], space)
        except errors.NotFoundError:
            continue
