"""``muster simulate``: its options, its tables and its plots.

What is asked of a simulation and printed of it lives here. The simulation is ``scheduler.simulator``.
"""
