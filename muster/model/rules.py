"""Owner rules from a ConfigMap: they select the owner of a pod's generated PodGroup.

    podgroup-level-rules:
    - {apiversion: apps/v1, kind: deployment, adjust-level: 0}
    - {apiversion: argoproj.io/v1alpha1, kind: workflow, adjust-level: -1}   # one level below the matched kind

Admission and the podgroup controller follow the same rules: both read them here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import yaml

from muster.model.grouping import DEFAULT_RULES, OwnerRule
from muster.model.objects import ConfigMap
from muster.model.text import shown

SOURCES: Final[Mapping[str, str]] = {
    "muster-controller-config": "muster-controller.conf",
    "volcano-controller-configmap": "volcano-controller.conf",
}
"""ConfigMaps that are read, and the key of each; the first that exists counts."""

_LISTS: Final = ("podgroup-level-rules", "podgroupLevel")
_API_VERSION: Final = ("apiversion", "apiVersion")
_KIND: Final = ("kind",)
_LEVEL: Final = ("adjust-level", "adjustLevel")
_SHOWN: Final = 40


class RulesError(ValueError):
    """The rules can't be used. The text names each mistake with its line."""


class OwnerRules:
    """The rules in force. A text with a mistake changes nothing.

    Attributes:
        rules: in order; the first that matches an owner counts.
    """

    def __init__(self) -> None:
        self.rules: tuple[OwnerRule, ...] = DEFAULT_RULES

    def learn(self, found: Iterable[ConfigMap]) -> None:
        """Take over what the ConfigMaps of Muster's namespace say; without one of ours the default rules hold.

        Raises:
            RulesError: with every mistake; the rules are as before.
        """
        by_name = {each.name: each.data or {} for each in found}
        for name, key in SOURCES.items():
            if key in by_name.get(name, {}):
                self.rules = parse(by_name[name][key], f"ConfigMap {name}, key {key}")
                return
        self.rules = DEFAULT_RULES


def parse(text: str, source: str) -> tuple[OwnerRule, ...]:
    """Read rules; a text that states none gives the default ones, an empty list none at all.

    Raises:
        RulesError: with every mistake.
    """
    try:
        whole = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark is not None else 1
        raise RulesError(f"{source}, line {line}: {error.problem}") from error
    except (yaml.YAMLError, RecursionError) as error:
        raise RulesError(f"{source}: not YAML: {str(error).splitlines()[0]}") from error
    reader = _RulesReader()
    rules = reader.rules(whole)
    if reader.mistakes:
        raise RulesError("; ".join(f"{source}, line {line}: {what}" for line, what in sorted(reader.mistakes)))
    return rules


class _RulesReader:
    """Gathers rules and mistakes; of nodes, not of values, since these have lost their lines."""

    def __init__(self) -> None:
        self.mistakes: list[tuple[int, str]] = []

    def rules(self, whole: yaml.Node | None) -> tuple[OwnerRule, ...]:
        if whole is None:
            return DEFAULT_RULES
        fields = self._fields(whole, (_LISTS,))
        listed = fields.get(_LISTS[0])
        if listed is None:
            return DEFAULT_RULES
        if not isinstance(listed, yaml.SequenceNode):
            self._wrong(listed, f"{_LISTS[0]} is no list: write each rule behind a dash")
            return ()
        return tuple(rule for node in listed.value if (rule := self._rule(node)) is not None)

    def _rule(self, node: yaml.Node) -> OwnerRule | None:
        before = len(self.mistakes)
        fields = self._fields(node, (_API_VERSION, _KIND, _LEVEL))
        if len(self.mistakes) > before:
            return None
        version, kind = (self._text(node, fields, names[0]) for names in (_API_VERSION, _KIND))
        level = self._level(fields.get(_LEVEL[0]))
        return OwnerRule(version, kind, level) if version and kind else None

    def _text(self, rule: yaml.Node, fields: Mapping[str, yaml.Node], name: str) -> str:
        node = fields.get(name)
        text = node.value.strip() if isinstance(node, yaml.ScalarNode) else ""
        if not text:
            self._wrong(node or rule, f"{name} is missing: write for example {{apiversion: batch/v1, kind: job}}")
        return text

    def _level(self, node: yaml.Node | None) -> int:
        if node is None:
            return 0
        text = node.value if isinstance(node, yaml.ScalarNode) else ""
        try:
            # Length first: int() of a megabyte of digits takes minutes.
            return int(text) if len(text) <= _SHOWN else int("")
        except ValueError:
            self._wrong(node, f"adjust-level {shown(text)} is no whole number: write for example 0 or -1")
            return 0

    def _fields(self, node: yaml.Node, known: Iterable[tuple[str, ...]]) -> dict[str, yaml.Node]:
        """Return a mapping's values by the first spelling of their key."""
        spellings = {each: names[0] for names in known for each in names}
        if not isinstance(node, yaml.MappingNode):
            self._wrong(node, f"this is no mapping: write {', '.join(dict.fromkeys(spellings.values()))}")
            return {}
        found: dict[str, yaml.Node] = {}
        for key, value in node.value:
            name = spellings.get(str(key.value))
            if name is None:
                choices = ", ".join(dict.fromkeys(spellings.values()))
                self._wrong(key, f"unknown key {shown(str(key.value))}: known here are {choices}")
            elif name in found:
                self._wrong(key, f"{name} is written twice")
            else:
                found[name] = value
        return found

    def _wrong(self, node: yaml.Node, what: str) -> None:
        self.mistakes.append((node.start_mark.line + 1, what))
