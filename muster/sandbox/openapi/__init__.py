"""What the server says about itself: discovery and OpenAPI.

Documents about the API live here. Objects and requests do not.
"""
