"""The admission server: AdmissionReview in, verdict out.

What may live here: the rules and what evaluates them, pure functions of a request and a view of the cluster, and the shell
that answers calls over HTTPS. What may not: the quota ledger's decisions (``muster.ledger``), scheduling, and the making of
certificates (``certs``).
"""
