"""Log lines, and a plain-HTTP listener for health and metrics.

May live here: their form. May not: what is worth telling, which each program knows for itself.
"""
