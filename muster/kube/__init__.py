"""How to talk to a Kubernetes API server, and who may write to it.

May live here: the transport and its errors, typed verbs, list-and-watch, the Lease and the Fence it hands out,
authentication. May not: policy, scheduling, quotas, or anything that knows why a request is made.
"""
