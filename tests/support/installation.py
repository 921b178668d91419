"""Muster installed by Helm on a real control plane, its pods running as processes of this machine."""

from __future__ import annotations

import asyncio
import contextlib
import re
import shlex
import shutil
import subprocess
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Self

import binaries
import chart
import image as images
import rotating
import yaml
from controlplane import ControlPlane
from kubelet import Kubelet
from plane import running

from muster.kube import errors
from muster.kube.client import Client
from muster.model import kinds, webhooks

SPACE = "muster-system"
SECONDS = 180
# Fewer replicas and shorter waits: each of them is a process on this machine. An API server there reaches no Service by its
# name, so nothing is aggregated: tests/node has the visibility API as it is installed.
SMALLER = (
    "--set",
    "webhook.replicas=2,scheduler.replicas=1,webhook.preStopSeconds=2,webhook.drainSeconds=1,visibility.enabled=false",
)
_STAGES = ("installed", "repaired", "blocked", "unblocked", "upgraded", "uninstalled", "gone")
_CLIENTS = 3
_PAUSE = 0.01


_BEFORE_PATHS: tuple[tuple[str, str, Any], ...] = (
    (
        "generated/webhooks.yaml",
        r'      {{- with include "muster.path" \(list "\w+" "(\S+)"\) }}\n      path: {{ . }}\n      {{- end }}',
        lambda found: f"      path: {webhooks.PATHS[found[1]]}",
    ),
    ("_helpers.tpl", r"muster\.sh/paths: muster-certs", "former: muster"),
    ("webhook.yaml", r" +- --paths=/paths\n", ""),
    ("certificates.yaml", r'{{- \$found := lookup "v1" "Secret" \$space "muster-webhook-path".*?---\n{{- end }}\n', ""),
)
"""What version 0.1.0 lacked of this chart; without its Secret, nobody replaces paths."""

_BEFORE_CERTS: tuple[tuple[str, str, Any], ...] = (
    (
        "generated/rbac.yaml",
        r"apiVersion: v1\nkind: ServiceAccount\nmetadata:\n  name: muster-certs\n(?:.*\n)*?---\n",
        "",
    ),
    ("generated/rbac.yaml", r"^(subjects:\n- {kind: ServiceAccount, name: )muster-certs,", r"\1muster-scheduler,"),
    ("generated/policies.yaml", r"(\? \['muster.sh/secret-written'\] : \[)", r"\1'muster.sh/secret-written', "),
    ("certs.yaml", r"serviceAccountName: muster-certs", "serviceAccountName: muster-scheduler"),
)
"""Who kept the certificates before: the scheduler's account, which could read their Secrets and write the configurations."""


class Installation:
    """A release of the chart. Each step of its life is taken once, whoever needs it first."""

    def __init__(self, plane: ControlPlane, folder: Path, image: Path) -> None:
        self.plane = plane
        self.folder = folder
        self.kubelet = Kubelet(plane, SPACE, folder, images.program(image))
        self.muster = str(image / "bin" / "muster")
        self._said: dict[str, dict[str, str]] = {}

    def __enter__(self) -> Self:
        self.kubelet.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self.kubelet.__exit__()

    def run(self, line: str, *more: str) -> subprocess.CompletedProcess[str]:
        """Run a command line of the page as a reader does, in the project's folder; ``more`` goes to its end."""
        tools = self.folder / "tools"
        if not tools.exists():
            tools.mkdir()
            for name in ("helm", "kubectl"):
                found = binaries.find(name)
                assert found is not None
                (tools / name).symlink_to(found)
            (tools / "muster").symlink_to(self.muster)
        places = {f"HELM_{each}_HOME": str(self.folder / "helm") for each in ("CACHE", "CONFIG", "DATA")}
        environment = {
            "PATH": f"{tools}:/usr/bin:/bin",
            "HOME": str(self.folder),
            "KUBECONFIG": str(self.plane.kubeconfig()),
            "KUBECACHEDIR": str(self.folder / "cache"),
            **places,
        }
        return subprocess.run(
            ["bash", "-c", " ".join([line, *map(shlex.quote, more)])],
            cwd=chart.ROOT,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=SECONDS,
        )

    def done(self, line: str, *more: str) -> str:
        """Run a line that has to succeed; give what it said."""
        done = self.run(line, *more)
        assert done.returncode == 0, f"$ {line}\n{done.stdout}{done.stderr}\n{self.said()}"
        return done.stdout

    def said(self) -> str:
        """Return what the programs wrote last."""
        return self.kubelet.log.read_text()[-6000:] if self.kubelet.log.exists() else ""

    def previous(self) -> Path:
        """Return the chart as of a version before this one: paths without a segment, and certificates that the scheduler's
        account kept."""
        folder = self.folder / "previous"
        if not folder.exists():
            shutil.copytree(chart.CHART, folder)
            about = yaml.safe_load((folder / "Chart.yaml").read_text()) | {"version": "0.0.9", "appVersion": "0.0.9"}
            (folder / "Chart.yaml").write_text(yaml.safe_dump(about))
            edits = [(each, re.DOTALL) for each in _BEFORE_PATHS] + [(each, re.MULTILINE) for each in _BEFORE_CERTS]
            for (name, pattern, replacement), flags in edits:
                file = folder / "templates" / name
                text, count = re.subn(pattern, replacement, file.read_text(), flags=flags)
                assert count, pattern
                file.write_text(text)
        return folder

    # ── stages ───────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def sections(self) -> dict[str, list[str]]:
        """Return the commands of the page, by the titles of its sections."""
        return self._sections("install.md")

    def _sections(self, page: str) -> dict[str, list[str]]:
        parts = re.split(r"^## ", (chart.ROOT / "docs" / page).read_text(), flags=re.MULTILINE)[1:]
        found = {}
        for part in parts:
            blocks = re.findall(r"^```console\n(.*?)^```", part, re.MULTILINE | re.DOTALL)
            if lines := [line for block in blocks for line in block.splitlines()]:
                commands = [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
                assert page != "install.md" or len(commands) == len(lines), part
                found[part.partition("\n")[0]] = commands
        return found

    def reach(self, stage: str) -> dict[str, str]:
        """Go on to a stage of this installation's life; give what each command of that stage said."""
        for each in _STAGES:
            if each not in self._said:
                self._said[each] = getattr(self, f"_{each}")()
            if each == stage:
                break
        return self._said[stage]

    def _follow(self, title: str, folder: str = "deploy/helm/muster", *, page: str = "install.md") -> dict[str, str]:
        said = {}
        for line in self._sections(page)[title]:
            more = SMALLER if line.startswith(("helm install muster", "helm upgrade")) else ()
            try:
                done = self.run(line.replace("deploy/helm/muster", folder), *more)
            except subprocess.TimeoutExpired as error:
                raise AssertionError(f"$ {line}\n{error.stderr}\n{self.said()}\n{self.plane.said()}") from error
            assert done.returncode == 0, f"$ {line}\n{done.stdout}{done.stderr}\n{self.said()}"
            said[line] = done.stdout + done.stderr
        return said

    def _installed(self) -> dict[str, str]:
        """Install the previous version."""
        previous = str(self.previous())
        return self._follow("With Helm", previous) | self._follow("Values", previous)

    def _repaired(self) -> dict[str, str]:
        return self._follow("When everything is down", str(self.previous()))

    def _blocked(self) -> dict[str, str]:
        """Do what docs/blocked.md says against it, where not one program runs."""
        self.kubelet.power(on=False)
        self.run("kubectl create namespace team")  # whose the page speaks of; others may have made it
        return self._follow("Unblock", page="blocked.md")

    def _unblocked(self) -> dict[str, str]:
        self.kubelet.power(on=True)
        return self._follow("Back to normal", str(self.previous()), page="blocked.md")

    def _upgraded(self) -> dict[str, str]:
        return self._follow("Upgrade")

    def _uninstalled(self) -> dict[str, str]:
        first, *others = self.sections["Uninstallation"]
        return {line: self.done(line) for line in (first, others[0])}

    def _gone(self) -> dict[str, str]:
        return {line: self.done(line) for line in self.sections["Uninstallation"][2:]}


class Load(rotating.Load):
    """Clients that create PodGroups without storing them, each reviewed; what was refused, in the API server's words."""

    def __init__(self, client: Client, namespace: str) -> None:
        super().__init__(client, namespace)
        self.seconds: set[int] = set()
        """In which seconds of the monotonic clock anything was refused."""

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Create while the context is open: few clients, since the servers are processes of this machine."""
        async with running(*(self._create() for _ in range(_CLIENTS))):
            yield

    async def _create(self) -> None:
        for number in self._numbers:
            group = {"metadata": {"name": f"load-{number}"}, "spec": {"minMember": 1, "queue": "default"}}
            try:
                await self._client.create(kinds.PODGROUPS, group, self._namespace, dry_run=True)
            except errors.KubeError as error:
                self.failures.append(str(error))
                self.seconds.add(int(time.monotonic()))
            else:
                self.made += 1
            self._more.set()
            await asyncio.sleep(_PAUSE)
