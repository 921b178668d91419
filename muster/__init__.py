"""The code that Muster's programs share, the command line, and a control plane to try them on.

The packages below live here, lowest first. Admission rules, scheduling and certificates do not: they are programs of
their own (``webhooks``, ``scheduler``, ``certs``).

* ``model``: the vocabulary: amounts, typed objects, names.
* ``kube`` and ``telemetry``: the client of an API server and the leader's permission to write; logs, health and metrics.
* ``ledger``: the quota guarantee: a pure table and its two writers.
* ``sandbox``: an in-memory Kubernetes API server for demos, tests and dry runs.
* ``whatif`` and ``cli``: answers about a cluster, and the commands that print them.
"""

__version__ = "0.2.0"
