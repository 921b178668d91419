"""The code that Muster's three programs share.

Layers, lowest first; each may import those below it and nothing above:

* ``model``: the vocabulary. Amounts, typed objects, names. No I/O.
* ``kube``: how to talk to an API server, and who may write to it (the Lease).
* ``ledger``: the quota guarantee. A pure table and its one committer.
* ``sandbox``: an in-memory Kubernetes API server for demos, tests and dry runs.
* ``cli``: what a person types.
"""

__version__ = "0.1.0"
