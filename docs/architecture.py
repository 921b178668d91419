"""Writes docs/architecture.md: ``python docs/architecture.py``. A test compares the two."""  # noqa: INP001 - a script

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple

ROOT: Final = Path(__file__).parents[1]


class Arrow(NamedTuple):
    """A call on the way: ``source`` uses ``name``, which ``target`` defines. Both are dotted names of modules."""

    source: str
    name: str
    target: str


ADMISSION: Final = (
    Arrow("webhooks.server", "handle", "webhooks.admission"),
    Arrow("webhooks.admission", "parse", "webhooks.review"),
    Arrow("webhooks.admission", "evaluate", "webhooks.evaluation"),
    Arrow("webhooks.evaluation", "validate", "webhooks.policies.podgroups"),
    Arrow("webhooks.policies.podgroups", "queue_problems", "webhooks.policies.common"),
    Arrow("webhooks.policies.common", "find_queue", "webhooks.view"),
    Arrow("webhooks.policies.podgroups", "judge", "webhooks.verdict"),
    Arrow("webhooks.admission", "find", "muster.kube.client"),
    Arrow("webhooks.admission", "reserve", "muster.ledger.committer"),
    Arrow("muster.ledger.committer", "decide", "muster.ledger.decision"),
    Arrow("muster.ledger.decision", "reserve_summed", "muster.ledger.table"),
    Arrow("muster.ledger.committer", "write", "muster.ledger.store"),
    Arrow("muster.ledger.store", "replace", "muster.kube.client"),
    Arrow("webhooks.admission", "render", "webhooks.review"),
)
"""From an AdmissionReview to a verdict, in the order of time."""

SCHEDULING: Final = (
    Arrow("muster.kube.reflector", "put", "muster.kube.cache"),
    Arrow("scheduler.state.informers", "subscribe", "muster.kube.cache"),
    Arrow("scheduler.leader.leadership", "feed", "scheduler.state.informers"),
    Arrow("scheduler.leader.leadership", "handle", "scheduler.leader.state"),
    Arrow("scheduler.leader.state", "handlers", "scheduler.state.handlers"),
    Arrow("scheduler.state.handlers", "pod", "scheduler.state.cluster"),
    Arrow("scheduler.leader.state", "snapshot", "scheduler.state.cluster"),
    Arrow("scheduler.state.cluster", "Snapshot", "scheduler.model.snapshot"),
    Arrow("scheduler.leader.leadership", "decide", "scheduler.engine.cycle"),
    Arrow("scheduler.engine.cycle", "Session", "scheduler.engine.session"),
    Arrow("scheduler.engine.session", "Extensions", "scheduler.engine.extensions"),
    Arrow("scheduler.engine.cycle", "actions", "scheduler.engine.policy"),
    Arrow("scheduler.actions.allocate", "Action", "scheduler.engine.action"),
    Arrow("scheduler.actions.allocate", "turn", "scheduler.engine.placement"),
    Arrow("scheduler.engine.placement", "commit", "scheduler.engine.statement"),
    Arrow("scheduler.engine.statement", "apply", "scheduler.engine.allocations"),
    Arrow("scheduler.engine.cycle", "Plan", "scheduler.model.plan"),
    Arrow("scheduler.leader.state", "apply_plan", "scheduler.state.apply"),
    Arrow("scheduler.leader.leadership", "start", "scheduler.leader.binder"),
    Arrow("scheduler.leader.binder", "bind", "muster.kube.client"),
    Arrow("muster.kube.client", "request", "muster.kube.fence"),
    Arrow("muster.kube.lease", "Fence", "muster.kube.fence"),
)
"""From a watch event to a bind, in the order of time."""

_HEAD: Final = """\
# Architecture

Made by `python docs/architecture.py` from the import contracts in `pyproject.toml`, the docstrings of packages and modules, and two
lists of calls. A test fails when this page is not current, when a module or call that it names does not exist, or when a contract
is broken. [decisions/README.md](decisions/README.md) lists the reasons.

Decisions are values that pure code computes; I/O is a thin shell around them. Webhook replicas and schedulers share no memory and no
database: they share Kubernetes objects.
"""
_WAYS: Final = """\
## Two ways through

An arrow is a call: the module at its beginning uses the name on it, and the module at its end defines that name. The numbers give
the order in time.
"""
_LAYERS: Final = """\
## Layers

Highest layer first. A module imports only from the rows below its own, and never from another module of its own row. Every module
of a package is in one of its rows.
"""
_LIMITS: Final = """\
## What may not be imported

| rule | holds for | not allowed |
|---|---|---|
"""


def page() -> str:
    """Return the whole page."""
    wrong = list(faults((*ADMISSION, *SCHEDULING)))
    if wrong:
        raise SystemExit(
            "\n".join(["docs/architecture.py: an arrow isn't in the code; correct the two lists:", *wrong])
        )
    contracts = _pyproject()["tool"]["importlinter"]["contracts"]
    layered = [each for each in contracts if each["type"] == "layers"]
    limits = [each for each in contracts if each["type"] != "layers"]
    parts = [
        _HEAD,
        _WAYS,
        _way("An AdmissionReview becomes a verdict", ADMISSION),
        _way("A watch event becomes a bind", SCHEDULING),
        _LAYERS,
        *(_layers(each) for each in layered if not _drawn_above(each, layered)),
        _LIMITS + "\n".join(_limit(each) for each in limits) + "\n",
    ]
    return "\n".join(parts)


def faults(arrows: Iterable[Arrow]) -> Iterator[str]:
    """Say of each arrow that isn't in the code why it isn't."""
    for source, name, target in arrows:
        missing = [module for module in (source, target) if not path_of(module).exists()]
        if missing:
            yield f"{source} -> {target}: there is no module {missing[0]}"
        elif name not in _uses(source):
            yield f"{source} -> {target}: {source} doesn't use {name}"
        elif name not in _definitions(target):
            yield f"{source} -> {target}: {target} doesn't define {name}"


def path_of(module: str) -> Path:
    """Return the file of a module or package."""
    path = ROOT.joinpath(*module.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def summary(module: str) -> str:
    """Return the first sentence of a module's docstring, in one line."""
    text = ast.get_docstring(_tree(module)) or ""
    paragraph = " ".join(text.partition("\n\n")[0].split()).replace("``", "`")
    sentence = paragraph.partition(". ")[0].rstrip(".")
    return sentence.replace("|", "\\|")


@cache
def _pyproject() -> Mapping[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


@cache
def _tree(module: str) -> ast.Module:
    return ast.parse(path_of(module).read_text())


@cache
def _uses(module: str) -> frozenset[str]:
    """Return the names that a module calls or passes on."""
    nodes = [node for node in ast.walk(_tree(module)) if isinstance(node, ast.Name | ast.Attribute)]
    read = (node for node in nodes if isinstance(node.ctx, ast.Load))
    # ``attrgetter("pod")`` is a use, too.
    texts = (node.value for node in ast.walk(_tree(module)) if isinstance(node, ast.Constant))
    words = {text for text in texts if isinstance(text, str) and text.isidentifier()}
    return frozenset({node.id if isinstance(node, ast.Name) else node.attr for node in read} | words)


@cache
def _definitions(module: str) -> frozenset[str]:
    defined = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
    nodes = list(ast.walk(_tree(module)))
    fields = {node.target.id for node in nodes if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)}
    return frozenset({node.name for node in nodes if isinstance(node, defined)} | fields)


def _way(title: str, arrows: Sequence[Arrow]) -> str:
    modules = list(dict.fromkeys(module for arrow in arrows for module in (arrow.source, arrow.target)))
    lines = [f"### {title}", "", "```mermaid", "flowchart LR"]
    lines += [
        f"  {_node(source)} -->|{number}: {name}| {_node(target)}"
        for number, (source, name, target) in enumerate(arrows, 1)
    ]
    lines += ["```", "", "| module | what it is |", "|---|---|"]
    return "\n".join([*lines, *(f"| `{each}` | {summary(each)} |" for each in modules), ""])


def _node(module: str) -> str:
    return f"{module.replace('.', '_')}[{module}]"


def _drawn_above(contract: Mapping[str, Any], layered: Sequence[Mapping[str, Any]]) -> bool:
    """Whether an earlier contract has all modules of this one."""
    earlier = layered[: layered.index(contract)]
    seen = {module for each in earlier for row in _rows(each) for module in row}
    return {module for row in _rows(contract) for module in row} <= seen


def _rows(contract: Mapping[str, Any]) -> Iterator[list[str]]:
    container = f"{contract['containers'][0]}." if "containers" in contract else ""
    for layer in contract["layers"]:
        yield [f"{container}{each.strip(' ()')}" for each in layer.replace(":", "|").split("|")]


def _layers(contract: Mapping[str, Any]) -> str:
    """Draw a contract: packages with what they are, layers that are modules only by their names."""
    rows = list(_rows(contract))
    title = [f"### {contract['name']}", ""]
    if not any(path_of(each).name == "__init__.py" for row in rows for each in row):
        (container,) = contract["containers"]
        names = (", ".join(f"`{each.removeprefix(container)[1:]}`" for each in row) for row in rows)
        return "\n".join([*title, f"In `{container}`:", "", *(f"{at}. {row}" for at, row in enumerate(names, 1)), ""])
    lines = ["| package | what it is |", "|---|---|"]
    lines += [f"| {'<br>'.join(f'`{each}`' for each in row)} | {'<br>'.join(map(summary, row))} |" for row in rows]
    return "\n".join([*title, *lines, ""])


def _limit(contract: Mapping[str, Any]) -> str:
    modules = contract.get("source_modules") or contract["modules"]
    forbidden = contract.get("forbidden_modules")
    exceptions = [each.replace(" -> ", "` may import `") for each in contract.get("ignore_imports", ())]
    not_allowed = ", ".join(f"`{each}`" for each in forbidden) if forbidden else "each other"
    if exceptions:
        not_allowed += "; but " + ", ".join(f"`{each}`" for each in exceptions)
    return f"| {contract['name']} | {', '.join(f'`{each}`' for each in modules)} | {not_allowed} |"


if __name__ == "__main__":
    (ROOT / "docs/architecture.md").write_text(page())
