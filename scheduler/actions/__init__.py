"""The steps of a cycle, one module each.

What jobs and queues have, and what is left on nodes, an action changes through statements only. Where a job stands it
writes itself: its phase through `Session.admit` and `requeue`, its obstacle and its line of waiting tasks on `JobState`.
It sees neither plugins nor other actions.
"""
