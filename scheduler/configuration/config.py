"""The scheduler's configuration: the YAML its users have, checked, as a `Policy`.

    actions: "enqueue, allocate, reclaim, backfill"
    tiers:
    - plugins:
      - name: gang
        enablePreemptable: false
      - name: overcommit
        arguments: {overcommit-factor: 1.0}
    configurations:
    - name: enqueue
      arguments: {}

A plugin has all its extension points; a flag that is ``false`` turns one off, and one that is absent is ``true``, as in
kube-batch and Volcano (docs/decisions/0061). A file without ``tiers`` has those of the default configuration. What a
file says and what changes nothing is remarked on (`Policy.remarks`).
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from scheduler.configuration import arguments_schema, entry_points, foreign
from scheduler.configuration.builtin import ACTIONS, PLUGINS, policy
from scheduler.engine.action import Action
from scheduler.engine.arguments import BuiltinArguments
from scheduler.engine.plugin import FLAGS, POINTS, Plugin, defines
from scheduler.engine.plugin_arguments import Arguments, ArgumentsType
from scheduler.engine.policy import ConfiguredPlugin, Policy

DEFAULT: Final = """\
actions: "enqueue, allocate, reclaim, backfill"
tiers:
- plugins:
  - name: priority
  - name: gang
  - name: conformance
  - name: pdb
- plugins:
  - name: resourcequota
  - name: overcommit
    # A group leaves Pending when what it needs is idle, not when it nearly is.
    arguments: {overcommit-factor: 1.0}
  - name: drf
  - name: predicates
  - name: proportion
  - name: nodeorder
  - name: binpack
"""
OTHER_FLAGS: Final = frozenset(
    {
        "enableBestNode",
        "enableNamespaceOrder",
        "enableTargetJob",
        "enableReservedNodes",
        "enabledVictim",
        "enabledClusterOrder",
        "enabledSubJobReady",
        "enabledSubJobPipelined",
        "enabledSubJobOrder",
        "enabledHyperNodeOrder",
        "enabledHyperNodeGradient",
    }
)
"""Points that the format knows and no plugin here has yet: turning them on or off changes nothing."""
HIERARCHY: Final = frozenset({"enableHierarchy", "enabledHierarchy"})
"""Spellings of a feature of capacity, which it has in any case: no extension point."""
_KNOWN_FLAGS: Final = frozenset(FLAGS.values()) | OTHER_FLAGS | HIERARCHY
_FLAT: Final = ConfigDict(extra="forbid", frozen=True)


class ConfigurationError(ValueError):
    """The configuration can't be used. The text has one line per mistake: where, what, and the nearest known name."""


class _PluginOption(BaseModel):
    model_config = ConfigDict(extra="allow", frozen=True)
    name: str
    arguments: dict[str, Any] = Field(default_factory=dict)


class _Tier(BaseModel):
    model_config = _FLAT
    plugins: tuple[_PluginOption, ...] = ()


class _Configuration(BaseModel):
    model_config = _FLAT
    name: str
    arguments: dict[str, Any] = Field(default_factory=dict)


class _File(BaseModel):
    model_config = _FLAT
    actions: str
    tiers: tuple[_Tier, ...] | None = None
    configurations: tuple[_Configuration, ...] = ()
    metrics: dict[str, Any] | None = None
    """Where others read the load of nodes from; no plugin here does."""


Place = tuple[str | int, ...]

_REMEDIES: Final = {
    **dict.fromkeys(("model_type", "model_attributes_type", "dict_type"), "write a mapping"),
    **dict.fromkeys(("tuple_type", "list_type"), "write a list"),
    **dict.fromkeys(("float_type", "float_parsing", "int_type", "int_parsing", "finite_number"), "write a number"),
    **dict.fromkeys(("bool_type", "bool_parsing"), "write true or false"),
    "string_type": "write text",
}
_BOUNDS: Final = {"ge": "at least", "le": "at most", "gt": "more than", "lt": "less than"}


class _ConfigReader:
    """Gathers all mistakes of one text, with their lines."""

    def __init__(self, text: str, source: str) -> None:
        self._source = source
        self._lines: dict[Place, int] = {}
        self._mistakes: list[tuple[int, str]] = []
        self._remarks: list[tuple[int, str]] = []
        self._data = self._load(text)

    def _load(self, text: str) -> Any:
        try:
            node = yaml.compose(text, Loader=yaml.SafeLoader)
            self._note(node, ())
            return yaml.safe_load(text)
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark
            line = mark.line + 1 if mark is not None else 1
            raise ConfigurationError(f"{self._source}, line {line}: {error.problem}") from error
        except (yaml.YAMLError, RecursionError) as error:
            raise ConfigurationError(f"{self._source}: not YAML: {str(error).splitlines()[0]}") from error

    def _note(self, node: yaml.Node | None, place: Place) -> None:
        if node is None:
            return
        self._lines[place] = node.start_mark.line + 1
        if isinstance(node, yaml.MappingNode):
            for key, value in node.value:
                self._note(value, (*place, str(key.value)))
                self._lines[*place, str(key.value)] = key.start_mark.line + 1
        elif isinstance(node, yaml.SequenceNode):
            for index, value in enumerate(node.value):
                self._note(value, (*place, index))

    def policy(self) -> Policy:
        """Check everything, then give the policy.

        Raises:
            ConfigurationError: with every mistake.
        """
        try:
            whole = _File.model_validate(self._data or {})
        except ValidationError as error:
            self._wrong_all(error, (), _File.model_fields)
            raise self._error() from error
        actions = tuple(self._actions(whole.actions))
        tiers = policy().tiers if whole.tiers is None else self._tiers(whole.tiers)
        arguments = self._action_arguments(whole.configurations, {each.name for each in actions})
        if whole.metrics is not None:
            self._remark(("metrics",), "metrics changes nothing: no plugin goes by the load of nodes")
        if self._mistakes:
            raise self._error()
        remarks = tuple(f"{self._source}, line {line}: {what}" for line, what in sorted(self._remarks))
        chosen = {each.name: arguments.get(each.name, each.arguments_type()) for each in actions}
        return Policy(actions, tiers, chosen, remarks)

    def _tiers(self, tiers: tuple[_Tier, ...]) -> tuple[tuple[ConfiguredPlugin, ...], ...]:
        return tuple(
            tuple(
                enabled
                for index, option in enumerate(tier.plugins)
                if (enabled := self._plugin(option, ("tiers", number, "plugins", index))) is not None
            )
            for number, tier in enumerate(tiers)
        )

    def _actions(self, text: str) -> Iterable[Action]:
        names = [name.strip() for name in text.split(",") if name.strip()]
        if not names:
            self._wrong(("actions",), 'no action is named; write for example actions: "enqueue, allocate"')
        for name in names:
            if name in ACTIONS:
                yield ACTIONS[name]
            elif name in foreign.ACTIONS:
                self._remark(("actions",), f"action {name!r} is skipped: Muster doesn't {foreign.ACTIONS[name]}")
            else:
                self._wrong(("actions",), _unknown("action", name, ACTIONS))

    def _plugin(self, option: _PluginOption, place: Place) -> ConfiguredPlugin | None:
        try:
            plugin = PLUGINS.get(option.name) or entry_points.load(option.name)
        except entry_points.ExtensionError as error:
            self._wrong((*place, "name"), str(error))
            return None
        if plugin is None:
            self._missing_plugin(option, (*place, "name"))
            return None
        flags = self._flags(option.model_extra or {}, place)
        for flag in flags:
            if (why := _flag_without_effect(plugin, flag)) is not None:
                self._remark((*place, flag), f"{flag} changes nothing: {why}")
        arguments = self._arguments(plugin.arguments_type, option.arguments, (*place, "arguments"))
        isolated = option.name not in PLUGINS
        return ConfiguredPlugin(plugin, arguments, _points(flags), isolated=isolated) if arguments is not None else None

    def _missing_plugin(self, option: _PluginOption, place: Place) -> None:
        """Skip a plugin of another scheduler that only orders and rates; refuse any other that isn't there."""
        elsewhere = foreign.PLUGINS.get(option.name)
        if elsewhere is None:
            known = {*PLUGINS, *entry_points.names()}
            self._wrong(place, _unknown("plugin", option.name, known))
        elif elsewhere.holds_back(option.model_extra or {}, option.arguments):
            words = f"plugin {option.name!r} is none of Muster's: without it {elsewhere.without}; {elsewhere.remedy}"
            self._wrong(place, words)
        else:
            words = f"plugin {option.name!r} is skipped, Muster doesn't have it: {elsewhere.skipped}"
            self._remark(place, words)

    def _flags(self, extra: Mapping[str, Any], place: Place) -> dict[str, bool]:
        flags = {}
        for key, value in extra.items():
            if key not in _KNOWN_FLAGS:
                self._wrong((*place, key), _unknown("field", key, {*_KNOWN_FLAGS, "name", "arguments"}))
            elif value is None:
                continue
            elif not isinstance(value, bool):
                self._wrong((*place, key), f"{key} is {value!r}; write true or false")
            else:
                flags[key] = value
        return flags

    def _action_arguments(self, given: tuple[_Configuration, ...], running: set[str]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for index, each in enumerate(given):
            place: Place = ("configurations", index)
            if each.name in foreign.ACTIONS:
                continue  # Remarked on where it is listed as an action.
            if each.name not in ACTIONS:
                self._wrong((*place, "name"), _unknown("action", each.name, ACTIONS))
                continue
            arguments = self._arguments(ACTIONS[each.name].arguments_type, each.arguments, (*place, "arguments"))
            if arguments is not None:
                found[each.name] = arguments
            if each.name not in running:
                words = f"the configuration of {each.name} changes nothing: actions doesn't list it"
                self._remark((*place, "name"), words)
        return found

    def _arguments(
        self, type_: ArgumentsType, given: dict[str, Any], place: Place
    ) -> BuiltinArguments | Arguments | None:
        try:
            checked = arguments_schema.checked(type_, given)
        except ValidationError as error:
            self._wrong_all(error, place, arguments_schema.names(type_))
            return None
        for name, why in arguments_schema.without_effect(type_).items():
            if name in given:
                self._remark((*place, name), f"{name} changes nothing: {why}")
        return checked

    def _wrong_all(self, error: ValidationError, place: Place, known: Iterable[str]) -> None:
        for each in error.errors():
            where = (*place, *each["loc"])
            if each["type"] == "extra_forbidden":
                self._wrong(where, _unknown("field" if not place else "argument", str(each["loc"][-1]), known))
            elif each["type"] == "missing":
                self._wrong(where[:-1], f"{each['loc'][-1]} is missing")
            else:
                path = ".".join(str(part) for part in each["loc"]) or "the file"
                self._wrong(where, f"{path} is {_shown(each['input'])}: {_remedy(each)}")

    def _wrong(self, place: Place, what: str) -> None:
        self._mistakes.append((self._line(place), what))

    def _remark(self, place: Place, what: str) -> None:
        self._remarks.append((self._line(place), what))

    def _line(self, place: Place) -> int:
        while place not in self._lines and place:
            place = place[:-1]
        return self._lines.get(place, 1)

    def _error(self) -> ConfigurationError:
        lines = [f"{self._source}, line {line}: {what}" for line, what in sorted(self._mistakes)]
        return ConfigurationError("\n".join(lines))


def parse(text: str, source: str = "scheduler configuration") -> Policy:
    """Read a configuration.

    Raises:
        ConfigurationError: all that is wrong with it, a line each.
    """
    return _ConfigReader(text, source).policy()


def read(file: Path | None) -> Policy:
    """Read a configuration's file; without one, give the default.

    Raises:
        ConfigurationError: all that is wrong with it, a line each, or why it can't be read.
    """
    if file is None:
        return policy()
    try:
        return parse(file.read_text(encoding="utf-8"), str(file))
    except OSError as error:
        raise ConfigurationError(f"{file}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{file} is no UTF-8 text: {error.reason} at byte {error.start}") from error


def _points(flags: Mapping[str, bool]) -> frozenset[str]:
    return frozenset(point for point in POINTS if flags.get(FLAGS.get(point, ""), True))


def _flag_without_effect(plugin: type[Plugin], flag: str) -> str | None:
    """Say why a flag of a plugin turns nothing on or off, None where it does."""
    if flag in HIERARCHY:
        return "capacity goes by the parents of queues in any case, and no other plugin does"
    if any(defines(plugin, point) for point, its in FLAGS.items() if its == flag):
        return None
    return "no plugin of Muster's has that point" if flag in OTHER_FLAGS else f"{plugin.name} doesn't have that point"


def _unknown(what: str, name: str, known: Iterable[str]) -> str:
    nearest = difflib.get_close_matches(name, sorted(known), n=1)
    choice = f"did you mean {nearest[0]}?" if nearest else f"known: {', '.join(sorted(known)) or 'none'}"
    return f"unknown {what} {_shown(name)}; {choice}"


def _remedy(error: Mapping[str, Any]) -> str:
    """Say what to write, in our words where pydantic's are about its own classes."""
    kind, context = error["type"], error.get("ctx", {})
    if kind in _REMEDIES:
        return _REMEDIES[kind]
    for bound in ("ge", "le", "gt", "lt"):
        if bound in context:
            return f"write {_BOUNDS[bound]} {context[bound]:g}"
    return str(error["msg"]).removeprefix("Value error, ")


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 64 else text[:61] + "..."
