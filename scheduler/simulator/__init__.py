"""The scheduler on given state and in simulated time: what `muster simulate` runs.

What invents time, workloads and the life cycle of pods lives here; what decides does not, it is the engine's.
"""
