"""One cycle, from a snapshot to a plan: the session, its statements, and what plugins and actions are given.

Pure decisions live here, and are given ``now``. I/O, clocks and what outlives a cycle do not.
"""
