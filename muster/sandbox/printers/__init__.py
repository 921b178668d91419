"""Tables: the columns of `kubectl get` for each kind.

Columns and their cells live here, made of values alone. What selects the objects does not.
"""
