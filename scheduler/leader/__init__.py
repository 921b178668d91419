"""What runs while this process holds the Lease: cycles, and the writers that carry out their plans.

Shells with I/O, clocks and tasks live here. Decisions do not: they are pure and belong to the engine.
"""
