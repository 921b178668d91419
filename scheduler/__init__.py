"""The scheduler: gang scheduler, queue controller and PodGroup controller; one leader at a time.

Programs and rooms live here: each room imports only rooms below it (pyproject.toml has the order), and no module lives
beside them but the entry point and the public API for plugins.
"""
