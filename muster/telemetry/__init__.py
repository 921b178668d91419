"""Log lines, a plain-HTTP listener for health and metrics, and the options of programs for both.

May live here: their form. May not: what is worth telling, which each program knows for itself.
"""
