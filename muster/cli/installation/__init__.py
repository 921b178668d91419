"""Muster's objects in a cluster: CRDs, permissions and webhooks, what stands in their way, and how they are removed.

What several commands apply or remove lives here. Options and what is printed belong to the commands.
"""
