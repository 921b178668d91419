"""The parts of the Helm chart that are copies of something, made from where they are decided; and Helm itself.

Run as a program (`make manifests`) it writes them, and then the plain manifest that `helm template` makes of the chart.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Mapping
from importlib import resources
from pathlib import Path
from typing import Any

import binaries
import pytest
import yaml

from certs import apiservice
from muster.cli.installation import crds, permissions
from muster.model import names
from scheduler.configuration import config
from webhooks.registration import ServiceRef, configurations

ROOT = Path(__file__).parents[2]
CHART = ROOT / "deploy" / "helm" / "muster"
PLAIN = ROOT / "deploy" / "manifests" / "muster.yaml"
PORT = 9443

_OWN = "__OWN__"
_SCHEDULERS = "__SCHEDULERS__"
_HEADER = "{{{{- /* Made by `make manifests` from {}: don't edit. */}}}}\n"
_SPACE = "{{ .Release.Namespace }}"
_OWN_SCHEDULERS = '["muster"]'
_EXEMPT = """\
      - {{ .Release.Namespace }}
      {{- range .Values.webhook.excludedNamespaces }}
      - {{ . }}
      {{- end }}
"""
_BUNDLE = """\
    {{- with .Values.certificates.caBundle }}
    caBundle: {{ b64enc . }}
    {{- end }}
"""
_ACCOUNT = r"kind: ServiceAccount\nmetadata:\n(?:  .*\n)+"
_ANNOTATED = """\
  {{- with .Values.serviceAccountAnnotations }}
  annotations: {{- toYaml . | nindent 4 }}
  {{- end }}
"""
_MARKED = """\
  {{{{- with include "muster.webhookAnnotations" (list $ "{kind}") }}}}
  annotations: {{{{- nindent 4 (trim .) }}}}
  {{{{- end }}}}
"""
_PATH = """\
      {{{{- with include "muster.path" (list "{kind}" "{name}") }}}}
      path: {{{{ . }}}}
      {{{{- end }}}}
"""
_PLAIN = """\
# Muster without Helm: `kubectl apply --server-side -f deploy/manifests/muster.yaml`
# Made by `make manifests`: what `helm template muster deploy/helm/muster --namespace muster-system` gives, after its
# namespace. Don't edit; other values make another file in the same way.
apiVersion: v1
kind: Namespace
metadata:
  name: muster-system
  labels: {app.kubernetes.io/part-of: muster}
"""


_PAGE = """\
# The chart of Muster

Made by `make manifests` from `values.schema.json` and `values.yaml`: don't edit. How to install with it, and what to decide before, is in
[docs/install.md](../../../docs/install.md).

    helm install muster deploy/helm/muster --namespace muster-system --create-namespace
    helm test muster --namespace muster-system

`helm test` runs `muster check` in the cluster: the CRDs, the policies, the webhooks and their answers, the leader, the default queue. Nothing is changed.

| value | default | decides |
|---|---|---|
"""
_BRIEF = 60


def helm(
    *words: str, kubeconfig: Path | None = None, stdin: str = "", binary: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run helm with nothing of the user's; its two outputs apart."""
    found = binary or binaries.find("helm")
    assert found is not None, "helm is not there: run `make controlplane`"
    with tempfile.TemporaryDirectory(prefix="muster-helm-") as home:
        places = {f"HELM_{each}_HOME": home for each in ("CACHE", "CONFIG", "DATA")}
        environment = {"PATH": os.environ["PATH"], "HOME": home, "KUBECONFIG": str(kubeconfig or "/dev/null"), **places}
        return subprocess.run(
            [str(found), *words],
            env=environment,
            input=stdin,
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
            timeout=180,
        )


def needed() -> None:
    """Skip a test where Helm isn't there."""
    if binaries.find("helm") is None:
        pytest.skip("helm is missing (make controlplane)")


def template(values: Mapping[str, Any], *words: str) -> subprocess.CompletedProcess[str]:
    """Have Helm make manifests of values."""
    place = ("--namespace", names.SYSTEM_NAMESPACE)
    return helm("template", "muster", str(CHART), *place, "--values", "-", *words, stdin=json.dumps(values))


def generated() -> dict[Path, str]:
    """Return what the copies have to be, by file."""
    templates, files = CHART / "templates" / "generated", CHART / "files"
    return {
        templates / "crds.yaml": _crds(),
        templates / "rbac.yaml": _roles(),
        templates / "policies.yaml": _HEADER.format("deploy/policies/")
        + _texts("policies").replace(_OWN_SCHEDULERS, '{{ include "muster.schedulerNames" . }}'),
        templates / "webhooks.yaml": _webhooks(),
        files / "uninstall.yaml": _dumped(_uninstalling()),
        files / "plugins.json": _json(sorted(config.PLUGINS)),
        files / "kinds.json": _json(_kinds()),
        files / "webhooks.json": _json(webhook_names()),
        files / "alerts.yaml": (ROOT / "deploy" / "alerts" / "muster.yaml").read_text(),
        files / "dashboard.json": (ROOT / "deploy" / "dashboards" / "muster.json").read_text(),
        CHART / "values.schema.json": _schema(),
        CHART / "README.md": _readme(),
    }


def plain() -> str:
    """Return what the plain manifest has to be."""
    done = helm("template", "muster", str(CHART), "--namespace", names.SYSTEM_NAMESPACE, "--no-hooks")
    assert done.returncode == 0, done.stderr
    return _PLAIN + done.stdout


def webhook_names() -> list[str]:
    """Name all webhooks."""
    return [each["name"] for whole in _configurations() for each in whole["webhooks"]]


def _dumped(content: Any) -> str:
    return yaml.safe_dump(content, sort_keys=False, width=float("inf"))


def _json(content: Any) -> str:
    return json.dumps(content, indent=2) + "\n"


def _documents(manifests: Iterable[Mapping[str, Any]]) -> str:
    return "---\n".join(map(_dumped, manifests))


def _texts(folder: str, *chosen: str) -> str:
    """Return the files of a folder of deploy/ as they are, in the namespace of the release."""
    found = sorted((resources.files("deploy") / folder).iterdir(), key=lambda file: file.name)
    texts = [each.read_text() for each in found if not chosen or each.name in chosen]
    return "---\n".join(text.removeprefix("---\n") for text in texts).replace(names.SYSTEM_NAMESPACE, _SPACE)


def _roles() -> str:
    entries = sorted(each.name for each in (resources.files("deploy") / "rbac").iterdir())
    chosen = {
        "legacy.yaml": 'include "muster.legacyApis" .',
        "visibility.yaml": ".Values.visibility.enabled",
        "metrics.yaml": 'and (include "muster.metrics" .) .Values.monitoring.tokenReview',
    }
    parts = [_texts("rbac", *(each for each in entries if each not in chosen))]
    parts += [f"{{{{- if {when} }}}}\n---\n{_texts('rbac', name)}{{{{- end }}}}\n" for name, when in chosen.items()]
    text, count = re.subn(_ACCOUNT, rf"\g<0>{_ANNOTATED}", "".join(parts))
    assert count, _ACCOUNT
    return _HEADER.format("deploy/rbac/") + text


def _crds() -> str:
    usual = crds.manifests(legacy_apis=False)
    legacy = crds.manifests(legacy_apis=True)[len(usual) :]
    for crd in (*usual, *legacy):
        crd["metadata"].setdefault("annotations", {})["helm.sh/resource-policy"] = "__KEEP__"
    text = f'{{{{- if .Values.crds.install }}}}\n{_documents(usual)}{{{{- if include "muster.legacyApis" . }}}}\n---\n{_documents(legacy)}{{{{- end }}}}\n{{{{- end }}}}\n'
    return _HEADER.format("deploy/crds/") + text.replace("__KEEP__", '{{ ternary "keep" "delete" .Values.crds.keep }}')


def _configurations() -> tuple[dict[str, Any], dict[str, Any]]:
    return configurations(
        ServiceRef(_OWN, "muster-webhook", PORT),
        b"",
        scheduler_names=[_SCHEDULERS],
        legacy_apis=True,
        own_namespace=_OWN,
    )


def _webhooks() -> str:
    whole = _configurations()
    for one in whole:
        one["metadata"]["annotations"] = one["kind"]
        for each in one["webhooks"]:
            each["failurePolicy"] = f"__{each['failurePolicy']}__{each['name']}"
            each["clientConfig"]["service"]["path"] = f"__{one['kind']}__{each['name']}"
    text = _documents(whole)
    for pattern, replacement in (
        (
            r"failurePolicy: __(\w+)__(\S+)",
            r'failurePolicy: {{ get .Values.webhook.failurePolicy "\2" | default "\1" }}',
        ),
        (rf" *- {_OWN}\n", _EXEMPT),
        (r" *caBundle: ''\n", _BUNDLE),
        # `muster certs run` writes it, from the first time on.
        (r" *path: __(\w+)__(\S+)\n", lambda found: _PATH.format(kind=found[1], name=found[2])),
        (r"  annotations: (\w+)\n", lambda found: _MARKED.format(kind=found[1])),
        (rf'\["{_SCHEDULERS}"\]', '{{ include "muster.schedulerNames" . }}'),
        (_OWN, _SPACE),
        (_legacy_groups(), r'\n{{- if include "muster.legacyApis" $ }}\g<0>\n{{- end }}'),
    ):
        text, count = re.subn(pattern, replacement, text)
        assert count, pattern
    return _HEADER.format("webhooks/registration.py") + text


def _legacy_groups() -> str:
    return "".join(rf"\n *- {re.escape(group)}" for group in names.LEGACY_GROUPS)


def _uninstalling() -> list[dict[str, Any]]:
    """Return what `muster uninstall` needs a right to: to end its leaders, to delete what is Muster's, by name, and to let go of the rest."""
    owned: dict[tuple[str, str], set[str]] = defaultdict(set)
    for each in (
        *_configurations(),
        *permissions.roles(legacy_apis=True, metrics=True, visibility=True),
        permissions.for_everyone(),
        *permissions.policies(),
    ):
        group = each["apiVersion"].rpartition("/")[0]
        owned[group, f"{each['kind'].lower()}s".replace("policys", "policies")].add(each["metadata"]["name"])
    rules = [
        {"apiGroups": [group], "resources": [resource], "resourceNames": sorted(found), "verbs": ["delete"]}
        for (group, resource), found in sorted(owned.items())
    ]
    rules.append(
        {
            "apiGroups": ["apiregistration.k8s.io"],
            "resources": ["apiservices"],
            "resourceNames": [apiservice.NAME],
            "verbs": ["delete"],
        }
    )
    leaders = ["muster-certs", "muster-scheduler"]
    rules += [
        {"apiGroups": [group], "resources": [resource], "resourceNames": leaders, "verbs": verbs}
        for group, resource, verbs in (
            ("apps", "deployments/scale", ["patch"]),
            ("coordination.k8s.io", "leases", ["delete", "get"]),
        )
    ]
    held = [("batch", "jobs"), *((group, "queues") for group in names.PODGROUP_GROUPS)]
    return rules + [
        {"apiGroups": [group], "resources": [resource], "verbs": ["list", "patch"]} for group, resource in held
    ]


def _kinds() -> dict[str, Any]:
    """Return what a CRD that is there already has to have."""
    usual = {each["metadata"]["name"] for each in crds.manifests(legacy_apis=False)}
    found = {}
    for each in crds.manifests(legacy_apis=True):
        (version,) = each["spec"]["versions"]
        parts = version["schema"]["openAPIV3Schema"]["properties"]
        fields = [f"{part}.{field}" for part, schema in parts.items() for field in schema.get("properties", ())]
        name = each["metadata"]["name"]
        found[name] = {"version": version["name"], "legacy": name not in usual, "fields": sorted(fields)}
    return found


def _schema() -> str:
    """Return the schema of the values with the names that are decided elsewhere; each has its definition on a line."""
    text = (CHART / "values.schema.json").read_text()
    policies = {name: {"enum": ["Fail", "Ignore"]} for name in webhook_names()}
    definitions = {
        "action": {"enum": list(config.ACTIONS)},
        "failurePolicies": {"type": "object", "additionalProperties": False, "properties": policies},
    }
    for name, definition in definitions.items():
        text, count = re.subn(rf'(?m)^(    "{name}": ).*?(,?)$', rf"\1{json.dumps(definition)}\2", text)
        assert count == 1, name
    return text


def values_described() -> dict[str, str]:
    """Return what each value decides, by its path; what is described as a whole is one."""
    found: dict[str, str] = {}

    def walk(path: str, schema: Mapping[str, Any]) -> None:
        for name, inner in schema.get("properties", {}).items():
            place = f"{path}.{name}" if path else name
            if "description" in inner:
                found[place] = inner["description"]
            else:
                walk(place, inner)

    walk("", json.loads(_schema()))
    return {place: said for place, said in found.items() if place != "global"}


def _readme() -> str:
    """Return the chart's page: its values with their defaults."""
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    lines = [_PAGE]
    for place, said in values_described().items():
        default = values
        for name in place.split("."):
            default = default[name]
        shown = json.dumps(default)
        brief = shown if len(shown) <= _BRIEF else "see values.yaml"
        lines.append(f"| `{place}` | {f'`{brief}`' if brief == shown else brief} | {said} |\n")
    return "".join(lines)


def main() -> int:
    """Write all of them."""
    for file, text in generated().items():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    if binaries.find("helm") is None:
        sys.stderr.write("the plain manifest is not made: helm is not there, run `make controlplane`\n")
        return 1
    PLAIN.parent.mkdir(parents=True, exist_ok=True)
    PLAIN.write_text(plain())
    return 0


if __name__ == "__main__":
    sys.exit(main())
