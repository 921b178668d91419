"""``muster podgroup why``: where a PodGroup stands, what limits it, and what would let it start."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Any, Final

import click

from muster.cli import completion
from muster.cli.connect import explaining
from muster.cli.options import examples
from muster.cli.output import document
from muster.cli.questions import Question, done, question_options, uncollected
from muster.model import grouping, kinds
from muster.whatif.cluster_view import PODGROUPS

if TYPE_CHECKING:
    from muster.whatif.cluster_view import ClusterObjects

_SHOWN: Final = 5
"""Names of PodGroups where one isn't found."""


@click.command(epilog=examples("muster podgroup why train -n team-a", "muster podgroup why train --state state.yaml"))
@click.argument("name", shell_complete=completion.podgroups)
@question_options
@uncollected()
@explaining(1)
def why(name: str, **options: Any) -> None:
    """Explain why a PodGroup waits, and what would let it start.

    NAME is the PodGroup, or the workload that Muster created it for. The command prints the stage, the limit and how
    much is short, the PodGroups ahead, the request and the closest nodes. Each suggestion was tried: with that change
    alone, the scheduler started the PodGroup.
    """
    question = Question(**options)
    where = question.where()
    state, policy, _ = question.basis("muster.whatif.why")
    from muster.cli.answers.why import lines
    from muster.whatif import why
    from muster.whatif.cluster import WhatIfCluster

    key = why.find(state, where, name)
    if key is None:
        raise click.ClickException(_unknown(state, where, name))
    answer = why.ask(WhatIfCluster(state, policy, question.schedulers), key)
    if question.document:
        document(answer.data(), question.output)
    else:
        for line in lines(answer, question.width, state.taken):
            click.echo(line)
    done()


def _unknown(state: ClusterObjects, namespace: str, name: str) -> str:
    naming = sum(grouping.group_of(each.metadata) == name for each in state.of(kinds.PODS, namespace))
    if naming:
        waits = "1 pod names it and waits" if naming == 1 else f"{naming} pods name it and wait"
        return f'no PodGroup "{name}" in namespace {namespace}; {waits}: create it'
    known = [each.name for kind in PODGROUPS for each in state.of(kind, namespace)]
    if not known:
        elsewhere = sorted({each.namespace for kind in PODGROUPS for each in state.of(kind) if each.name == name})
        there = f": there is one in {', '.join(elsewhere)}; name it with -n" if elsewhere else ""
        return f'no PodGroup "{name}" in namespace {namespace}, which has none{there}'
    near = difflib.get_close_matches(name, known, _SHOWN) or sorted(known)[:_SHOWN]
    return f'no PodGroup "{name}" in namespace {namespace}; there is {", ".join(near)}'
