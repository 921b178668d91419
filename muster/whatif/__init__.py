"""Answers about a cluster: why a group waits, what would let it start, whether files would be admitted.

Questions asked of a copy of the cluster live here, as values; all of it is pure but for the dry run of admission.
Reading clusters, printing and options of commands do not: they are ``muster.cli``'s.
"""
