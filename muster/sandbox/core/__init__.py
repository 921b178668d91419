"""The store, the registry of resources, and the shared names and messages of the server.

What has no rule about a kind of its own lives here. What interprets objects does not.
"""
