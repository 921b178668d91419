"""docs/scheduling.md names what the configuration understands, and nothing else."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

from scheduler.configuration import arguments_schema, config
from scheduler.engine.plugin import FLAGS

PAGE = (Path(__file__).parents[2] / "docs" / "scheduling.md").read_text()
WORDS = set(re.findall(r"`([^`]+)`", re.sub(r"```.*?```", "", PAGE, flags=re.DOTALL)))


def arguments(kinds):
    return {name for kind in kinds for name in arguments_schema.names(kind.arguments_type)}


def test_every_action_and_plugin_is_on_the_page():
    assert {*config.ACTIONS, *config.PLUGINS} - WORDS == set()


@pytest.mark.parametrize("kinds", [config.ACTIONS.values(), config.PLUGINS.values()], ids=["actions", "plugins"])
def test_every_argument_is_on_the_page(kinds):
    assert {name for name in arguments(kinds) if f"`{name}" not in PAGE} == set()


def test_every_switch_and_weight_on_the_page_is_understood():
    named = {word.split(":")[0] for word in WORDS if word.startswith("predicate.") or word.endswith(".weight")}
    assert named - arguments(config.PLUGINS.values()) == set()


def test_every_flag_is_on_the_page_and_no_other():
    flags = {*FLAGS.values(), *config.OTHER_FLAGS, *config.HIERARCHY}
    assert {word.split(":")[0] for word in WORDS if word.startswith("enable") and "Topology" not in word} == flags


def test_defaults_on_the_page_are_those_of_the_configuration():
    fields = msgspec.structs.fields(config.PLUGINS["nodeorder"].arguments_type)
    assert {f"`{field.encode_name}` ({field.default})" for field in fields} - set(
        re.findall(r"`\S+` \(\d+\)", PAGE)
    ) == set()


def test_the_example_is_understood():
    example = PAGE.partition("```yaml\n")[2].partition("```")[0]
    assert config.parse(example).enqueues
