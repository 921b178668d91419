"""The quota guarantee: what PodGroups reserve in a namespace never exceeds its ResourceQuota.

``table`` is pure and states the invariant; ``committer`` is the only writer from webhooks; the leader's ``keeper``
folds, expires and seeds. Nothing else may write a QuotaLedger.
"""
