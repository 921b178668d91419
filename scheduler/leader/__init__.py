"""The part that runs while this process holds the Lease: cycles, and the writers that perform their plans.

Shells with I/O, clocks and tasks live here. Decisions do not: they are pure and belong to the engine.
"""
