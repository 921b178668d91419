"""`helm uninstall` on real nodes: nothing is left that was asked for, and it can be installed again."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.processes

SPACE = "muster-system"
_KINDS = (
    "clusterroles,clusterrolebindings,validatingwebhookconfigurations,mutatingwebhookconfigurations,"
    "validatingadmissionpolicies,validatingadmissionpolicybindings,flowschemas,prioritylevelconfigurations"
)


def test_uninstalled_it_leaves_no_pod_and_no_permission_and_can_be_installed_again(nodes):
    done = nodes.run("helm", "uninstall", "muster", "--namespace", SPACE, "--wait", "--timeout", "4m")
    assert done.returncode == 0, done.stderr
    assert "muster" not in nodes.kubectl("get", _KINDS, "--output=name")
    pods = ("pods", "--all", "--namespace", SPACE)
    nodes.kubectl("wait", *pods, "--for=delete", "--timeout=120s")
    assert "muster" not in nodes.kubectl("get", "pods,deployments,services,jobs", "-n", SPACE, "--output=name")
    # The Secrets were kept: the same CA signs, and nothing waits for a first certificate.
    assert "muster-webhook-ca" in nodes.kubectl("get", "secrets", "-n", SPACE, "--output=name")
    nodes.install()
