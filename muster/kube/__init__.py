"""The client of a Kubernetes API server, and the leader's permission to write.

May live here: the transport and its errors, typed verbs, list-and-watch, the Lease and the Fence it hands out,
authentication. May not: policy, scheduling, quotas, or anything that knows why a request is made.
"""
