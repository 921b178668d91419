"""What docs/install.md says of the wheel: its name, its packages and its programs."""

import importlib.util
import re
import tomllib
from pathlib import Path

import click

from muster.cli import reference
from muster.cli.main import muster

ROOT = Path(__file__).parents[2]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PAGES = [ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *(ROOT / "muster").rglob("*.py")]


def test_install_md_names_what_the_wheel_puts_into_site_packages():
    said = (ROOT / "docs/install.md").read_text().partition("## The command line")[2].partition("\n## ")[0]
    packages = PYPROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    wanted = [PYPROJECT["project"]["name"], *packages, *PYPROJECT["project"]["scripts"]]
    assert [name for name in wanted if f"`{name}`" not in said] == []


def test_no_page_and_no_message_installs_a_package_of_another_name():
    extras = "|".join(PYPROJECT["project"]["optional-dependencies"])
    told = {found for page in PAGES for found in re.findall(rf"([\w.-]+)\[(?:{extras})\]", page.read_text())}
    assert told == {".", PYPROJECT["project"]["name"]}


def test_the_manual_and_what_shells_complete_by_are_what_the_commands_say():
    spec = importlib.util.spec_from_file_location("share", ROOT / "deploy" / "release" / "share.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    # As any command of an earlier test leaves it: click keeps the option for help that the first context asked for.
    for _, command in reference.leaves(muster, ("muster",)):
        command.get_help_option(click.Context(command))
    made = {each: (module.FOLDER / each).read_text() for each in module.files()}
    assert made == module.files(), "make them anew: python deploy/release/share.py"
