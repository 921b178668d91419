"""The steps of a cycle, one module each.

An action changes the session through statements and its admission methods only; it sees neither plugins nor other actions.
"""
