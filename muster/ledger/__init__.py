"""The quota guarantee: what PodGroups reserve in a namespace never exceeds its ResourceQuota.

What may live here: the ledger's values and decisions, all pure, and its only two writers, the ``committer`` of a webhook
server and the leader's ``controller``. What may not: rules of admission (``webhooks``), scheduling, anything else that
writes a QuotaLedger.
"""
