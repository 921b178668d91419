"""The scheduler's state of the cluster between cycles, and the snapshots made from it.

State with one writer and the conversion of objects live here. Decisions do not.
"""
