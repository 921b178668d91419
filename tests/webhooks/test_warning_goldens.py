"""Each warning of the webhooks, whole, for one and for several: as somebody read it.

After a change: GOLDEN=write pytest tests/webhooks/test_warning_goldens.py, and read the difference.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from muster.model import kinds, names
from muster.model.amounts import Resources
from webhooks.policies import hints, jobs, podgroups, workloads

GOLDEN = Path(__file__).with_name("golden-warnings.txt")
MEMBER = names.GROUP_MIN_MEMBER


def said(cluster: Any, ask: Callable[..., Any], podgroup: Any, job: Any, n: int) -> Iterator[tuple[str, Any]]:
    """Yield what is written, and what a policy answers."""
    cluster.size = Resources.parse({"cpu": str(n), "memory": "8Gi", "pods": "110"})
    yield "larger than the cluster", ask(podgroups.validate, podgroup(minMember=1, minResources={"cpu": str(n + 1)}))
    yield "of what no node has", ask(podgroups.validate, podgroup(minMember=n, minResources={"nvidia.com/gpu": str(n)}))
    cluster.size = None
    cluster.put(kinds.RESOURCEQUOTAS, "few", "dev", spec={"hard": {"pods": str(n)}})
    yield "more pods than a quota allows", ask(podgroups.validate, podgroup(minMember=n + 1))
    cluster.put(kinds.RESOURCEQUOTAS, "few", "dev", spec={"hard": {"cpu": str(n)}, "scopes": ["NotTerminating"]})
    yield "a quota with a scope", ask(podgroups.validate, podgroup(minMember=n, minResources={"cpu": str(n)}))
    del cluster.objects[kinds.RESOURCEQUOTAS, "dev", "few"]
    cluster.put(kinds.QUEUES, "busy", spec={"maxPodGroups": n}, status={"state": "Open", "total": n, "running": n})
    yield "a queue with as many as it may have", ask(podgroups.validate, podgroup(queue="busy"))
    roles = {f"worker-{number}": 2 for number in range(n)}
    yield "roles beyond the minimum", ask(podgroups.validate, podgroup(minMember=1, minTaskMember=roles))
    held = job(annotations={MEMBER: str(n)})
    yield (
        "a queue that is named too late",
        ask(jobs.validate, job(annotations={MEMBER: str(n), names.QUEUE_NAME_KEYS[0]: "research"}), "UPDATE", old=held),
    )
    yield (
        "a minimum that is changed too late",
        ask(jobs.validate, job(annotations={MEMBER: str(n + 1)}, parallelism=9, completions=9), "UPDATE", old=held),
    )
    yield "a delay that means nothing", ask(jobs.validate, job(annotations={names.DELAY: f"later {n}"}))
    yield "a minimum that is no number", ask(jobs.validate, job(annotations={MEMBER: f"{n} or so"}))
    yield "a misspelt key", ask(hints.validate, job(annotations={"scheduling.k8s.io/group-min-members": str(n)}))
    template = job(annotations={})["spec"]["template"]
    template["spec"]["restartPolicy"] = "Always"
    metadata = {"name": "web", "namespace": "dev", "uid": "uid-web", "annotations": {MEMBER: str(n + 1)}}
    scaled = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata}
    yield (
        "a Deployment that is too small",
        ask(
            workloads.validate,
            scaled | {"spec": {"replicas": n, "template": template}},
            resource={"group": "apps", "version": "v1", "resource": "deployments"},
        ),
    )
    yield "nobody's scheduler", ask(hints.validate, job(scheduler="", annotations={MEMBER: str(n)}))


def test_each_is_as_somebody_read_it(cluster: Any, ask: Any, podgroup: Any, job: Any) -> None:
    lines = []
    for count in (1, 3):
        for what, verdict in said(cluster, ask, podgroup, job, count):
            assert verdict.warnings, what
            lines += [f"{what}, {count}: {each}" for each in verdict.warnings]
    text = "".join(f"{line}\n" for line in sorted(lines))
    if os.environ.get("GOLDEN") == "write":
        GOLDEN.write_text(text)
    assert text == GOLDEN.read_text()
