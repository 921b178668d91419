"""``muster top``: what a terminal shows of an overview, and the keys that change it.

`screen` and `keys` are pure: an overview, a view and a size in, lines out. `terminal` reads keys and paints, `command` has the options.
"""
