"""The quota guarantee: the reservations of a namespace's PodGroups never exceed its ResourceQuota.

What may live here: the ledger's values and decisions, all pure, and its only two writers, the ``committer`` of a webhook
server and the leader's ``controller``. What may not: rules of admission (``webhooks``), scheduling, anything else that
writes a QuotaLedger.
"""
