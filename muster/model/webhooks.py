"""Names and paths of the webhooks: API, since operators see them in errors. A segment may follow the path in a URL."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

WORKLOADS: Final = "/validate/workloads"
"""Where all kinds of workloads but Jobs are judged; each kind has a webhook named after it."""

PATHS: Final[Mapping[str, str]] = {
    "pods.scheduler.muster.sh": "/mutate/scheduler",
    "workloads.scheduler.muster.sh": "/mutate/scheduler",
    "operators.scheduler.muster.sh": "/mutate/scheduler",
    "namespaces.mutate.muster.sh": "/mutate/namespaces",
    "jobs.mutate.muster.sh": "/mutate/jobs",
    "pods.mutate.muster.sh": "/mutate/pods",
    "pods.members.muster.sh": "/mutate/pods",
    "podgroups.mutate.muster.sh": "/mutate/podgroups",
    "podgroups.namespace-queue.muster.sh": "/mutate/podgroups",
    "podgroups.queue-policy.muster.sh": "/mutate/podgroups",
    "podgroupminresources.muster.sh": "/validate/podgroups",
    "phases.muster.sh": "/validate/podgroups",
    "jobs.validate.muster.sh": "/validate/jobs",
    "queues.validate.muster.sh": "/validate/queues",
    "pods.guaranteed.muster.sh": "/validate/pods",
    "pods.guarded.muster.sh": "/validate/pods",
    "resourceclaims.guaranteed.muster.sh": "/validate/resourceclaims",
    "resourceclaims.guarded.muster.sh": "/validate/resourceclaims",
    "resourcequotas.guaranteed.muster.sh": "/validate/resourcequotas",
    "resourcequotas.muster.sh": "/validate/resourcequotas",
    "hints.muster.sh": "/validate/hints",
    "workloads.hints.muster.sh": "/validate/hints",
    "cronjobs.hints.muster.sh": "/validate/hints",
    "deployments.validate.muster.sh": WORKLOADS,
    "statefulsets.validate.muster.sh": WORKLOADS,
    "replicasets.validate.muster.sh": WORKLOADS,
    "cronjobs.validate.muster.sh": WORKLOADS,
    "pytorchjobs.validate.muster.sh": WORKLOADS,
    "mpijobs.validate.muster.sh": WORKLOADS,
    "trainjobs.validate.muster.sh": WORKLOADS,
    "rayclusters.validate.muster.sh": WORKLOADS,
    "rayjobs.validate.muster.sh": WORKLOADS,
    "jobsets.validate.muster.sh": WORKLOADS,
    "leaderworkersets.validate.muster.sh": WORKLOADS,
    "sparkapplications.validate.muster.sh": WORKLOADS,
    "workflows.validate.muster.sh": WORKLOADS,
}
