"""Gangs that the network between nodes can never hold: a tier that doesn't exist, or more than any domain of it has.

The scheduler writes on the status of queue ``default`` which tiers there are, and how large they are. Until it has, nothing is judged; nor
are sizes where an autoscaler makes nodes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from msgspec import Struct

from muster.ledger.reservations import held
from muster.model import grouping, kinds, labels, names
from muster.model.amounts import Resources
from muster.model.objects import Meta, NetworkTier, NetworkTopology, PodGroupSpec
from muster.model.text import listed
from webhooks.policies import common
from webhooks.verdict import ObjectRef, Problem
from webhooks.view import AdmissionView

_NETWORK: Final = ObjectRef(kinds.QUEUES, names.DEFAULT_QUEUE)
_SPEC: Final = "spec.networkTopology"


class NetworkRequest(Struct, frozen=True):
    """Pods that have to be in one domain, and what says so: ``where`` as a whole, ``tier_field`` up to which tier."""

    topology: NetworkTopology
    where: str
    tier_field: str

    @property
    def required(self) -> bool:
        """Whether they wait until they can be."""
        return self.topology.mode != "soft"

    def allowed(self, tiers: Sequence[NetworkTier]) -> list[NetworkTier]:
        """Return the tiers whose domains will do."""
        number, name = self.topology.highest_tier_allowed, self.topology.highest_tier_name
        if name:
            number = max((each.tier for each in tiers if labels.means_tier(name, each.name, each.key)), default=-1)
        return [each for each in tiers if number is None or each.tier <= number]

    def exists(self, tiers: Sequence[NetworkTier]) -> bool:
        """Whether the tier that it names is one of them."""
        number, name = self.topology.highest_tier_allowed, self.topology.highest_tier_name
        if name:
            return any(labels.means_tier(name, each.name, each.key) for each in tiers)
        return number is None or any(each.tier == number for each in tiers)


class SubGroupRequest(Struct, frozen=True):
    """Subgroups of one policy: how many start with the gang, of how many pods, and where each has to be; None for anywhere."""

    name: str
    size: int
    minimum: int
    request: NetworkRequest | None


def group_problems(view: AdmissionView, spec: PodGroupSpec, minimum: Resources) -> list[Problem]:
    """Say why a PodGroup can never start in this network."""
    tiers = _tiers(view)
    whole = _request(spec.network_topology, _SPEC)
    parts = [
        SubGroupRequest(
            each.name,
            max(each.sub_group_size or 1, 1),
            each.min_sub_groups or 0,
            _request(each.network_topology, f"spec.subGroupPolicy[{place}].networkTopology"),
        )
        for place, each in enumerate(spec.sub_group_policy or ())
    ]
    requests = [each for each in (whole, *(part.request for part in parts)) if each is not None]
    if tiers is None or not requests:
        return []
    missing = list(_missing(tiers, requests))
    if missing:
        return missing
    asked = held(minimum).maximum(Resources.parse({"pods": spec.min_member}))
    found = list(_too_large(tiers, whole, "the gang", asked)) if whole is not None else []
    for part in parts:
        if part.request is not None:
            pods = Resources.parse({"pods": part.size})
            found += _too_large(tiers, part.request, f'a subgroup "{part.name}"', pods)
    return found or list(_too_many_parts(tiers, parts, spec.min_member, asked))


def gang_problems(view: AdmissionView, metas: Iterable[Meta | None], member: int, minimum: Resources) -> list[Problem]:
    """Say why the gang of a workload can never start in this network: its annotations say where its pods have to be."""
    tiers, request = _tiers(view), gang_request(metas)
    if tiers is None or request is None:
        return []
    asked = held(minimum).maximum(Resources.parse({"pods": member}))
    return list(_missing(tiers, [request])) or list(_too_large(tiers, request, "the gang", asked))


def gang_request(metas: Iterable[Meta | None]) -> NetworkRequest | None:
    """Return where the pods of a workload have to be, by its annotations; None for anywhere."""
    written, _ = grouping.network_topology(*metas)
    if written is None or written["mode"] == "soft":
        return None
    topology = NetworkTopology(
        mode=written["mode"],
        highest_tier_allowed=written.get("highestTierAllowed"),
        highest_tier_name=written.get("highestTierName", ""),
    )
    return NetworkRequest(topology, f"annotation {names.TOPOLOGY_MODE}", f"annotation {names.TOPOLOGY_TIER}")


def _request(topology: NetworkTopology | None, path: str) -> NetworkRequest | None:
    if topology is None or topology.mode == "soft":
        return None
    tier = "highestTierName" if topology.highest_tier_name else "highestTierAllowed"
    return NetworkRequest(topology, path, f"{path}.{tier}")


def _tiers(view: AdmissionView) -> tuple[NetworkTier, ...] | None:
    queue = view.get(kinds.QUEUES, names.DEFAULT_QUEUE)
    return queue.status.network_tiers if queue is not None else None


def _missing(tiers: Sequence[NetworkTier], requests: Iterable[NetworkRequest]) -> Iterator[Problem]:
    for request in requests:
        if not tiers:
            yield _problem(
                f"the gang never starts: its pods have to be in one domain of the network ({request.where}), and nothing describes "
                "the network between nodes: ask an administrator for HyperNodes, or use mode soft"
            )
            return
        if not request.exists(tiers):
            asked = request.topology.highest_tier_name or request.topology.highest_tier_allowed
            shown = f'"{asked}"' if isinstance(asked, str) else str(asked)
            yield _problem(
                f"tier {shown} ({request.tier_field}) does not exist: the network has {_listed(tiers)}; "
                f"use {'that' if len(tiers) == 1 else 'one of them'}, or mode soft"
            )


def _too_large(tiers: Sequence[NetworkTier], request: NetworkRequest, who: str, asked: Resources) -> Iterator[Problem]:
    """Say of what pods that belong together need more than one domain has."""
    allowed = request.allowed(tiers)
    most = _largest(allowed)
    for name, amount in asked.nano.items():
        if name not in most or amount <= most[name]:
            continue
        wider = [each for each in tiers if each not in allowed and amount <= _largest([each]).get(name, amount)]
        ways = [f"allow tier {_listed(wider[:1])}"] if wider else []
        yield _problem(
            f"{who} never starts: it needs {asked.only([name])} in one {allowed[-1].word} ({request.where}), the largest has "
            f"{_written(name, most[name])}: {', '.join(['make it smaller', *ways])}, or use mode soft"
        )


def _too_many_parts(
    tiers: Sequence[NetworkTier], parts: Sequence[SubGroupRequest], member: int, asked: Resources
) -> Iterator[Problem]:
    """Say of what the subgroups of the minimum need more than as many domains as they are have."""
    due = [each for each in parts if each.minimum]
    if not due or sum(each.size * each.minimum for each in due) != member or not all(each.request for each in due):
        return
    room = [(each.minimum, _largest(each.request.allowed(tiers))) for each in due if each.request is not None]
    for name, amount in asked.nano.items():
        if not all(name in most for _, most in room):
            continue
        most = sum(count * each[name] for count, each in room)
        if amount > most:
            count = sum(each.minimum for each in due)
            yield _problem(
                f"the gang never starts: it needs {asked.only([name])} in {count} subgroups, each in one domain "
                f"(spec.subGroupPolicy), and {count} of the largest have {_written(name, most)}: make it smaller, or use mode soft"
            )


def _largest(tiers: Iterable[NetworkTier]) -> Mapping[str, int]:
    """Return the most that one domain has of each resource, in nano-units; nothing of what nobody knows."""
    found: dict[str, int] = {}
    for tier in tiers:
        if tier.largest is None:
            return {}
        amounts, _ = common.amounts(tier.largest, "status.networkTiers.largest")
        for name in tier.largest:
            found[name] = max(found.get(name, 0), amounts[name])
    return found


def _written(name: str, amount: int) -> str:
    return str(Resources({name: amount})) if amount else f"no {name}"


def _listed(tiers: Iterable[NetworkTier]) -> str:
    return listed(f"{each.tier} ({each.name})" if each.name else str(each.tier) for each in tiers)


def _problem(text: str) -> Problem:
    return Problem(text, evidence=(_NETWORK,))
