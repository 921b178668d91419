from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.processes

ROOT = Path(__file__).parents[2]
PACKAGES = ("muster", "webhooks", "scheduler", "certs", "deploy")


def lint_imports(folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(Path(sys.executable).with_name("lint-imports")), "--no-cache"],
        cwd=folder,
        # As wide as the longest name, which would be broken in two lines.
        env=os.environ | {"PYTHONPATH": str(folder), "COLUMNS": "200"},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    for package in PACKAGES:
        shutil.copytree(ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("module", "line", "contract"),
    [
        ("muster/model/amounts.py", "import muster.kube.client", "Programs import shared packages"),
        ("webhooks/policies/queues.py", "import asyncio", "Admission's decisions are pure"),
        ("muster/ledger/table.py", "import asyncio", "The ledger's decisions are pure"),
        ("scheduler/engine/cycle.py", "import time", "A cycle's decision is pure"),
        ("scheduler/leader/binder.py", "import aiohttp", "modules know aiohttp"),
    ],
)
def test_a_broken_layer_is_found(copy, module, line, contract):
    broken = copy / module
    broken.write_text(broken.read_text() + f"\n{line}\n")
    result = lint_imports(copy)
    assert result.returncode != 0
    # Long names are wrapped.
    verdicts = re.split(r"(?<=KEPT|OKEN)\s", " ".join(result.stdout.split()))
    assert any(contract in each and each.endswith("BROKEN") for each in verdicts), result.stdout


def test_a_module_without_a_place_is_found(copy):
    (copy / "muster" / "utils.py").write_text('"""A junk drawer."""\n')
    result = lint_imports(copy)
    assert result.returncode != 0
    assert "muster.utils" in result.stdout


def contracts() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"][
        "contracts"
    ]
    return found


def children(package: str) -> set[str]:
    parts = (ROOT / package.replace(".", "/")).iterdir()
    found = {part.stem for part in parts if part.suffix == ".py" or (part / "__init__.py").exists()}
    return {f"{package}.{name}" for name in found - {"__init__"}}


def test_whoever_may_not_know_aiohttp_is_named():
    (contract,) = [each for each in contracts() if each["name"].startswith("Six modules know aiohttp")]
    knowing = {"muster.kube.authproviders", "muster.sandbox.http", "webhooks.connections", "webhooks.server"}
    knowing |= {"muster.visibility.server", "muster.cli.ui.server"}
    split = {"muster.cli", "muster.cli.ui", "muster.kube", "muster.sandbox", "muster.visibility"}
    everything = {"certs", "scheduler"} | (children("muster") - split) | children("webhooks")
    everything |= set().union(*map(children, split))
    assert set(contract["source_modules"]) == everything - knowing - split
    for module in knowing:
        assert "aiohttp" in (ROOT / f"{module.replace('.', '/')}.py").read_text()


def test_no_contract_has_an_exception():
    assert [each["name"] for each in contracts() if "ignore_imports" in each] == []
    assert [each["name"] for each in contracts() if each["type"] == "layers" and not each.get("exhaustive")] == [
        "Programs import shared packages, and not each other"
    ]
