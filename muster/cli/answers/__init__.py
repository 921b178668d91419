"""The output of commands for answers of ``muster.whatif``: lines for people, JSON values for programs.

Words and layout live here. Options, clusters and decisions do not.
"""
