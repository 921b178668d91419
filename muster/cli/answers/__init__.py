"""What commands print of the answers of ``muster.whatif``: values in, lines for people or JSON values for programs out.

Words and layout live here. Options, clusters and decisions do not.
"""
