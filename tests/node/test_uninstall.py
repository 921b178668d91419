"""`helm uninstall` on real nodes: nothing is left that was asked for, and it can be installed again."""

from __future__ import annotations

import time

import pytest
from nodes import SPACE

pytestmark = pytest.mark.processes

SECONDS = 120
_KEPT = {
    "Secret muster-system/muster-webhook-ca",
    "Secret muster-system/muster-webhook-path",
    "Secret muster-system/muster-webhook-tls",
}
_OF_CRDS = ("CustomResourceDefinition /", "APIService /", "PodGroup ", "Queue ", "QuotaLedger ")
_VISIBILITY = "APIService /v1alpha1.visibility.muster.sh"
_OF_NODES = ("Lease kube-node-lease/", "CSINode /", "ResourceSlice /")


def left(nodes) -> set[str]:
    """Return what is there since the installation, but for CRDs with their objects, which docs/install.md says stay."""
    found = nodes.everything() - nodes.untouched
    return {each for each in found if each == _VISIBILITY or not each.startswith((*_OF_CRDS, *_OF_NODES))}


def uninstall(nodes) -> None:
    """Uninstall, and wait until nothing but what is kept on purpose is left."""
    done = nodes.run("helm", "uninstall", "muster", "--namespace", SPACE, "--wait", "--timeout", "4m")
    assert done.returncode == 0, done.stderr
    nodes.kubectl("wait", "pods", "--all", "--namespace", SPACE, "--for=delete", "--timeout=120s")
    deadline = time.monotonic() + SECONDS
    while (found := left(nodes)) != _KEPT and time.monotonic() < deadline:
        time.sleep(1)
    assert sorted(found ^ _KEPT) == []


def test_uninstalled_it_leaves_only_what_is_kept_on_purpose_and_can_be_installed_again_and_again(nodes):
    assert left(nodes) > _KEPT
    authority = ("get", "secret", "muster-webhook-ca", "-n", SPACE, "--output=jsonpath={.data}")
    before = nodes.kubectl(*authority)
    for _ in range(3):
        uninstall(nodes)
        begun = time.monotonic()
        nodes.install()
        nodes.figures["install again with kept Secrets, s"] = time.monotonic() - begun
        # The Secrets were kept: the same CA signs.
        assert nodes.kubectl(*authority) == before
