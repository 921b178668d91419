"""The configuration file: what is understood, and what is said of what isn't."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.configuration import builtin, config
from scheduler.configuration.config import ConfigurationError


def points(policy, name):
    return next(each.points for tier in policy.tiers for each in tier if each.plugin.name == name)


def test_the_file_that_users_have_is_understood():
    policy = config.parse(
        """
        actions: "enqueue, allocate, backfill"
        tiers:
        - plugins:
          - name: priority
          - name: gang
            enablePreemptable: false
          - name: conformance
        - plugins:
          - name: overcommit
          - name: drf
            enablePreemptable: false
          - name: predicates
          - name: proportion
          - name: nodeorder
            arguments: {leastrequested.weight: 2}
          - name: binpack
            arguments: {binpack.weight: 10, binpack.cpu: 5, binpack.resources: nvidia.com/gpu, binpack.resources.nvidia.com/gpu: 2}
        """
    )
    assert [action.name for action in policy.actions] == ["enqueue", "allocate", "backfill"]
    assert "ready" in points(policy, "gang")
    assert "preemptable" not in points(policy, "gang")
    assert policy.tiers[1][-1].arguments.others == {"nvidia.com/gpu": 2}


def test_who_configures_nothing_has_the_policy_that_the_default_configuration_says():
    assert builtin.policy() == config.parse(config.DEFAULT) == config.read(None)


def test_a_plugin_that_lists_a_point_as_true_has_only_what_it_lists():
    policy = config.parse("actions: allocate\ntiers: [{plugins: [{name: gang, enableJobOrder: true}]}]")
    assert points(policy, "gang") >= {"job_key", "valid"}
    assert "ready" not in points(policy, "gang")


@pytest.mark.parametrize("flag", ["enableHierarchy: true", "enabledHierarchy: true", "enableJobOrder: null"])
def test_a_flag_that_is_no_point_or_says_nothing_leaves_all_points_on(flag):
    policy = config.parse(f"actions: allocate\ntiers: [{{plugins: [{{name: drf, {flag}}}]}}]")
    assert "job_key" in points(policy, "drf")


@pytest.mark.parametrize(
    "text",
    [
        # kube-batch
        """
        actions: "reclaim, allocate, backfill, preempt"
        tiers:
        - plugins: [{name: priority}, {name: gang}]
        - plugins:
          - name: drf
          - name: predicates
            arguments: {predicate.MemoryPressureEnable: "true", predicate.GPUSharingEnable: "false"}
          - name: proportion
          - name: nodeorder
            arguments: {leastrequested.weight: "2", nodeaffinity.weight: "3", balancedresource.weight: "1"}
        """,
        # its successors
        """
        actions: "enqueue, allocate, preempt, reclaim, backfill"
        tiers:
        - plugins:
          - {name: priority, enablePreemptable: false, enableJobOrder: false}
          - {name: gang, enablePreemptable: false}
          - name: conformance
          - {name: sla, arguments: {sla-waiting-time: 1h2m3s}}
        - plugins:
          - {name: overcommit, arguments: {overcommit-factor: 1.5}}
          - {name: capacity, enabledHierarchy: true}
          - name: resourcequota
          - name: pdb
          - name: predicates
            arguments: {predicate.VolumeBindingEnable: true, predicate.CacheEnable: true}
          - name: nodeorder
            arguments: {podaffinity.weight: 2, imagelocality.weight: 1, podtopologyspread.weight: 2, selectorspread.weight: 0}
        configurations:
        - name: allocate
          arguments: {predicateErrorCacheEnable: true}
        - name: preempt
          arguments: {enableTopologyAwarePreemption: true, topologyAwarePreemptWorkerNum: 16, minCandidateNodesAbsolute: 1}
        metrics: {type: prometheus, address: "http://prometheus:9090", interval: 30s}
        """,
    ],
    ids=["kube-batch", "successors"],
)
def test_files_of_this_family_are_understood_as_they_are(text):
    assert len(config.parse(text).actions) > 3


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("actions: alocate", "file, line 1: unknown action 'alocate'; did you mean allocate?"),
        ('actions: ""', 'file, line 1: no action is named; write for example actions: "enqueue, allocate"'),
        ("tiers: []", "file, line 1: actions is missing"),
        (
            "actions: allocate\ntiers:\n- plugins:\n  - name: gnag",
            "file, line 4: unknown plugin 'gnag'; did you mean gang?",
        ),
        (
            "actions: allocate\ntiers:\n- plugins:\n  - name: gang\n    enableJobRedy: true",
            "file, line 5: unknown field 'enableJobRedy'; did you mean enableJobReady?",
        ),
        (
            "actions: allocate\ntiers:\n- plugins:\n  - name: gang\n    enableJobReady: maybe",
            "file, line 5: enableJobReady is 'maybe'; write true or false",
        ),
        (
            "actions: allocate\ntiers:\n- plugins:\n  - name: overcommit\n    arguments:\n      overcommit-facto: 2",
            "file, line 6: unknown argument 'overcommit-facto'; did you mean overcommit-factor?",
        ),
        (
            "actions: allocate\ntiers:\n- plugins:\n  - name: overcommit\n    arguments: {overcommit-factor: 0.5}",
            "file, line 5: overcommit-factor is 0.5: write at least 1",
        ),
        (
            "actions: allocate\ntiers:\n- plugins:\n  - name: sla\n    arguments: {sla-waiting-time: soon}",
            "file, line 5: sla-waiting-time is 'soon': 'soon' is not a duration; write it like 3m or 1h30m",
        ),
        (
            "actions: enqueue\nconfigurations:\n- name: enqueue\n  arguments: {inqueueTimeoutSeconds: 0}",
            "file, line 4: inqueueTimeoutSeconds is 0: write more than 0",
        ),
        (
            "actions: allocate\ntiers:\n- plugins:\n  - name: predicates\n    arguments: {predicate.GPUNumberEnable: yes}",
            "file, line 5: predicate.GPUNumberEnable is True: Muster doesn't do that; write false, or leave it out",
        ),
        ("actions: [unclosed", "file, line 1: expected ',' or ']', but got '<stream end>'"),
        ("actions: allocate\nactons: x", "file, line 2: unknown field 'actons'; did you mean actions?"),
        ("- a list", "file, line 1: the file is ['a list']: write a mapping"),
    ],
)
def test_a_mistake_is_told_with_its_line_and_the_nearest_name(text, message):
    with pytest.raises(ConfigurationError) as raised:
        config.parse(text, "file")
    assert str(raised.value) == message


def test_all_mistakes_are_told_at_once():
    with pytest.raises(ConfigurationError) as raised:
        config.parse("actions: alocate\ntiers:\n- plugins:\n  - name: gnag\n  - name: dfr", "file")
    assert [line.partition(":")[0] for line in str(raised.value).splitlines()] == [
        "file, line 1",
        "file, line 4",
        "file, line 5",
    ]


@given(st.text())
def test_no_text_breaks_the_parser(text):
    with contextlib.suppress(ConfigurationError):
        config.parse(text)
