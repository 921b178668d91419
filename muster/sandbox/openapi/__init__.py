"""Discovery and OpenAPI: the server's description of itself.

Documents about the API live here. Objects and requests do not.
"""
