"""``muster ui``: the overview of a cluster as a page on this machine, for one person with that person's permissions.

The server, what it remembers while it runs, and the page's own files live here. What the page shows is decided in `muster.whatif`.
"""
