"""Names and paths of the webhooks: API, since operators see them in errors. A segment may follow the path in a URL."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

PATHS: Final[Mapping[str, str]] = {
    "pods.scheduler.muster.sh": "/mutate/scheduler",
    "workloads.scheduler.muster.sh": "/mutate/scheduler",
    "jobs.mutate.muster.sh": "/mutate/jobs",
    "pods.mutate.muster.sh": "/mutate/pods",
    "pods.members.muster.sh": "/mutate/pods",
    "podgroups.mutate.muster.sh": "/mutate/podgroups",
    "podgroups.queue-policy.muster.sh": "/mutate/podgroups",
    "podgroupminresources.muster.sh": "/validate/podgroups",
    "phases.muster.sh": "/validate/podgroups",
    "jobs.validate.muster.sh": "/validate/jobs",
    "queues.validate.muster.sh": "/validate/queues",
    "pods.guaranteed.muster.sh": "/validate/pods",
    "pods.guarded.muster.sh": "/validate/pods",
    "resourcequotas.guaranteed.muster.sh": "/validate/resourcequotas",
    "resourcequotas.muster.sh": "/validate/resourcequotas",
    "hints.muster.sh": "/validate/hints",
    "workloads.hints.muster.sh": "/validate/hints",
    "cronjobs.hints.muster.sh": "/validate/hints",
}
