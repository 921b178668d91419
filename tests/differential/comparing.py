"""What of an answer is compared: everything but what can't be the same twice. Each rule has its reason.

=====================  ==================================================================================================
uids                   random: ``uid#1``, ``uid#2`` in the order of appearance
times                  two clocks: ``TIME``; ages in cells of tables: ``AGE``
resourceVersion        other writers share the counter: objects' are ``rv#1`` … by size, so that equal stays equal and
                       greater greater; those of lists and bookmarks only have to be there
generated names        random: the prefix and ``~1``, ``~2``
hashes of templates    the real one hashes Go's memory layout: ``HASH``
addresses              two ranges: ``ADDRESS``
continue tokens        opaque: ``TOKEN``
managedFields          kept of the managers whose requests these are, without times; the controllers of the sandbox have
                       one manager each, kube-controller-manager has one for all. Sorted: the real order is by time in seconds
the plane's own name   in URLs of webhooks
JSON in messages       its order of keys has no meaning, and what stands in it is compared as the rest
descriptions           of columns are Kubernetes' documentation, which is not copied; kubectl doesn't print them
mistyped applies       the value, behind the type that it should have, is written in Go's syntax
errors of JSON, YAML   the words after the colon are those of two parsers
answers of webhooks    that are mistyped, and patches that don't apply: the words are those of two libraries
forbidden changes      of a pod end with a diff of Go's structures
PEM                    each has its authority, or two
"""

from __future__ import annotations

import difflib
import json
import re
from typing import Any

from planes import Answer
from runner import Seen

_UID = re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b")
_TIME = re.compile(r"\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:?\d\d)?( UTC)?")
_AGE = re.compile(r"(\d+[smhd])+|<invalid>")
_ADDRESS = re.compile(r"\b(?!127\.0\.0\.1\b)(?!0\.0\.0\.0\b)\d{1,3}\.\d{1,3}\.\d{1,3}\.\d{1,3}\b")
_PEM = re.compile(r"(-----BEGIN [A-Z ]+-----.+?-----END [A-Z ]+-----\n?)+", re.DOTALL)
_GO_DIFF = re.compile(r"(pod updates may not change fields other than [^\n]*)\n.*", re.DOTALL)
_PLANE = re.compile(r"(https://127\.0\.0\.1:\d+)/(?:sandbox|kubernetes)\b")
_VERSION_IN_TEXT = re.compile(r"(resource ?[vV]ersion: |current: |in record \()\d+( \(\d+\))?")
_YAML = re.compile(
    r"(the object provided is unrecognized \(must be of type \w+\): yaml|error decoding YAML|error encoding patch): .*",
    re.DOTALL,
)
_MISTYPED = re.compile(r"(expected (?:map|list|string|numeric \(int or float\)|boolean), got )[^\n]*")
_JSON = re.compile(
    r"(undecodable patch in webhook response|(?:json parse error|error decoding patch)(?!: json: cannot)): .*"
    r"|(failed to call webhook): (?:json: cannot unmarshal|the response is mistyped).*",
    re.DOTALL,
)
_PATCH = re.compile(
    r"(^|Internal error occurred: )(the JSON patch does not apply|error in \w+ for \w+|\w+ operation does not apply"
    r"|testing value|Unexpected kind)\b.*",
    re.DOTALL,
)
_QUOTED = re.compile(r'"(?:[^"\\]|\\.)*"')
_HASHES = (
    "pod-template-hash",
    "controller-revision-hash",
    "controller.kubernetes.io/hash",
    "currentRevision",
    "updateRevision",
)
_MANAGERS = re.compile(r"(test|kubectl)")


class Normaliser:
    """Makes what one plane showed comparable with what the other did."""

    def __init__(self) -> None:
        self._uids: dict[str, str] = {}
        self._names: dict[str, str] = {}
        self._versions: dict[str, str] = {}
        self._prefixes: dict[str, int] = {}

    def normal(self, seen: list[Seen]) -> list[dict[str, Any]]:
        """Return the steps as plain JSON."""
        plain = [_plain(each) for each in seen]
        versions: set[int] = set()
        self._learn(plain, versions)
        self._versions = {str(version): f"rv#{rank}" for rank, version in enumerate(sorted(versions), 1)}
        return [self._value(each) for each in plain]

    def _learn(self, value: Any, versions: set[int]) -> None:
        if isinstance(value, list):
            for each in value:
                self._learn(each, versions)
        elif isinstance(value, dict):
            self._learn_object(value, versions)
            # A StatefulSet's revisions have its name in front.
            self._names |= {value[key].rpartition("-")[2]: "HASH" for key in _HASHES if isinstance(value.get(key), str)}
            for key in sorted(value):
                self._learn(value[key], versions)

    def _learn_object(self, value: dict[str, Any], versions: set[int]) -> None:
        metadata = value.get("metadata")
        if not isinstance(metadata, dict):
            return
        version = metadata.get("resourceVersion")
        if isinstance(version, str) and version.isdigit() and "uid" in metadata:
            versions.add(int(version))
        prefix, name = metadata.get("generateName"), metadata.get("name")
        if prefix and name and name.startswith(prefix) and name not in self._names:
            self._prefixes[prefix] = self._prefixes.get(prefix, 0) + 1
            self._names[name] = f"{prefix}~{self._prefixes[prefix]}"

    def _value(self, value: Any, key: str = "") -> Any:
        if isinstance(value, dict):
            return self._mapping(value)
        if isinstance(value, list):
            if key.endswith("managedFields"):
                value = sorted(filter(_ours, value), key=_manager)
            return [self._value(each, "cell" if key.endswith("cells") else "") for each in value]
        return self._text(value, key) if isinstance(value, str) else value

    def _mapping(self, value: dict[str, Any]) -> dict[str, Any]:
        if "columnDefinitions" in value:
            columns = [{**each, "description": ""} for each in value["columnDefinitions"]]
            value = {**value, "columnDefinitions": columns}
        if "resourceVersion" in value and "uid" not in value:
            value = {**value, "resourceVersion": "RV"}
        result = {self._text(each, ""): self._value(value[each], each) for each in sorted(value)}
        if "managedFields" in result and not result["managedFields"]:
            del result["managedFields"]
        return result

    def _text(self, text: str, key: str) -> str:
        if key == "resourceVersion" and text.isdigit():
            return self._versions.get(text, "RV")
        if key == "continue" and text:
            return "TOKEN"
        if key == "cell" and _AGE.fullmatch(text):
            return "AGE"
        text = _GO_DIFF.sub(r"\1", text)
        text = _QUOTED.sub(
            self._embedded,
            _PATCH.sub(r"\1PATCH", _JSON.sub(r"\1\2: …", _MISTYPED.sub(r"\1…", _YAML.sub(r"\1: …", text)))),
        )
        text = _UID.sub(lambda match: self._uids.setdefault(match[0], f"uid#{len(self._uids) + 1}"), text)
        text = _PEM.sub("PEM", _PLANE.sub(r"\1/PLANE", _TIME.sub("TIME", text)))
        text = _VERSION_IN_TEXT.sub(r"\1RV", _ADDRESS.sub("ADDRESS", text))
        for name, label in self._names.items():
            text = text.replace(name, label)
        return text

    def _embedded(self, quoted: re.Match[str]) -> str:
        """Return a quoted JSON object in its normal form, and anything else as it is."""
        try:
            value = json.loads(json.loads(quoted[0]))
        except ValueError:
            return quoted[0]
        return json.dumps(self._value(value), sort_keys=True) if isinstance(value, dict) else quoted[0]


def _plain(seen: Seen) -> dict[str, Any]:
    if isinstance(seen.answer, Answer):
        answer = seen.answer
        return {"step": seen.step, "status": answer.status, "headers": answer.headers, "body": answer.body}
    return {"step": seen.step, "value": seen.value}


def _ours(entry: dict[str, Any]) -> bool:
    return bool(_MANAGERS.match(entry.get("manager", "")))


def _manager(entry: dict[str, Any]) -> tuple[str, ...]:
    return tuple(str(entry.get(key, "")) for key in ("manager", "operation", "apiVersion", "subresource"))


def differences(sandbox: list[Seen], real: list[Seen]) -> str:
    """Return a diff from the real control plane to the sandbox, step by step; empty where they agree."""
    texts: list[str] = []
    for expected, actual in zip(Normaliser().normal(real), Normaliser().normal(sandbox), strict=True):
        if expected != actual:
            before, after = (json.dumps(each, indent=1, sort_keys=True).splitlines() for each in (expected, actual))
            texts += [
                f"── {expected['step']}",
                *difflib.unified_diff(before, after, "kubernetes", "sandbox", "", "", 2, ""),
            ]
    return "\n".join(texts)
