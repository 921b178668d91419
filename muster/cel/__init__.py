"""The Common Expression Language as the API server uses it, for rules in CRDs, webhook match conditions and policies.

Pure. What an expression may take of time and memory is bounded, patterns included: those who write expressions may be
tenants. An expression is compiled once, against the types of its variables, to nested functions. What this package
doesn't know is refused when it is compiled, so an expression is never true by accident. docs/decisions/0018 says why
it is our own; the language is defined by ``cel.dev`` and the functions by ``k8s.io/apiserver/pkg/cel/library``.
"""

from muster.cel.compile import Program, compile_expression
from muster.cel.folds import Steps
from muster.cel.types import (
    BOOL,
    DYN,
    INT,
    QUANTITY,
    RESERVED,
    STRING,
    Type,
    from_schema,
    list_of,
    map_of,
    object_of,
    optional_of,
)
from muster.cel.values import CelError, CompileError, Optional

__all__ = [
    "BOOL",
    "DYN",
    "INT",
    "QUANTITY",
    "RESERVED",
    "STRING",
    "CelError",
    "CompileError",
    "Optional",
    "Program",
    "Steps",
    "Type",
    "compile_expression",
    "from_schema",
    "list_of",
    "map_of",
    "object_of",
    "optional_of",
]
