"""``muster up``: Muster's programs in one process.

What starts and ends programs on this machine lives here. What they do does not.
"""
