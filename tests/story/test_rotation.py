"""The rotation of the demo, and that it notices what isn't reviewed."""

from __future__ import annotations

import click
import pytest
from running import kubectl, muster_up

from muster.cli.demo import rotation

NIGHTLY = '{"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "metadata": {"name": "nightly"}}'

pytestmark = pytest.mark.processes


async def test_every_request_is_reviewed_while_the_ca_is_replaced_and_others_would_be_noticed(
    tmp_path, capsys, monkeypatch
):
    config = tmp_path / "kubeconfig"
    with muster_up("--kubeconfig-out", str(config), kubeconfig=config):
        await rotation.rotate(config)
        said = capsys.readouterr().out
        assert "retire -> steady" in said
        assert said.endswith(" requests were reviewed meanwhile, 0 failed\n")
        # A queue of that name, and nobody refuses.
        assert kubectl(config, "create", "-f", "-", stdin=NIGHTLY).returncode == 0
        monkeypatch.setattr(rotation, "_WORDS", ("certs", "status"))
        with pytest.raises(click.ClickException, match=r"weren't reviewed: \['stored'\]"):
            await rotation.rotate(config)
