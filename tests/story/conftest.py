from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from running import Up, kubectl, muster_up

from muster.model import kinds

_NUMBERS = itertools.count(1)
NODE = """
apiVersion: v1
kind: Node
metadata: {{name: page-{number}, annotations: {{kwok.x-k8s.io/node: fake}}}}
status: {{capacity: {amounts}, allocatable: {amounts}}}
"""
AMOUNTS = '{cpu: "4", memory: 16Gi, pods: "110"}'


@pytest.fixture(scope="module", params=["sandbox", "kubernetes"])
def up(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """`muster up` on each control plane, without nodes."""
    if request.param == "kubernetes":
        config = request.getfixturevalue("real_control_plane").kubeconfig()
        options = ["--kubeconfig", str(config)]
    else:
        config = tmp_path_factory.mktemp("up") / "kubeconfig"
        options = ["--nodes", "0", "--kubeconfig-out", str(config)]
    with muster_up(*options, kubeconfig=config) as running:
        yield running


@pytest.fixture
def namespace(up: Up) -> Iterator[str]:
    """A namespace of the test's own."""
    name = f"story-{os.getpid()}-{next(_NUMBERS)}"
    assert kubectl(up.kubeconfig, "create", "namespace", name).returncode == 0
    yield name
    kubectl(up.kubeconfig, "delete", "namespace", name, "--wait=false")


@pytest.fixture(scope="module")
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """`muster up` with options, over four nodes with 4 cpu each; one at a time, since one of several would lead."""
    # A page's name gives that page a cluster of its own.
    plane, *options = (each for each in request.param if not each.endswith(".md"))
    if plane == "sandbox":
        config = tmp_path_factory.mktemp("pages") / "kubeconfig"
        with muster_up(*options, "--kubeconfig-out", str(config), kubeconfig=config):
            yield plane, config
        return
    config = request.getfixturevalue("real_control_plane").kubeconfig()
    with muster_up(*options, "--kubeconfig", str(config), kubeconfig=config):
        nodes = "---".join(NODE.format(number=number, amounts=AMOUNTS) for number in range(4))
        kubectl(config, "apply", "-f", "-", stdin=nodes)
        kubectl(config, "wait", "node", "--all", "--for=condition=Ready", "--timeout=100s")
        yield plane, config
        kubectl(config, "delete", "nodes", "--all")
        # Beside them, bare names would mean kube-batch's kinds to other tests.
        legacy = [f"{kind.plural}.{kind.group}" for kind in (*kinds.LEGACY_PODGROUPS, *kinds.LEGACY_QUEUES)]
        kubectl(config, "delete", "crd", "--ignore-not-found", *legacy)
