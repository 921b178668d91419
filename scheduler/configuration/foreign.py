"""Actions and plugins of other schedulers of this family, which their users' files name and Muster doesn't have.

What only orders or rates can be done without, with a warning. What keeps pods from nodes, or from starting, or from being
evicted can't: whoever relies on it is told before a pod runs where it must not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from msgspec import Struct

_Given = Mapping[str, Any]
HoldsBack = Callable[[_Given, _Given], bool]
"""Whether a plugin, with its flags and arguments, keeps anything from happening."""


def _never(flags: _Given, arguments: _Given) -> bool:
    del flags, arguments
    return False


class ForeignPlugin(Struct, frozen=True):
    """A plugin that Muster doesn't have.

    Attributes:
        skipped: what doesn't happen where it is skipped.
        holds_back: when that isn't enough; by default never.
        without: what would happen without it then.
        remedy: what to do instead.
    """

    skipped: str
    holds_back: HoldsBack = _never
    without: str = ""
    remedy: str = ""


def _always(flags: _Given, arguments: _Given) -> bool:
    del flags, arguments
    return True


def _as_predicate(flags: _Given, arguments: _Given) -> bool:
    del arguments
    return flags.get("enablePredicate") is not False


def _with_a_feature(flags: _Given, arguments: _Given) -> bool:
    """Whether one of the features is on that ``deviceshare`` has switches for."""
    return _as_predicate(flags, arguments) and any(
        str(name).endswith("Enable") and str(value).lower() == "true" for name, value in arguments.items()
    )


_TAKE_OFF: Final = "take it off the list"
PLUGINS: Final[Mapping[str, ForeignPlugin]] = {
    "cdp": ForeignPlugin(
        "",
        _always,
        "pods could be evicted again shortly after they were",
        f"{_TAKE_OFF}, and label such pods volcano.sh/preemptable=false",
    ),
    "deviceshare": ForeignPlugin(
        "nothing of it is turned on",
        _with_a_feature,
        "pods would start on nodes whose devices have no share left for them",
        f"{_TAKE_OFF}, and let pods request whole devices",
    ),
    "extender": ForeignPlugin(
        "",
        _always,
        "nobody would ask the program that it calls",
        f"{_TAKE_OFF}, and write what the program decides as a plugin (docs/plugins.md)",
    ),
    "nodegroup": ForeignPlugin(
        "nodes aren't rated by their group",
        _as_predicate,
        "pods would start on nodes that their queue isn't for",
        f"{_TAKE_OFF}, and give the pods a node selector; or set enablePredicate: false, and it is skipped",
    ),
    "numaaware": ForeignPlugin(
        "nodes aren't rated by their NUMA topology",
        _as_predicate,
        "pods would start on nodes whose NUMA topology doesn't suit them",
        f"{_TAKE_OFF}; or set enablePredicate: false, and it is skipped",
    ),
    "rescheduling": ForeignPlugin("no pod that runs is moved to another node"),
    "task-topology": ForeignPlugin("the affinity of a job's tasks neither orders pods nor rates nodes"),
    "tdm": ForeignPlugin(
        "",
        _always,
        "pods would start on revocable nodes at any hour",
        f"{_TAKE_OFF}, and taint such nodes",
    ),
    "usage": ForeignPlugin(
        "nodes aren't rated by their load",
        _as_predicate,
        "pods would start on nodes whose load is beyond its threshold",
        f"{_TAKE_OFF}; or set enablePredicate: false, and it is skipped",
    ),
}
ACTIONS: Final[Mapping[str, str]] = {"shuffle": "move pods that run to other nodes"}
"""Actions, and what Muster doesn't do without them."""
