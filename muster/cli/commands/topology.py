"""``muster topology view``: the network between nodes as a tree of domains, and what is free in each."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import click
import msgspec

from muster.cli.connect import explaining
from muster.cli.flags import ClusterGroup
from muster.cli.options import examples
from muster.cli.output import Grid, document
from muster.cli.questions import Question, done, question_options
from muster.kube.garbage import uncollected
from muster.model.text import counted

if TYPE_CHECKING:
    from muster.whatif.network import DomainUse, NetworkReport

_NOTHING: Final = (
    "Nothing describes the network between the nodes: create HyperNodes, or list node labels as the argument levels of the "
    "plugin network-topology-aware."
)


@click.group(cls=ClusterGroup)
def topology() -> None:
    """Show the network between nodes, and what is free in it."""


@topology.command(epilog=examples("muster topology view", "muster topology view --state state.yaml -o json"))
@question_options
@uncollected()
@explaining(1)
def view(**options: Any) -> None:
    """Draw the tree of domains, the widest first, with the nodes in each and what of their resources is free.

    Domains come from HyperNodes where there are any, else from the node labels that the plugin network-topology-aware lists.
    """
    question = Question(**options)
    basis = question.basis("muster.whatif.network")
    from muster.whatif import network
    from muster.whatif.cluster import WhatIfCluster

    found = network.report(WhatIfCluster(basis.state, basis.policy, question.schedulers))
    if question.document:
        document(msgspec.to_builtins(found), question.output)
    else:
        _draw(found)
    done()


def _draw(found: NetworkReport) -> None:
    for fault in found.faults:
        click.echo(f"warning: {fault}", err=True)
    if not found.domains:
        click.echo(_NOTHING)
        return
    names = sorted({name for each in found.domains for name in each.allocatable}, key=_usual)
    rows = [row for each in found.domains for row in _rows(each, names, "", "")]
    Grid(["domain", "tier", "nodes", *(f"free {name}" for name in names)]).write(rows)
    if found.beside:
        click.echo(f"{counted(found.beside, 'node')} {'is' if found.beside == 1 else 'are'} in no domain.")


def _usual(name: str) -> tuple[int, str]:
    return ({"cpu": 0, "memory": 1}.get(name, 2), name)


def _rows(domain: DomainUse, names: list[str], first: str, rest: str) -> Iterator[list[object]]:
    """Write a domain and those within; ``first`` stands before its own name, ``rest`` before theirs."""
    tier = f"{domain.tier} {domain.tier_name}".strip()
    free = [f"{domain.free.get(name, '0')}/{domain.allocatable.get(name, '0')}" for name in names]
    yield [first + domain.name, tier, domain.nodes, *free]
    for place, each in enumerate(domain.domains):
        last = place == len(domain.domains) - 1
        yield from _rows(each, names, rest + ("└─ " if last else "├─ "), rest + ("   " if last else "│  "))
