"""Where a pod may go as far as other pods, labels of nodes and volumes say.

Pure rules about nodes and domains live here. Queues, quotas and priorities do not.
"""
