"""``muster dump``: what Muster sees of a cluster, as a file to ask questions of."""

from __future__ import annotations

import click

from muster.cli import cluster
from muster.cli.connect import connected, runs
from muster.cli.options import cluster_options, examples
from muster.cli.questions import tell
from muster.kube.clock import SystemClock
from muster.whatif.dump import lines


@click.command(epilog=examples("muster dump > state.yaml", "muster admit -f train.yaml --state state.yaml"))
@cluster_options
@runs
async def dump(kubeconfig: str | None, context: str | None) -> None:
    """Write the state of the cluster as YAML, for `admit`, `podgroup why` and `simulate`.

    The file holds the objects that Muster reads, such as nodes, pods, PodGroups, queues and quotas, with the fields that
    it reads. It holds no Secrets, and no environment or commands of containers.
    """
    async with connected(kubeconfig, context) as client:
        state = await cluster.read(client, SystemClock().now())
    tell(state)
    for line in lines(state):
        click.echo(line)
