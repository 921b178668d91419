"""``muster podgroup why``: where a PodGroup stands, what limits it, and what would let it start."""

from __future__ import annotations

import difflib
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

import click

from muster.cli import completion, starts, visible
from muster.cli.connect import explaining
from muster.cli.options import examples
from muster.cli.output import document
from muster.cli.questions import AnswerBasis, Question, done, question_options, reading
from muster.kube import errors
from muster.kube.garbage import uncollected
from muster.kube.transport import Request
from muster.model import grouping, kinds
from muster.model.objects import Meta
from muster.whatif.cluster_view import PODGROUPS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from muster.model.kinds import Kind
    from muster.whatif.cluster_view import ClusterObjects
    from muster.whatif.start_forecast import StartForecast
    from muster.whatif.targets import Subject
    from muster.whatif.why import Explanation

_SHOWN: Final = 5
"""Names of PodGroups where one isn't found."""


@click.command(epilog=examples("muster why job/train -n team-a", "muster podgroup why train --state state.yaml"))
@click.argument("name", shell_complete=completion.podgroups)
@starts.option
@question_options
@uncollected()
@explaining(1)
def why(name: str, *, start: bool, **options: Any) -> None:
    """Explain why a PodGroup, a workload or a pod waits, and what would let it start.

    NAME is a PodGroup, or KIND/NAME: podgroup, job, cronjob, deployment, statefulset, pod, or any workload that Muster created a
    PodGroup for, or that owns Jobs or pods. The command prints the stage, the limit and how much is short, the PodGroups ahead, the request and the
    closest nodes; of a PodGroup that runs, why its other pods wait. Each suggestion was tried: with that change alone,
    the scheduler started the PodGroup.
    """
    question = Question(**options)
    where = question.where()
    try:
        basis = question.basis("muster.whatif.why")
    except errors.ForbiddenError as denied:
        _print_visible(question, where, name, denied, start=start)
        return
    state = basis.state
    from muster.whatif import targets, why
    from muster.whatif.cluster import WhatIfCluster

    target = targets.find(state, where, name, question.schedulers)
    if target is None:
        raise click.ClickException(_unknown(state, where, name))
    answer = (
        None if target.key is None else why.ask(WhatIfCluster(state, basis.policy, question.schedulers), target.key)
    )
    found = starts.told(state, basis.policy, question.schedulers) if start and target.key is not None else {}
    _print(question, target, answer, basis, found.get(target.key) if target.key is not None else None)
    done()


def _print_visible(question: Question, where: str, name: str, denied: errors.ForbiddenError, *, start: bool) -> None:
    """Print what the visibility API tells somebody who may not read the whole cluster."""
    request = Request("GET", visible.why_path(where, name), {"changes": "true"})
    found = reading(visible.answer(question.kubeconfig, question.context, request, denied))
    if found is None:
        raise click.ClickException(f'nothing called "{name}" in namespace {where} has a PodGroup or pods of Muster')
    told = found["status"]
    visible.tell_partial()
    when = ""
    if start and "stage" in told:
        starts = reading(visible.starts(question.kubeconfig, question.context, where, denied))
        when = starts.text(told["podGroup"])
        told |= {"start": starts.data(told["podGroup"])} if when else {}
    if question.document:
        document(told, question.output)
        return
    for line in visible.why_lines(told, f"{where}/{name}", question.width, when):
        click.echo(line)


def _print(
    question: Question,
    target: Subject,
    answer: Explanation | None,
    basis: AnswerBasis,
    starts_at: StartForecast | None = None,
) -> None:
    from muster.cli.answers.why import lines, member, unasked

    if question.document:
        named = {"named": target.title} if target.pod is not None or answer is None else {}
        told = answer.data() if answer is not None else {"message": target.remark}
        when = {"start": starts_at.data()} if starts_at is not None else {}
        document(named | told | when | {"configuration": basis.configuration.sentence()}, question.output)
        return
    found: Iterator[str] = unasked(target, question.width)
    if answer is not None:
        found = chain(
            member(target, answer, question.width),
            lines(
                answer,
                question.width,
                basis.state.taken,
                basis.configuration.sentence(),
                starts_at.text(basis.state.taken) if starts_at is not None else "",
            ),
        )
    for line in found:
        click.echo(line)


def _unknown(state: ClusterObjects, namespace: str, name: str) -> str:
    kind, slash, called = name.rpartition("/")
    if slash:
        return _unknown_of_kind(state, namespace, kind, called)
    naming = sum(grouping.group_of(each.metadata) == name for each in state.of(kinds.PODS, namespace))
    if naming:
        waits = "1 pod names it and waits" if naming == 1 else f"{naming} pods name it and wait"
        return f'no PodGroup "{name}" in namespace {namespace}; {waits}: create it'
    known = dict(_typed(each.metadata) for kind in PODGROUPS for each in state.of(kind, namespace))
    if not known:
        elsewhere = sorted({each.namespace for kind in PODGROUPS for each in state.of(kind) if each.name == name})
        there = f": there is one in {', '.join(elsewhere)}; name it with -n" if elsewhere else ""
        return f'no PodGroup "{name}" in namespace {namespace}, which has none{there}'
    near = difflib.get_close_matches(name, known, _SHOWN) or sorted(known)[:_SHOWN]
    return f'no PodGroup "{name}" in namespace {namespace}; there is {", ".join(known[each] for each in near)}'


def _typed(group: Meta) -> tuple[str, str]:
    """Return the name that may be meant, and what is to be typed: ``job/train`` for a generated group, which nobody names."""
    kind, _, name = grouping.owner_of(group).partition(" ")
    return (name, f"{kind.lower()}/{name}") if kind else (group.name, group.name)


def _unknown_of_kind(state: ClusterObjects, namespace: str, kind: str, name: str) -> str:
    found: tuple[Kind[Any], ...] = (kinds.PODGROUPS, kinds.JOBS, kinds.DEPLOYMENTS, kinds.STATEFULSETS, kinds.PODS)
    known = [each.name for one in found if one.name.lower() == kind.lower() for each in state.of(one, namespace)]
    near = difflib.get_close_matches(name, known, _SHOWN) or sorted(known)[:_SHOWN]
    there = f"; there is {', '.join(near)}" if near else ""
    return f'no {kind} "{name}" in namespace {namespace} that has a PodGroup or pods of Muster{there}'
