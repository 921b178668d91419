"""``muster certs``: its commands, its output, and certificates as files.

What people type and read about certificates lives here. What decides about them is in the package ``certs``.
"""
