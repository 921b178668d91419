"""An in-memory Kubernetes API server with simulated nodes: for demos, tests and simulations.

Small, and truthful in all that it does: what it doesn't do it refuses with 501. Works on raw JSON, as an API server
must, not on the partial structs of ``muster.model.objects``. Its state is gone when it ends.
"""
