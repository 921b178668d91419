"""Tables: what `kubectl get` prints of each kind.

Columns and their cells live here, made of values alone. What selects the objects does not.
"""
