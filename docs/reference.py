"""Writes docs/api.md from the CRDs: ``python docs/reference.py``. A test checks that the page is current."""  # noqa: INP001 - a script

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import yaml

_HERE: Final = Path(__file__).parent
_KINDS: Final = ("podgroups", "queues", "hypernodes", "quotaledgers")
_HEAD: Final = """\
# API reference

Made by `python docs/reference.py` from [deploy/crds](../deploy/crds); a test fails when this page is not current. What the
kinds are for: [concepts.md](concepts.md).

With `--legacy-apis` the groups `scheduling.incubator.k8s.io/v1alpha1` and `scheduling.sigs.dev/v1alpha2` have the kinds PodGroup and
Queue, too, with the same fields and without short names.
"""
_PLAIN: Final = frozenset({"apiVersion", "kind", "metadata"})


def page() -> str:
    """Write the whole page."""
    sections = (_section(yaml.safe_load((_HERE.parent / f"deploy/crds/{name}.yaml").read_text())) for name in _KINDS)
    return "\n".join([_HEAD, *sections])


def _section(crd: dict[str, Any]) -> str:
    spec = crd["spec"]
    (version,) = spec["versions"]
    names, schema = spec["names"], version["schema"]["openAPIV3Schema"]
    scope = {"Cluster": "of the whole cluster", "Namespaced": "in namespaces"}[spec["scope"]]
    short = ", ".join(f"`{each}`" for each in names["shortNames"])
    lines = [
        f"## {names['kind']}",
        "",
        schema["description"],
        "",
        f"`{spec['group']}/{version['name']}`, {scope}; for kubectl `{names['plural']}`, short {short}.",
        "",
        "| field | type | meaning |",
        "|---|---|---|",
        *(f"| `{path}` | {kind} | {meaning} |" for path, kind, meaning in _fields(schema, "")),
        "",
    ]
    if rules := list(_rules(schema)):
        lines += ["Rules across fields, which the API server itself keeps:", "", *(f"- {rule}" for rule in rules), ""]
    columns = version["additionalPrinterColumns"]
    lines += ["`kubectl get` shows, besides the name:", "", "| column | of |", "|---|---|"]
    lines += [f"| {each['name']}{_wide(each)} | `{each['jsonPath']}` |" for each in columns]
    return "\n".join([*lines, ""])


def _wide(column: dict[str, Any]) -> str:
    return " (with `-o wide`)" if column.get("priority") else ""


def _fields(schema: dict[str, Any], path: str) -> Iterator[tuple[str, str, str]]:
    for name, field in schema.get("properties", {}).items():
        if not path and name in _PLAIN:
            continue
        where = f"{path}.{name}" if path else name
        yield where, _type(field), _meaning(field)
        inner = field
        if (items := field.get("items", {})).get("properties"):
            inner, where = items, f"{where}[]"
        elif isinstance(values := field.get("additionalProperties"), dict) and values.get("properties"):
            inner, where = values, f"{where}.NAME"
        yield from _fields(inner, where)


def _type(field: dict[str, Any]) -> str:
    kind = str(field.get("type", "any"))
    if kind == "array":
        return f"list of {_type(field['items'])}s"
    values = field.get("additionalProperties")
    if isinstance(values, dict):
        inner = "quantity" if values.get("x-kubernetes-int-or-string") else _type(values)
        return f"map of name to {inner}"
    return {"date-time": "time"}.get(field.get("format", ""), kind)


def _meaning(field: dict[str, Any]) -> str:
    parts = [field["description"].replace("|", "\\|")]
    if "enum" in field:
        parts.append(f"One of {', '.join(f'`{each}`' for each in field['enum'])}.")
    if "minimum" in field or "maximum" in field:
        low, high = field.get("minimum"), field.get("maximum")
        parts.append(f"{low} to {high}." if high is not None else f"At least {low}.")
    if "maxLength" in field:
        parts.append(f"At most {field['maxLength']} characters.")
    if "maxProperties" in field:
        parts.append(f"At most {field['maxProperties']} names.")
    default = field.get("default", {})
    if not isinstance(default, dict):
        parts.append(f"Default: `{json.dumps(default).strip(chr(34))}`.")
    return " ".join(parts)


def _rules(schema: dict[str, Any]) -> Iterator[str]:
    yield from (str(rule["message"]) for rule in schema.get("x-kubernetes-validations", ()))
    for field in schema.get("properties", {}).values():
        yield from _rules(field)


if __name__ == "__main__":
    (_HERE / "api.md").write_text(page())
