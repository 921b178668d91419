"""Asks for known vulnerabilities of the pinned packages: `make audit`.

Status 1 where there are some. Where the advisories can't be had, this is said, and the status is 0: nothing was found out.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[2]
PINS: Final = ("runtime", "image", "build", "release")
_SECONDS: Final = "15"
_PIN: Final = re.compile(r"^([a-z0-9.-]+)==([^\s;]+)", re.MULTILINE)


def verdict(said: str, error: str = "") -> tuple[int, list[str]]:
    """Return the status and its sentences, of what ``pip-audit`` printed as JSON and what it said of an error."""
    try:
        packages: list[dict[str, Any]] = json.loads(said)["dependencies"]
    except (ValueError, KeyError):
        last = (error.strip().splitlines() or ["no reason given"])[-1]
        return 0, [f"make audit: not audited, the advisories can't be had here: {last[:300]}"]
    known = [each for each in packages if "skip_reason" not in each]
    found = [
        f"{each['name']} {each['version']}: {one['id']}, fixed in {', '.join(one['fix_versions']) or 'no version yet'}"
        for each in known
        for one in each["vulns"]
    ]
    if found:
        return 1, found
    if not known:
        # An index that mirrors packages alone knows no package's advisories: that is no good news.
        return 0, [
            "make audit: not audited, the index of packages here has no advisories; ask again where PyPI answers"
        ]
    skipped = [
        f"make audit: not audited: {each['name']} ({each['skip_reason']})" for each in packages if each not in known
    ]
    return 0, [f"make audit: no known vulnerability in {len(known)} of {len(packages)} packages", *skipped]


def rounds() -> list[list[str]]:
    """Return all pins, each once; where files pin several versions of a package, each of them has a round of its own."""
    versions: dict[str, list[str]] = {}
    for each in PINS:
        for name, version in _PIN.findall((ROOT / "requirements" / f"{each}.txt").read_text()):
            known = versions.setdefault(name, [])
            known += [version] if version not in known else []
    longest = max(map(len, versions.values()))
    return [[f"{name}=={each[at]}" for name, each in versions.items() if at < len(each)] for at in range(longest)]


def main() -> int:
    """Audit, and return the status."""
    words = ["--disable-pip", "--no-deps", "--format=json", "--progress-spinner=off", f"--timeout={_SECONDS}"]
    tool = str(Path(sys.executable).with_name("pip-audit"))
    statuses = []
    for pins in rounds():
        with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
            file.write("\n".join(pins))
            file.flush()
            command = [tool, *words, f"--requirement={file.name}"]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
        status, sentences = verdict(done.stdout, done.stderr)
        statuses.append(status)
        for each in sentences:
            print(each)
    return max(statuses)


if __name__ == "__main__":
    sys.exit(main())
