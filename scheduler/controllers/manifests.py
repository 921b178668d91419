"""The PodGroup that is generated for a workload that names none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from muster.model import grouping, names, scopes
from muster.model.amounts import Resources
from muster.model.objects import Meta, OwnerReference, PodSpec
from muster.model.requests import pod_request


def podgroup(
    owner: OwnerReference, metas: Sequence[Meta], template: PodSpec, known: Sequence[PodSpec] = ()
) -> dict[str, Any]:
    """Write the PodGroup generated for ``owner``; ``metas`` are read for annotations, the nearest first.

    Where these don't say what it needs it is what the first of the ``known`` pods ask for; those that nobody has seen yet
    are taken to be like the last one, and all like the template where none is known.

    Raises:
        QuantityError: a request can't be read.
    """
    member, _ = grouping.min_member(*metas)
    stated, _ = grouping.min_resources(*metas)
    amounts = stated if stated is not None else _estimate(known or [template], member)
    return {
        "metadata": {
            "name": grouping.generated_name(owner.uid),
            "annotations": {
                # The same answers as admission's, for whom what this group holds was or wasn't reserved already.
                names.POD_TRAITS: scopes.scope_facts(template),
                names.OWNER: f"{owner.kind} {owner.name}",
                **({names.QUOTA_POLICY: names.POLICY_QUEUE} if grouping.reserves_late(*metas) else {}),
            },
            "ownerReferences": [
                {
                    "apiVersion": owner.api_version,
                    "kind": owner.kind,
                    "name": owner.name,
                    "uid": owner.uid,
                    "controller": True,
                }
            ],
        },
        "spec": {
            "minMember": member,
            "queue": grouping.queue_name(*metas),
            "minResources": amounts.quantities(),
            **({"priorityClassName": template.priority_class_name} if template.priority_class_name else {}),
        },
    }


def _estimate(known: Sequence[PodSpec], member: int) -> Resources:
    requests = [pod_request(each) for each in known[: max(member, 1)]]
    return sum(requests[:member], requests[-1] * max(member - len(requests), 0))


def warnings(metas: Sequence[Meta]) -> list[str]:
    """Say which annotations can't be meant as they are written."""
    said = (grouping.min_member(*metas)[1], grouping.min_resources(*metas)[1])
    return [warning for warning in said if warning]
