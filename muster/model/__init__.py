"""The vocabulary: exact amounts, the objects we read, the names we use.

May live here: values and pure functions over them that more than one program needs.
May not: I/O, clocks, policy, anything that knows a client or a server.
"""
