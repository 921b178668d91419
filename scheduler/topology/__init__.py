"""The nodes that a pod may use, by other pods, node labels and volumes.

Pure rules about nodes and domains live here. Queues, quotas and priorities do not.
"""
