"""One cycle, from a snapshot to a plan: the session, its statements, and the API of plugins and actions.

Pure decisions live here, and are given ``now``. I/O, clocks and what outlives a cycle do not.
"""
