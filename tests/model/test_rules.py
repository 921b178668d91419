"""Owner rules, as a ConfigMap states them."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.model import rules
from muster.model.grouping import DEFAULT_RULES, OwnerRule
from muster.model.objects import ConfigMap, Meta
from muster.model.rules import OwnerRules, RulesError

TEXT = """\
podgroup-level-rules:
- {apiversion: apps/v1, kind: deployment, adjust-level: 0}
- {apiversion: batch/v1, kind: job}
- apiVersion: argoproj.io/v1alpha1
  kind: Workflow
  adjust-level: -1
"""
READ = (
    OwnerRule("apps/v1", "deployment", 0),
    OwnerRule("batch/v1", "job", 0),
    OwnerRule("argoproj.io/v1alpha1", "Workflow", -1),
)


def configmap(name: str, **data: str) -> ConfigMap:
    return ConfigMap(metadata=Meta(name=name), data=data)


@pytest.mark.parametrize("key", ["podgroup-level-rules", "podgroupLevel"])
def test_both_spellings_of_the_list_are_read(key):
    assert rules.parse(TEXT.replace("podgroup-level-rules", key), "x") == READ


@pytest.mark.parametrize("level", [-12, -1, 0, 3, 10**9])
def test_a_level_is_any_whole_number(level):
    text = f"podgroup-level-rules: [{{apiversion: a/v1, kind: b, adjust-level: {level}}}]"
    assert rules.parse(text, "x") == (OwnerRule("a/v1", "b", level),)


@pytest.mark.parametrize("text", ["", "# nothing", "{}", "podgroupLevel:"])
def test_a_text_that_states_no_rules_leaves_the_default_ones(text):
    if text == "podgroupLevel:":
        with pytest.raises(RulesError, match="line 1: podgroup-level-rules is no list"):
            rules.parse(text, "x")
    else:
        assert rules.parse(text, "x") == DEFAULT_RULES


def test_an_empty_list_is_no_rule_at_all():
    assert rules.parse("podgroup-level-rules: []", "x") == ()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("podgroup-level-rules:\n- {apiversion: a/v1}\n- 5", ["line 2: kind is missing", "line 3: this is no mapping"]),
        (
            "podgroup-level-rules:\n- {apiversion: a/v1, kind: b, adjust-level: low}",
            ["line 2: adjust-level 'low' is no"],
        ),
        ("podgroup-level-rules:\n- apiversion: a/v1\n  kind: b\n  level: 1", ["line 4: unknown key 'level'"]),
        ("podgroup-levels: []", ["line 1: unknown key 'podgroup-levels'", "podgroup-level-rules"]),
        ("podgroup-level-rules: []\npodgroupLevel: []", ["line 2: podgroup-level-rules is written twice"]),
        ("a: [", ["line 1"]),
        ("- a", ["line 1: this is no mapping"]),
    ],
)
def test_each_mistake_is_named_with_its_line(text, said):
    with pytest.raises(RulesError) as failure:
        rules.parse(text, "ConfigMap x, key y")
    message = str(failure.value)
    assert message.startswith("ConfigMap x, key y, line ")
    assert "\n" not in message
    for each in said:
        assert each in message


@given(st.text())
def test_any_text_gives_rules_or_our_own_error(text):
    with contextlib.suppress(RulesError):
        assert isinstance(rules.parse(text, "x"), tuple)


def test_the_old_rules_stay_while_the_new_ones_have_a_mistake():
    book = OwnerRules()
    book.learn([configmap("muster-controller-config", **{"muster-controller.conf": TEXT})])
    assert book.rules == READ
    with pytest.raises(RulesError):
        book.learn([configmap("muster-controller-config", **{"muster-controller.conf": "podgroupLevel: 7"})])
    assert book.rules == READ
    book.learn([])
    assert book.rules == DEFAULT_RULES


def test_volcanos_configmap_is_read_where_musters_is_missing():
    theirs = configmap("volcano-controller-configmap", **{"volcano-controller.conf": TEXT})
    book = OwnerRules()
    book.learn([configmap("kube-root-ca.crt"), theirs])
    assert book.rules == READ
    book.learn([theirs, configmap("muster-controller-config", **{"muster-controller.conf": "podgroupLevel: []"})])
    assert book.rules == ()
