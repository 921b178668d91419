"""Requests to answers: verbs, writes, deletions, lists and watches on the store.

What a request does lives here. Sockets, controllers and the forms of bytes do not.
"""
