"""The strategy of each kind: its defaults, read-only fields and validation.

May live here: one module per family of kinds. May not: anything that reads the store or waits.
"""
