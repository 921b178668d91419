"""Bytes to objects and back: formats, fields, patches and selectors.

What reads or writes a form lives here, as pure functions. Rules about kinds and the store do not.
"""
