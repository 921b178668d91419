"""Where the time of `muster podgroup why` goes: the same steps, one after the other, and the processor seconds of each as JSON.

`benchmarks/ask.py` runs it, as a process of its own for each run, since most of it is imports. It asks for the group
``waiting`` in ``team-0`` of the cluster that KUBECONFIG names. Other than here, imports and the API server's work overlap.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import time
from itertools import pairwise
from typing import Any

WHO = ("team-0", "waiting")
_IMPORTS = {
    "importing click and the command": ("click", "muster.cli.main", "muster.cli.commands.podgroup"),
    "importing the client": ("muster.kube.kubeconfig", "muster.kube.http"),
    "importing numpy": ("numpy",),
    "importing the scheduler": ("scheduler.configuration.builtin", "muster.whatif.why"),
}


def main() -> None:
    """Answer the question."""
    spent = [("starting python", time.process_time())]
    gc.disable()  # as the command does
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    for part, modules in _IMPORTS.items():
        for module in modules:
            importlib.import_module(module)
        spent.append((part, time.process_time()))
    ask(spent)
    print(json.dumps([(part, until - since) for (_, since), (part, until) in pairwise([("", 0.0), *spent])]))


def ask(spent: list[tuple[str, float]]) -> None:
    """Read the cluster and find out why."""
    from muster.cli.answers.why import lines
    from muster.cli.cluster import read
    from muster.cli.connect import connected
    from muster.cli.options import SCHEDULERS, policy_of
    from muster.cli.questions import reading
    from muster.kube.clock import SystemClock
    from muster.whatif import targets, why
    from muster.whatif.cluster import WhatIfCluster

    async def state() -> Any:
        async with connected(None, None) as client:
            return await read(client, SystemClock().now())

    found = reading(state())
    spent.append(("reading, and decoding", time.process_time()))
    cluster = WhatIfCluster(found, policy_of(None), SCHEDULERS)
    spent.append(("counting who is where", time.process_time()))
    subject = targets.find(found, *WHO, SCHEDULERS)
    assert subject is not None, "the cluster has the group"
    assert subject.key is not None, "the cluster has the group"
    list(lines(why.ask(cluster, subject.key), 80, found.taken))
    spent.append(("deciding, and writing the answer", time.process_time()))


if __name__ == "__main__":
    main()
