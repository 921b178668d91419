"""Controllers of the leader: queues, owners and their PodGroups, labels of namespaces.

What reconciles objects beside the cycle lives here. What places pods does not.
"""
