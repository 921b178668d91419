"""The floor plan, the records of decisions and the reasons for dependencies agree with the code."""

from __future__ import annotations

import ast
import importlib.util
import itertools
import re
import tomllib
from collections import defaultdict
from functools import cache
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
PRODUCT = ("muster", "webhooks", "scheduler", "certs", "deploy")
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
MODULE = re.compile(r"`((?:muster|webhooks|scheduler|certs|deploy|tests|benchmarks)(?:\.[a-z_]\w*)*)`")
IMPORT_NAMES = {"pyyaml": "yaml"}


@pytest.fixture(scope="module")
def architecture() -> ModuleType:
    spec = importlib.util.spec_from_file_location("architecture", ROOT / "docs/architecture.py")
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    return script


def test_the_floor_plan_is_made_of_the_code(architecture):
    page = (ROOT / "docs/architecture.md").read_text()
    assert page == architecture.page(), "run: python docs/architecture.py"


def test_each_arrow_of_the_two_ways_is_a_call_in_the_code(architecture):
    assert list(architecture.faults((*architecture.ADMISSION, *architecture.SCHEDULING))) == []


def test_an_arrow_that_is_not_in_the_code_is_found(architecture):
    arrows = [
        architecture.Arrow("webhooks.gone", "handle", "webhooks.admission"),
        architecture.Arrow("webhooks.server", "decide", "webhooks.admission"),
        architecture.Arrow("webhooks.admission", "render", "webhooks.view"),
    ]
    assert list(architecture.faults(arrows)) == [
        "webhooks.gone -> webhooks.admission: there is no module webhooks.gone",
        "webhooks.server -> webhooks.admission: webhooks.server doesn't use decide",
        "webhooks.admission -> webhooks.view: webhooks.view doesn't define render",
    ]


def test_each_arrow_of_the_readme_is_one_of_the_floor_plan(architecture):
    text = (ROOT / "README.md").read_text()
    arrows = {(source, target) for source, _, target in (*architecture.ADMISSION, *architecture.SCHEDULING)}
    chains = re.findall(r"^  ([a-z_.]+(?: --> [a-z_.]+)+)$", text, re.MULTILINE)
    drawn = [pair for chain in chains for pair in itertools.pairwise(chain.split(" --> "))]
    assert drawn
    assert [pair for pair in drawn if pair not in arrows] == []


def test_every_record_is_once_in_the_index_of_decisions():
    folder = ROOT / "docs/decisions"
    listed = re.findall(r"^- \[\d{4}\]\((\d{4}-[^)]+\.md)\)", (folder / "README.md").read_text(), re.MULTILINE)
    records = [path.name for path in folder.glob("[0-9]*.md")]
    assert sorted(listed) == sorted(records), "docs/decisions/README.md: one line for each record"
    numbers = [name[:4] for name in records]
    assert len(numbers) == len(set(numbers)), "two records have one number"


def dependencies() -> dict[str, str]:
    rows = re.findall(r"^\| ([a-z][^|]*?) \| (.*) \|$", (ROOT / "docs/dependencies.md").read_text(), re.MULTILINE)
    return {name.strip(): text for names, text in rows if names != "package" for name in names.split(",")}


@cache
def importers() -> dict[str, set[str]]:
    """Return the modules of the product that import each package, by their syntax."""
    found = defaultdict[str, set[str]](set)
    for path in (path for folder in PRODUCT for path in (ROOT / folder).rglob("*.py")):
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        for node in ast.walk(ast.parse(path.read_text())):
            named = [each.name for each in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.module and not node.level:
                named = [node.module]
            for each in named:
                found[each.partition(".")[0]].add(module)
    return found


def name_of(requirement: str) -> str:
    return re.match(r"[A-Za-z0-9-]+", requirement)[0]


def test_every_dependency_has_its_sentence_and_every_sentence_its_dependency():
    project = PYPROJECT["project"]
    run_time = {name_of(each) for each in project["dependencies"]}
    dev = {name_of(each) for each in PYPROJECT["dependency-groups"]["dev"]}
    assert set(dependencies()) == run_time | dev, "docs/dependencies.md: one sentence for each"


@pytest.mark.parametrize(
    "requirement", sorted(PYPROJECT["project"]["dependencies"]), ids=lambda each: f"package {name_of(each)}"
)
def test_a_sentence_names_the_modules_that_import_the_dependency(requirement):
    name = name_of(requirement)
    named = set(MODULE.findall(dependencies()[name]))
    actual = importers()[IMPORT_NAMES.get(name, name.replace("-", "_"))]

    def within(module: str, of: str) -> bool:
        return module == of or module.startswith(f"{of}.")

    assert {module for module in actual if not any(within(module, each) for each in named)} == set(), "not named"
    in_product = {each for each in named if each.partition(".")[0] in PRODUCT}
    assert {each for each in in_product if not any(within(module, each) for module in actual)} == set(), "named in vain"
