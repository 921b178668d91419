"""Controllers of the leader: queues, and the PodGroups generated for workloads that name none."""
