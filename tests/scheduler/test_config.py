"""The configuration file: what is understood, and what is said of what isn't."""

from __future__ import annotations

import contextlib
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.configuration import builtin, config
from scheduler.configuration.config import ConfigurationError
from scheduler.engine.plugin import POINTS


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


@pytest.mark.parametrize("flag", ["enableJobOrder: true", "enableJobOrder: null", "enableHierarchy: false"])
def test_an_absent_flag_is_true(flag):
    policy = config.parse(f"actions: allocate\ntiers: [{{plugins: [{{name: gang, {flag}}}]}}]")
    assert points(policy, "gang") == frozenset(POINTS)


def test_a_flag_turns_its_points_off_and_no_others():
    policy = config.parse("actions: allocate\ntiers: [{plugins: [{name: gang, enableJobReady: false}]}]")
    assert points(policy, "gang") == frozenset(POINTS) - {"ready", "missing"}


def test_a_gang_whose_order_is_asked_for_starts_whole_or_not_at_all(build, binds):
    text = "actions: allocate\ntiers: [{plugins: [{name: gang, enableJobOrder: true}, {name: predicates}]}]"
    build.node("n", "4").gang("six", 6, 6)
    assert binds(build.decide(text)) == {}
    assert len(binds(build.node("m", "2").decide(text))) == 6


def test_a_file_without_tiers_has_those_of_the_default_configuration():
    assert config.parse("actions: allocate, backfill").tiers == builtin.policy().tiers
    assert config.parse("actions: allocate\ntiers: []").tiers == ()


@pytest.mark.parametrize(
    ("text", "remark"),
    [
        (
            "actions: allocate\ntiers:\n- plugins:\n  - name: gang\n    enableNamespaceOrder: true",
            "line 5: enableNamespaceOrder changes nothing: no plugin of Muster's has that point",
        ),
        (
            "actions: allocate\ntiers:\n- plugins:\n  - name: gang\n    enableNodeOrder: false",
            "line 5: enableNodeOrder changes nothing: gang doesn't have that point",
        ),
        (
            "actions: allocate\ntiers:\n- plugins:\n  - name: drf\n    enableHierarchy: true",
            "line 5: enableHierarchy changes nothing: capacity goes by the parents of queues in any case, and no other plugin does",
        ),
        (
            "actions: allocate\ntiers:\n- plugins:\n  - name: predicates\n    arguments:\n      predicate.CacheEnable: true",
            "line 6: predicate.CacheEnable changes nothing: what depends on nodes only is always remembered",
        ),
        (
            "actions: preempt\nconfigurations:\n- name: preempt\n  arguments:\n    maxCandidateNodesAbsolute: 7",
            "line 5: maxCandidateNodesAbsolute changes nothing: all nodes are judged, with all predicates",
        ),
        (
            "actions: allocate\nconfigurations:\n- name: preempt\n  arguments: {evictWholeJobs: true}",
            "line 3: the configuration of preempt changes nothing: actions doesn't list it",
        ),
        (
            "actions: allocate\nmetrics: {type: prometheus}",
            "line 2: metrics changes nothing: no plugin goes by the load of nodes",
        ),
        (
            "actions: allocate, shuffle\nconfigurations: [{name: shuffle}]",
            "line 1: action 'shuffle' is skipped: Muster doesn't move pods that run to other nodes",
        ),
    ],
)
def test_what_changes_nothing_is_remarked_on_with_its_line(text, remark):
    assert config.parse(text, "file").remarks == (f"file, {remark}",)


def test_nothing_is_remarked_of_what_says_only_what_is_so_anyway():
    assert config.parse("actions: allocate\ntiers: [{plugins: [{name: gang, enableJobOrder: true}]}]").remarks == ()
    assert config.parse(config.DEFAULT).remarks == ()


def listing(plugin):
    return f"actions: allocate\ntiers:\n- plugins:\n  - name: gang\n  - {plugin}"


@pytest.mark.parametrize(
    "plugin",
    [
        "{name: rescheduling, arguments: {interval: 5m, strategies: [{name: lowNodeUtilization}]}}",
        "{name: task-topology}",
        "{name: nodegroup, enablePredicate: false}",
        "{name: numaaware, enablePredicate: false, arguments: {weight: 10}}",
        "{name: usage, enablePredicate: false, arguments: {usage.weight: 5}}",
        "{name: deviceshare, arguments: {deviceshare.VGPUEnable: false}}",
    ],
)
def test_a_plugin_of_another_scheduler_that_only_orders_or_rates_is_skipped_with_a_warning(plugin):
    policy = config.parse(listing(plugin), "file")
    assert [each.plugin.name for each in policy.tiers[0]] == ["gang"]
    (remark,) = policy.remarks
    assert remark.startswith("file, line 5: plugin '")
    assert "is skipped, Muster doesn't have it: " in remark


@pytest.mark.parametrize(
    "plugin",
    [
        "{name: cdp}",
        "{name: deviceshare, arguments: {deviceshare.VGPUEnable: 'true'}}",
        "{name: extender, arguments: {extender.urlPrefix: http://127.0.0.1, extender.ignorable: true}}",
        "{name: nodegroup}",
        "{name: numaaware, arguments: {weight: 10}}",
        "{name: tdm, arguments: {tdm.revocable-zone.rz1: 10:00-21:00}}",
        "{name: usage, arguments: {thresholds: {cpu: 80}}}",
    ],
)
def test_a_plugin_of_another_scheduler_that_holds_something_back_is_refused_with_its_line(plugin):
    with pytest.raises(ConfigurationError) as raised:
        config.parse(listing(plugin), "file")
    assert str(raised.value).startswith("file, line 5: plugin '")
    assert "is none of Muster's: without it " in str(raised.value)
    assert "; take it off the list" in str(raised.value)


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


@pytest.mark.processes
def test_a_scheduler_without_a_file_imports_nothing_that_reads_one():
    code = (
        "import sys, scheduler.leader.worker\n"
        "from scheduler import __main__ as program\n"
        "assert program._configured(None) is None\n"
        "program._deciding()[1]()\n"
        "print([each for each in ('pydantic', 'scheduler.configuration.config') if each in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "[]\n"
