"""Structural schemas of CustomResourceDefinitions, applied as the API server applies them.

Pure. Schemas and objects are raw JSON; no function changes what it is given, and unchanged parts are shared.
"""

from muster.sandbox.schema.definition import check_schema
from muster.sandbox.schema.shape import default, prune, unknown_fields
from muster.sandbox.schema.validation import validate

__all__ = ["check_schema", "default", "prune", "unknown_fields", "validate"]
