"""Server-side apply and ``metadata.managedFields``.

Who owns which field lives here. What a field may hold does not.
"""
