"""HyperNodes: what describes the network between nodes, as a tree of domains."""

from __future__ import annotations

from msgspec import field

from muster.model.objects.metadata import ApiStruct, LabelSelector, Object


class ExactMatch(ApiStruct, frozen=True, kw_only=True):
    """One member by its name."""

    name: str = ""


class RegexMatch(ApiStruct, frozen=True, kw_only=True):
    """All members whose names match a regular expression somewhere."""

    pattern: str = ""


class MemberSelector(ApiStruct, frozen=True, kw_only=True):
    """One of three ways to name members; ``label_match`` is for nodes only."""

    exact_match: ExactMatch | None = None
    regex_match: RegexMatch | None = None
    label_match: LabelSelector | None = None


class HyperNodeMember(ApiStruct, frozen=True, kw_only=True):
    """Some members: ``type`` is ``Node`` or ``HyperNode``."""

    type: str = ""
    selector: MemberSelector = field(default_factory=MemberSelector)


class HyperNodeSpec(ApiStruct, frozen=True, kw_only=True):
    """A domain: its tier (1 is the closest), what people call that tier, and what is in it."""

    tier: int = 0
    tier_name: str = ""
    members: tuple[HyperNodeMember, ...] | None = None


class HyperNode(Object, frozen=True, kw_only=True):
    """topology.volcano.sh/v1alpha1 HyperNode."""

    spec: HyperNodeSpec = field(default_factory=HyperNodeSpec)
