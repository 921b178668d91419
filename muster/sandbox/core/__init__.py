"""The store, the registry of resources, and the words and names that all of the server shares.

What has no rule about a kind of its own lives here. What interprets objects does not.
"""
