"""What the server knows of each kind: its defaults, what a client may not set, what has to be valid.

May live here: one module per family of kinds. May not: anything that reads the store or waits.
"""
