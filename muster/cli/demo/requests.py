"""The few kubectl commands of the story, for machines without kubectl: the same requests through Muster's client."""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path
from typing import Any, Final

import msgspec
import yaml

from muster.cli.demo.story import CommandResult
from muster.kube import auth, errors, wait
from muster.kube.client import Client
from muster.kube.http import HttpTransport
from muster.kube.transport import MERGE_PATCH, Request
from muster.model import kinds
from muster.model.kinds import Kind

_TABLE: Final = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
_KINDS: Final[tuple[tuple[Kind[Any], tuple[str, ...]], ...]] = (
    (kinds.QUEUES, ("queue", "queues", "q")),
    (kinds.PODGROUPS, ("podgroup", "podgroups", "pg")),
    (kinds.PODS, ("pod", "pods", "po")),
    (kinds.NODES, ("node", "nodes", "no")),
    (kinds.JOBS, ("job", "jobs")),
    (kinds.NAMESPACES, ("namespace", "ns")),
    (kinds.RESOURCEQUOTAS, ("resourcequota", "quota")),
)
_BY_ALIAS: Final = {alias: kind for kind, aliases in _KINDS for alias in aliases}
_BY_TYPE: Final = {(kind.api_version, kind.name): kind for kind, _ in _KINDS}


class ClientTerminal:
    """Runs command lines of the story without kubectl."""

    def __init__(self, kubeconfig: Path) -> None:
        self._kubeconfig = kubeconfig

    async def run(self, words: list[str], folder: Path) -> CommandResult:
        """Run ``kubectl …`` as if in ``folder``."""
        arguments = _parser().parse_args(words[1:])
        async with HttpTransport(await auth.load(str(self._kubeconfig), None)) as transport:
            try:
                return CommandResult(0, await arguments.act(Client(transport), arguments, folder))
            except errors.ApiError as error:
                return CommandResult(1, f"Error from server ({error.reason}): {error}")
            except TimeoutError:
                return CommandResult(1, "error: timed out waiting for the condition")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="kubectl", add_help=False)
    verbs = parser.add_subparsers(required=True)
    for act in (_get, _apply, _patch, _delete, _wait):
        verb = verbs.add_parser(act.__name__.strip("_"), add_help=False)
        verb.set_defaults(act=act)
        verb.add_argument("target", nargs="*")
        verb.add_argument("-n", dest="namespace", default="default")
        verb.add_argument("-o", dest="output", default="")
        verb.add_argument("-f", dest="file", default="")
        verb.add_argument("-p", dest="patch", default="")
        verb.add_argument("--type", default="merge")
        verb.add_argument("--for", dest="condition", default="")
        verb.add_argument("--timeout", default="30s")
    return parser


def _target(arguments: argparse.Namespace) -> tuple[Kind[Any], str, str]:
    """Return kind, name (may be empty) and namespace of ``kind name`` or ``kind/name``."""
    alias, _, name = "/".join(arguments.target).partition("/")
    kind = _BY_ALIAS[alias]
    return kind, name, arguments.namespace if kind.namespaced else ""


async def _get(client: Client, arguments: argparse.Namespace, _: Path) -> str:
    kind, name, namespace = _target(arguments)
    if arguments.output.startswith("jsonpath="):
        answer = await client.send(Request("GET", kind.path(namespace, name)))
        return "".join(_select(json.loads(answer.body), arguments.output.removeprefix("jsonpath=")))
    answer = await client.send(Request("GET", kind.path(namespace, name), accept=_TABLE))
    return _rendered(json.loads(answer.body), namespace)


def _rendered(table: dict[str, Any], namespace: str) -> str:
    shown = [index for index, column in enumerate(table["columnDefinitions"]) if not column.get("priority")]
    lines = [[table["columnDefinitions"][index]["name"].upper() for index in shown]]
    lines += [
        ["" if row["cells"][i] is None else str(row["cells"][i]) for i in shown] for row in table.get("rows") or ()
    ]
    if len(lines) == 1:
        return f"No resources found in {namespace} namespace." if namespace else "No resources found"
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join("   ".join(map(str.ljust, line, widths)).rstrip() for line in lines)


async def _apply(client: Client, arguments: argparse.Namespace, folder: Path) -> str:
    said = []
    for manifest in yaml.safe_load_all((folder / arguments.file).read_text()):
        kind = _BY_TYPE[manifest["apiVersion"], manifest["kind"]]
        await client.create(kind, manifest, manifest["metadata"].get("namespace", ""))
        said.append(f"{_resource(kind)}/{manifest['metadata']['name']} created")
    return "\n".join(said)


async def _patch(client: Client, arguments: argparse.Namespace, _: Path) -> str:
    kind, name, namespace = _target(arguments)
    await client.patch(kind, name, json.loads(arguments.patch), namespace, content_type=MERGE_PATCH)
    return f"{_resource(kind)}/{name} patched"


async def _delete(client: Client, arguments: argparse.Namespace, _: Path) -> str:
    kind, name, namespace = _target(arguments)
    await client.delete(kind, name, namespace)
    await wait.until(client, kind, name, namespace, holds=lambda found: found is None, within=30)
    return f'{_resource(kind)} "{name}" deleted'


async def _wait(client: Client, arguments: argparse.Namespace, _: Path) -> str:
    kind, name, namespace = _target(arguments)
    what, _, condition = arguments.condition.partition("=")
    if what == "condition":
        path, wanted = f'{{.status.conditions[?(@.type=="{condition}")].status}}', "True"
    else:
        path, _, wanted = condition.rpartition("=")
    within = float(arguments.timeout.removesuffix("s"))
    await wait.until(
        client,
        kind,
        name,
        namespace,
        holds=lambda found: wanted in _select(msgspec.to_builtins(found), path),
        within=within,
    )
    return f"{_resource(kind)}/{name} condition met"


def _select(value: Any, path: str) -> list[str]:
    """Follow a JSONPath of the story: fields, and one filter by equality."""
    found = [value]
    for field, key, wanted in re.findall(r'\.(\w+)|\[\?\(@\.(\w+)=="(\w+)"\)\]', path):
        if field:
            found = [each[field] for each in found if isinstance(each, dict) and field in each]
        else:
            found = [item for each in found for item in each if item.get(key) == wanted]
    return [str(each) for each in found]


def _resource(kind: Kind[Any]) -> str:
    return f"{kind.name.lower()}.{kind.group}" if kind.group else kind.name.lower()
