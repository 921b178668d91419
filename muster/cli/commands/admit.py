"""``muster admit``: would these files be admitted, and when would they start?"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import click
import msgspec

from muster.cli import manifests, starts, visible
from muster.cli.connect import connected, explaining
from muster.cli.options import examples
from muster.cli.output import document
from muster.cli.questions import Objects, Question, Ready, done, question_options, reading
from muster.kube import errors
from muster.kube.client import Client
from muster.kube.garbage import uncollected
from muster.kube.transport import Request
from muster.model import kinds
from muster.model.workloads import OPERATORS

if TYPE_CHECKING:
    from muster.model.manifests import Manifest

CANT_TELL: Final = 2


@click.command(
    epilog=examples("muster admit -f train.yaml", "muster admit -f queue.yaml -f train.yaml --state state.yaml -o json")
)
@click.argument("more_files", metavar="[FILE]...", nargs=-1)
@click.option(
    "-f",
    "--filename",
    "files",
    multiple=True,
    metavar="FILE",
    help="File, directory or URL of objects; repeatable, - is stdin.",
)
@click.option("-R", "--recursive", is_flag=True, help="Read the directories below the directories of -f, too.")
@click.option("-k", "--kustomize", default="", metavar="DIR", help="Directory for `kubectl kustomize`, which is run.")
@starts.option
@question_options
@uncollected()
@explaining(CANT_TELL)
def admit(
    more_files: tuple[str, ...], files: tuple[str, ...], kustomize: str, *, recursive: bool, start: bool, **options: Any
) -> None:
    """Check whether the objects of files would be admitted, and when their PodGroups would start. Changes nothing.

    All objects are checked together, in the order of the files, with the rules of the webhooks and the quota ledger of
    the cluster (or of a dump). A refusal is printed in the words of kubectl.

    Files may be given without -f, as pre-commit does. Exit status: 0 all admitted, 1 something refused, 2 unknown.
    """
    files = (*files, *more_files)
    if not files and not kustomize:
        raise click.UsageError("missing files: name them with -f or -k")
    if files and kustomize:
        raise click.UsageError("-f and -k don't go together: give one of them")
    question = Question(**options)
    wanted = manifests.read_for(manifests.files_of(files, recursive=recursive), question.where(), kustomize)
    try:
        basis = question.basis("muster.whatif.admission", lambda client, ready: _existing(client, wanted, ready))
    except errors.ForbiddenError as denied:
        _print_visible(question, wanted, denied, start=start)
        return
    state = basis.state
    from muster.cli.answers.admit import data, lines
    from muster.cli.installation import crds
    from muster.sandbox import virtual_time
    from muster.whatif import admission

    definitions = crds.manifests(legacy_apis=state.legacy(each.api_version for each in wanted))
    # In virtual time, nobody waits for what has to be tried again.
    trial = admission.find_out(state, wanted, basis.objects, basis.policy, question.schedulers, definitions)
    try:
        finding = virtual_time.run(trial)
    except admission.MalformedObjectError as error:
        raise click.ClickException(str(error)) from error
    found = starts.told(finding.after or state, basis.policy, question.schedulers) if start else {}
    if question.document:
        times = {key: each.data() for key, each in found.items()}
        document(data(finding, basis.configuration, times), question.output)
    else:
        sentences = {key: each.text(state.taken) for key, each in found.items()}
        for line in lines(finding, question.width, basis.configuration, sentences):
            click.echo(line)
    done(finding.status)


def _print_visible(
    question: Question, wanted: Sequence[Manifest], denied: errors.ForbiddenError, *, start: bool
) -> None:
    """Print what the visibility API tells somebody who may not read the whole cluster."""
    spaces = {each.namespace for each in wanted}
    if len(spaces) != 1:
        raise denied
    (space,) = spaces
    told = reading(_admission(question, wanted, space, denied, start=start))
    visible.tell_partial()
    if "startUnknown" in told:
        click.echo(f"note: when it starts isn't known: {told['startUnknown']}", err=True)
    from muster.cli.answers.admit import status_of, told_lines

    if question.document:
        document(told | {"exitStatus": status_of(told)}, question.output)
    else:
        for line in told_lines(told, wanted, question.width):
            click.echo(line)
    done(status_of(told))


async def _admission(
    question: Question, wanted: Sequence[Manifest], space: str, denied: errors.ForbiddenError, *, start: bool
) -> dict[str, Any]:
    async with connected(question.kubeconfig, question.context) as client:
        existing = await _existing(client, wanted, asyncio.create_task(asyncio.sleep(0)))
    own = [each for each in existing if (each.get("metadata") or {}).get("namespace") == space]
    body = msgspec.json.encode({"spec": {"objects": [dict(each.body) for each in wanted], "existing": own}})
    request = Request("POST", visible.admission_path(space), {"start": "true"} if start else {}, body)
    found = await visible.answer(question.kubeconfig, question.context, request, denied)
    if found is None:
        raise denied
    told: dict[str, Any] = found["status"]
    return told


async def _existing(client: Client, wanted: Sequence[Manifest], ready: Ready) -> Objects:
    """Read those of the objects that exist, with all their fields; what knows where is ``ready`` first."""
    await ready
    from muster.whatif.object_paths import path_of

    paths = [path for each in wanted if each.name and (path := path_of(each))]
    # The CRDs of operators' kinds say what their objects may look like.
    asked = {(each.api_version, each.kind) for each in wanted}
    operators = [each.kind for each in OPERATORS if (each.kind.api_version, each.kind.name) in asked]
    paths += [kinds.CRDS.path(name=str(kind)) for kind in operators]
    found = await asyncio.gather(*(_object(client, path) for path in dict.fromkeys(paths)))
    return [each for each in found if each is not None]


async def _object(client: Client, path: str) -> dict[str, Any] | None:
    try:
        answer = await client.send(Request("GET", path))
    except (errors.NotFoundError, errors.ForbiddenError):
        # Who may create may not be allowed to read: then it is taken to be new.
        return None
    body: dict[str, Any] = msgspec.json.decode(answer.body)
    return body
