"""The values that the rooms of the scheduler share: snapshot, tasks, constraints, amounts, plan.

Frozen values and the arithmetic on them live here. State and rules do not.
"""
