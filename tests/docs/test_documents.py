"""The documents: links lead somewhere, commands exist, diagrams name what there is, the reference is current."""

from __future__ import annotations

import importlib.util
import pkgutil
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from muster.cli import main
from muster.model import kinds, names
from muster.whatif import cluster_view
from scheduler.configuration import config

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    {*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *ROOT.glob("deploy/**/*.md"), *ROOT.glob("benchmarks/*.md")}
)
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\]\(([^)\s]+)\)")
# Bare names of groups, which built-in groups of Kubernetes come before; a subcommand of `kubectl muster` is none.
BARE_GROUP = re.compile(r"kubectl (?!muster\b)[^\n`|;&]*?(?<![\w./-])podgroups?(?![\w.-])")
COMMAND = re.compile(r"(?:^|[\s`$])((?:kubectl )?muster (?:[a-z][a-z-]*)(?![a-z-]*/)[^\n`|&;]*)")


def title(page: Path) -> str:
    return str(page.relative_to(ROOT))


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub and GitLab make them."""
    headings = re.findall(r"^#+ (.*)$", FENCE.sub("", page.read_text()), re.MULTILINE)
    plain = (re.sub(r"\[([^]]*)\]\([^)]*\)|[`*]", r"\1", heading).lower() for heading in headings)
    return {re.sub(r"[^\w\- ]", "", heading).strip().replace(" ", "-") for heading in plain}


def links() -> Iterator[tuple[Path, str]]:
    for page in PAGES:
        for link in LINK.findall(FENCE.sub("", page.read_text())):
            yield page, link


@pytest.mark.parametrize(("page", "link"), [pytest.param(*each, id=f"{title(each[0])}: {each[1]}") for each in links()])
def test_a_link_leads_to_a_file_and_a_heading_of_it(page: Path, link: str) -> None:
    if link.startswith(("https://", "mailto:")):
        return
    file, _, anchor = link.partition("#")
    target = (page.parent / file).resolve() if file else page
    assert target.exists(), f"{title(page)} links to {file}"
    assert target.is_relative_to(ROOT), link
    if anchor:
        assert anchor in anchors(target), f"{title(target)} has no heading {anchor}"


def test_every_page_is_two_clicks_from_the_readme_at_most() -> None:
    reached = front = {ROOT / "README.md"}
    for _ in range(2):
        front = {
            target
            for page, link in links()
            if page in front and "://" not in link
            if (target := (page.parent / link.partition("#")[0]).resolve()).suffix == ".md"
        } - reached
        reached = reached | front
    assert [title(page) for page in PAGES if page not in reached and "decisions" not in page.parts] == []


def commands() -> Iterator[tuple[str, str]]:
    for page in PAGES:
        if "decisions" in page.parts:
            continue
        for command in COMMAND.findall(page.read_text()):
            yield title(page), command.strip().removeprefix("kubectl ")


@pytest.mark.parametrize(("page", "text"), sorted(set(commands())))
def test_a_command_in_a_document_exists_with_its_options(page: str, text: str) -> None:
    try:
        words = shlex.split(text, comments=True)[1:]
    except ValueError:
        words = text.split()[1:]
    command: click.Command = main.muster
    context = click.Context(command)
    while isinstance(command, click.Group) and words and re.fullmatch(r"[a-z][a-z-]*", words[0]):
        found = command.get_command(context, words.pop(0))
        assert found is not None, f"{page}: {text}"
        command, context = found, click.Context(found, parent=context)
    known = {option for each in command.params for option in (*each.opts, *each.secondary_opts)}
    for word in words:
        option = word.partition("=")[0].rstrip(".,:)…]")
        if re.fullmatch(r"--[a-z][a-z-]*", option):
            assert option in known | {"--help"}, f"{page}: {text}"


# Each is played by a test: tests/story/test_pages.py, test_frameworks.py and test_story.py, tests/certs/test_docs.py, tests/cli/test_pages.py,
# tests/cli/test_simulate_over_time.py,
# tests/deploy/test_installation.py; the page of the commands shows their own examples.
PLAYED = {
    "README.md",
    "docs/asking.md",
    "docs/autoscaler.md",
    "docs/blocked.md",
    "docs/certificates.md",
    "docs/cli.md",
    "docs/frameworks.md",
    "docs/gitops.md",
    "docs/gpus.md",
    "docs/install.md",
    "docs/kueue.md",
    "docs/migrating.md",
    "docs/operations.md",
    "docs/python.md",
    "docs/queues.md",
    "docs/simulate.md",
    "docs/story.md",
    "docs/tenants.md",
    "docs/troubleshooting.md",
    "docs/workloads.md",
}


def test_every_page_with_commands_is_played_by_a_test() -> None:
    assert {title(page) for page in PAGES if "```console" in page.read_text()} == PLAYED


@pytest.mark.parametrize("page", [*PAGES, ROOT / "muster/cli/demo/story.py"], ids=title)
def test_a_command_names_groups_by_their_short_or_full_name(page: Path) -> None:
    assert BARE_GROUP.findall(page.read_text()) == []


@pytest.mark.parametrize(
    ("command", "bare"),
    [
        ("kubectl get podgroups -A", True),
        ("kubectl get jobs,podgroups", True),
        ("kubectl wait podgroup/g --for=delete", True),
        ("kubectl get pg -A", False),
        ("kubectl delete podgroups.scheduling.volcano.sh --all", False),
        ("kubectl muster podgroup why g", False),
    ],
)
def test_a_bare_name_of_groups_is_found(command: str, *, bare: bool) -> None:
    assert bool(BARE_GROUP.search(command)) is bare


def diagrams() -> list[tuple[str, str]]:
    return [
        (title(page), text) for page in PAGES for kind, text in FENCE.findall(page.read_text()) if kind == "mermaid"
    ]


@pytest.mark.parametrize(("page", "diagram"), diagrams())
def test_what_a_diagram_names_is_in_the_code(page: str, diagram: str) -> None:
    for name in re.findall(r"\b(?:webhooks|scheduler|muster|certs)(?:\.[a-zA-Z_]\w*)+\b(?!\.sh)", diagram):
        assert pkgutil.resolve_name(name), f"{page}: {name}"


def schema_of(kind: str) -> Any:
    for file in (ROOT / "deploy/crds").glob("*.yaml"):
        crd = yaml.safe_load(file.read_text())
        if crd["spec"]["names"]["kind"] == kind:
            return crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    raise AssertionError(f"there is no kind {kind}")


@pytest.mark.parametrize(("page", "diagram"), diagrams())
def test_fields_in_a_diagram_are_fields_of_the_kind(page: str, diagram: str) -> None:
    for kind, field in re.findall(r"(PodGroup|Queue) -->\|(spec\.[\w.]+)\|", diagram):
        schema = schema_of(kind)
        for part in field.split("."):
            assert part in schema["properties"], f"{page}: {kind} has no {field}"
            schema = schema["properties"][part]


def test_the_reference_is_made_of_the_kinds() -> None:
    spec = importlib.util.spec_from_file_location("reference", ROOT / "docs/reference.py")
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    assert (ROOT / "docs/api.md").read_text() == script.page(), "run: python docs/reference.py"


def test_every_label_and_annotation_of_ours_is_in_the_concepts() -> None:
    page = (ROOT / "docs/concepts.md").read_text()
    keys = {
        value for value in vars(names).values() if isinstance(value, str) and re.fullmatch(r"[a-z.0-9]+/[a-z-]+", value)
    }
    keys |= {key for value in vars(names).values() if isinstance(value, tuple) for key in value if "/" in key}
    internal = {names.NAMESPACE_NAME, names.MANAGED_BY, names.PART_OF}
    assert {key for key in keys - internal if f"`{key}`" not in page} == set()


def test_every_key_that_muster_sets_on_objects_of_users_is_on_the_page_of_gitops() -> None:
    page, concepts = ((ROOT / "docs" / name).read_text() for name in ("gitops.md", "concepts.md"))
    written = re.findall(r"^\| `([^`]+)` \| ([^|]+) \| set by Muster", concepts, re.MULTILINE)
    assert len(written) >= 6
    owned = {"PodGroup", "QuotaLedger"}  # of Muster's own objects, but for those that a page keeps in Git
    assert [key for key, on in written if on not in owned and f"`{key}`" not in page] == []


def test_the_role_of_who_asks_covers_what_the_questions_read() -> None:
    rules = [
        rule
        for each in yaml.safe_load_all((ROOT / "docs/examples/ask-role.yaml").read_text())
        for rule in each["rules"]
    ]
    allowed = {(group, plural) for rule in rules for group in rule["apiGroups"] for plural in rule["resources"]}
    legacy = {*kinds.LEGACY_PODGROUPS, *kinds.LEGACY_QUEUES}
    read = {(kind.group, kind.plural) for kind in cluster_view.KINDS if kind not in legacy}
    assert allowed == read


def parts_of_configurations() -> list[tuple[str, Any]]:
    found = [(title(page), text) for page in PAGES for _, text in FENCE.findall(page.read_text())]
    return [(page, yaml.safe_load(text)) for page, text in found if text.startswith("# part of scheduler.yaml\n")]


def test_a_part_of_a_schedulers_configuration_is_read() -> None:
    parts = parts_of_configurations()
    assert {page for page, _ in parts} == {"docs/autoscaler.md", "docs/gpus.md", "docs/topology.md"}
    for _, part in parts:
        whole = part if isinstance(part, dict) else {"tiers": [{"plugins": part}]}
        config.parse(yaml.safe_dump({"actions": "enqueue, allocate", **whole}))
