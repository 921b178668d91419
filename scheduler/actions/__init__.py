"""The steps of a cycle, one module each.

An action changes amounts and places through statements only. It changes the phase of a job through `Session.admit` and
`requeue`, and records on `JobState` the obstacle of a job, why it was requeued, and which tasks wait. It imports neither
plugins nor other actions.
"""
