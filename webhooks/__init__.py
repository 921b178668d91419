"""The admission server: AdmissionReview in, verdict out.

``server`` is the shell, ``review`` the only place that knows the wire form, ``policies`` the rules: pure functions of
a request and a view of the cluster.
"""
