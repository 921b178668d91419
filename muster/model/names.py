"""Every name that users or other programs see: API groups, labels, annotations, reasons. In one place."""

from __future__ import annotations

from typing import Final

# API groups. Match a PodGroup by group, never by kind alone: the kind exists in at least four.
VOLCANO_GROUP: Final = "scheduling.volcano.sh"
INCUBATOR_GROUP: Final = "scheduling.incubator.k8s.io"
SIGS_GROUP: Final = "scheduling.sigs.dev"
KUBERNETES_GROUP: Final = "scheduling.k8s.io"
MUSTER_GROUP: Final = "muster.sh"
TOPOLOGY_GROUP: Final = "topology.volcano.sh"
LEGACY_GROUPS: Final = (INCUBATOR_GROUP, SIGS_GROUP)
PODGROUP_GROUPS: Final = (VOLCANO_GROUP, *LEGACY_GROUPS)

FIELD_MANAGER: Final = "muster"
SCHEDULER_NAME: Final = "muster"
DROP_IN_SCHEDULER_NAMES: Final = ("volcano", "kube-batch")

DEFAULT_QUEUE: Final = "default"
HIERARCHY: Final = ("volcano.sh/hierarchy", "volcano.sh/hierarchy-weights")
"""Annotations of Volcano's queues: a queue's path in the tree, and the weight of each queue on it."""
ROOT_QUEUE: Final = "root"
LEDGER_NAME: Final = "default"
SYSTEM_NAMESPACE: Final = "muster-system"
SCHEDULER_LEASE: Final = "muster-scheduler"
"""The Lease that the leader holds, in `SYSTEM_NAMESPACE`."""
PART_OF: Final = "app.kubernetes.io/part-of"
"""Label of all that is installed, with the value `muster`."""
WEBHOOK_CONFIGURATION: Final = "muster"
"""Name of both webhook configurations."""
SCHEDULER_CONFIGMAP: Final = ("muster-scheduler", "scheduler.yaml")
"""The ConfigMap with the scheduler's configuration, and its key."""
EXEMPT_NAMESPACES: Final = ("kube-system", "kube-node-lease")

# What ends the path of each webhook: the key of the Secret with the segments that replicas accept, the word in it for a path
# that has none, and the header in which a replica says when a call failed last.
SEGMENTS_FILE: Final = "segments"
NO_SEGMENT: Final = "-"
FAILED_HEADER: Final = "Muster-Last-Failure"

# Annotations that tie a pod, or its owner, to a group. Where two keys mean one thing, the newer (second) wins.
GROUP_NAME: Final = "scheduling.k8s.io/group-name"
VOLCANO_GROUP_NAME: Final = "scheduling.volcano.sh/group-name"
GROUP_NAME_KEYS: Final = (VOLCANO_GROUP_NAME, GROUP_NAME)
GROUP_MIN_MEMBER: Final = "scheduling.k8s.io/group-min-member"
VOLCANO_GROUP_MIN_MEMBER: Final = "scheduling.volcano.sh/group-min-member"
GROUP_MIN_MEMBER_KEYS: Final = (VOLCANO_GROUP_MIN_MEMBER, GROUP_MIN_MEMBER)
GROUP_MIN_RESOURCES: Final = "scheduling.volcano.sh/group-min-resources"
QUEUE_NAME_KEYS: Final = ("scheduling.volcano.sh/queue-name", "volcano.sh/queue-name")

# What Volcano's pods and groups say, and Muster heeds.
SLA: Final = "volcano.sh/sla-waiting-time"
ROLE: Final = "volcano.sh/task-spec"
PREEMPTABLE: Final = "volcano.sh/preemptable"
TOPOLOGY_MODE: Final = "volcano.sh/network-topology-mode"
TOPOLOGY_TIER: Final = "volcano.sh/network-topology-highest-tier"

# Ours.
DEFAULT_SCHEDULER: Final = "muster.sh/default-scheduler"
DELAY: Final = "muster.sh/delay"
SUSPENDED: Final = "muster.sh/suspended"
JOB_GROUP: Final = "muster.sh/group"
OWNER: Final = "muster.sh/owner"
MEMBER_OF: Final = "muster.sh/member-of"
DESCRIBED: Final = "muster.sh/described"
WANTED_RESOURCES: Final = "muster.sh/wanted-min-resources"
"""On a group without ``spec.minResources``: what it is to have there once its namespace's quota has room for it."""
OWNER_READER: Final = "muster.sh/owner-reader"
DISRUPTION_MODE: Final = "muster.sh/disruption-mode"
"""On a group: ``All`` where it may be evicted as a whole only."""
DISRUPTION_ALL: Final = "All"
SHARED_CLAIMS: Final = "muster.sh/shared-claims"
"""On a group that stands for a native one: the ResourceClaims that this shares among its pods, as JSON."""
SHARED_CLAIMS_OF: Final = "muster.sh/shared-claims-of"
"""On a group that stands for something else, such as a Job: the native one whose claims these are, as ``NAME/UID``."""
EXPECTED_DURATION: Final = "muster.sh/expected-duration"
"""On a workload, its pod template or its group: how long it runs from its start, such as ``2h30m``."""
PREEMPTION_POLICY: Final = "muster.sh/preemption-policy"
"""On a group: ``Never`` where nothing may be evicted for it."""
NEVER: Final = "Never"
QUOTA_MODE: Final = "muster.sh/quota"
GUARDED: Final = "guarded"
GUARANTEED: Final = "guaranteed"
QUOTA_WINDOW: Final = "muster.sh/quota-window"
WINDOW_OPEN: Final = "open"
QUOTA_POLICY: Final = "muster.sh/quota-policy"
NAMES_QUEUE: Final = "muster.sh/names-queue"
"""Label of a namespace whose annotation names the queue of its groups: webhooks choose namespaces by labels only."""
POD_TRAITS: Final = "muster.sh/pod-traits"
POLICY_QUEUE: Final = "Queue"
POLICY_REJECT: Final = "Reject"
TURN: Final = "muster.sh/turn"
VOLUMES_WRITTEN: Final = "muster.sh/secret-written"
"""On pods of the webhook servers: when a Secret that they mount was written, so that their kubelets look at once."""
QUEUE_FINALIZER: Final = "muster.sh/queue"
MANAGED_BY: Final = "app.kubernetes.io/managed-by"
NAMESPACE_NAME: Final = "kubernetes.io/metadata.name"

# User names of Kubernetes' own controllers: what they write follows from what somebody else wrote.
COMPONENTS: Final = ("system:apiserver", "system:kube-controller-manager", "system:kube-scheduler")
CONTROLLER_PREFIXES: Final = ("system:serviceaccount:kube-system:", "system:node:")

# Pods on simulated nodes.
RUN_SECONDS: Final = "sandbox.muster.sh/run-seconds"
EXIT_CODE: Final = "sandbox.muster.sh/exit-code"
