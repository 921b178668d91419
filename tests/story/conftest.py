from __future__ import annotations

from collections.abc import Iterator

import pytest
from running import Up, muster_up


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
