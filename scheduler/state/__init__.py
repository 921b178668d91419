"""What the scheduler knows of the cluster between cycles, and the snapshot that it makes of it.

State with one writer and the conversion of objects live here. Decisions do not.
"""
