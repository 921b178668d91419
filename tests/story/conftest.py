from __future__ import annotations

import itertools
import os
from collections.abc import Iterator

import pytest
from running import Up, kubectl, muster_up

_NUMBERS = itertools.count(1)


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
