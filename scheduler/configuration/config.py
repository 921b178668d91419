"""The scheduler's configuration: the YAML its users have, checked, as a `Policy`.

    actions: "enqueue, allocate, backfill"
    tiers:
    - plugins:
      - name: gang
        enablePreemptable: false
      - name: overcommit
        arguments: {overcommit-factor: 1.0}
    configurations:
    - name: enqueue
      arguments: {}

A plugin has all its extension points unless flags say otherwise: ``false`` turns one off; a plugin that lists a point as
``true`` has only those that it lists (docs/decisions/0061).
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from scheduler.configuration import arguments_schema, entry_points
from scheduler.configuration.builtin import ACTIONS, PLUGINS, policy
from scheduler.engine.action import Action
from scheduler.engine.arguments import BuiltinArguments
from scheduler.engine.plugin import FLAGS, POINTS
from scheduler.engine.plugin_arguments import Arguments, ArgumentsType
from scheduler.engine.policy import Enabled, Policy

DEFAULT: Final = """\
actions: "enqueue, allocate, backfill"
tiers:
- plugins:
  - name: priority
  - name: gang
  - name: conformance
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
_ELSEWHERE: Final = frozenset(
    {
        *("cdp", "deviceshare", "extender", "network-topology-aware", "nodegroup", "numaaware", "rescheduling"),
        *("resource-strategy-fit", "task-topology", "tdm", "usage"),
    }
)
"""Plugins that other schedulers of this family have: no misspelling of ours."""
HIERARCHY: Final = frozenset({"enableHierarchy", "enabledHierarchy"})
"""Spellings of a feature, which is on in any case: no extension point."""
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
    tiers: tuple[_Tier, ...] = ()
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
        tiers = tuple(
            tuple(
                enabled
                for index, option in enumerate(tier.plugins)
                if (enabled := self._plugin(option, ("tiers", number, "plugins", index))) is not None
            )
            for number, tier in enumerate(whole.tiers)
        )
        arguments = self._action_arguments(whole.configurations)
        if self._mistakes:
            raise self._error()
        return Policy(actions, tiers, {each.name: arguments.get(each.name, each.arguments_type()) for each in actions})

    def _actions(self, text: str) -> Iterable[Action]:
        names = [name.strip() for name in text.split(",") if name.strip()]
        if not names:
            self._wrong(("actions",), 'no action is named; write for example actions: "enqueue, allocate"')
        for name in names:
            if name in ACTIONS:
                yield ACTIONS[name]
            else:
                self._wrong(("actions",), _unknown("action", name, ACTIONS))

    def _plugin(self, option: _PluginOption, place: Place) -> Enabled | None:
        try:
            plugin = PLUGINS.get(option.name) or entry_points.load(option.name)
        except entry_points.ExtensionError as error:
            self._wrong((*place, "name"), str(error))
            return None
        if plugin is None:
            self._wrong((*place, "name"), _unknown_plugin(option.name))
            return None
        flags = self._flags(option.model_extra or {}, place)
        arguments = self._arguments(plugin.arguments_type, option.arguments, (*place, "arguments"))
        isolated = option.name not in PLUGINS
        return Enabled(plugin, arguments, _points(flags), isolated=isolated) if arguments is not None else None

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

    def _action_arguments(self, given: tuple[_Configuration, ...]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for index, each in enumerate(given):
            place: Place = ("configurations", index)
            if each.name not in ACTIONS:
                self._wrong((*place, "name"), _unknown("action", each.name, ACTIONS))
                continue
            arguments = self._arguments(ACTIONS[each.name].arguments_type, each.arguments, (*place, "arguments"))
            if arguments is not None:
                found[each.name] = arguments
        return found

    def _arguments(
        self, type_: ArgumentsType, given: dict[str, Any], place: Place
    ) -> BuiltinArguments | Arguments | None:
        try:
            return arguments_schema.checked(type_, given)
        except ValidationError as error:
            self._wrong_all(error, place, arguments_schema.names(type_))
            return None

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
        while place not in self._lines and place:
            place = place[:-1]
        self._mistakes.append((self._lines.get(place, 1), what))

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
    listed = {flag for flag, on in flags.items() if on and flag not in HIERARCHY}
    if listed:
        return frozenset(point for point in POINTS if point not in FLAGS or FLAGS[point] in listed)
    return frozenset(point for point in POINTS if flags.get(FLAGS.get(point, ""), True))


def _unknown_plugin(name: str) -> str:
    if name in _ELSEWHERE:
        return f"plugin {name!r} is none of Muster's, nor of an installed package; take it off the list"
    return _unknown("plugin", name, {*PLUGINS, *entry_points.names()})


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
