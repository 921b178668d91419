"""Answers about a cluster: the reason why a group waits, the changes that let it start, the admission of files.

Questions asked of a copy of the cluster live here, as values; all of it is pure but for the dry run of admission.
Reading clusters, printing and options of commands do not: they are ``muster.cli``'s.
"""
