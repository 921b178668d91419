"""The rules, one module per resource. Pure: a request, a view and the settings in, a verdict out.

May not: I/O, clocks, logging, or knowledge of a sibling; what two of them share is in `common`.
"""
