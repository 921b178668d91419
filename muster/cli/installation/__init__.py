"""Muster's objects in a cluster (CRDs, permissions, webhooks): preflight checks, installation and removal.

What several commands apply or remove lives here. Options and what is printed belong to the commands.
"""
