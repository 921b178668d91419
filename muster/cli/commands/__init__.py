"""One module per command that needs only one.

What a command asks for and prints lives here. What it finds out does not.
"""
