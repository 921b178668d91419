"""ResourceQuotas: the ledger learns a limit before it holds."""

from __future__ import annotations

from muster.model import scopes
from muster.model.objects import ResourceQuota
from webhooks.policies import common
from webhooks.review import AdmissionRequest
from webhooks.settings import WebhookSettings
from webhooks.verdict import ALLOWED, Allowed, QuotaChange, Verdict, judge
from webhooks.view import AdmissionView


def validate(request: AdmissionRequest, _: AdmissionView, __: WebhookSettings) -> Verdict:
    """Let any change pass that the ledger has taken note of."""
    if request.operation == "DELETE":
        gone = request.old(ResourceQuota)
        return Allowed(quota_change=QuotaChange(request.namespace, gone.name, gone.metadata.uid, None))
    quota = request.new(ResourceQuota)
    if request.operation == "UPDATE" and quota.spec == request.old(ResourceQuota).spec:
        return ALLOWED
    hard, problems = common.amounts(quota.spec.hard, "spec.hard")
    limits = scopes.scoped(hard, scopes.scope_set(quota.spec))
    change = QuotaChange(request.namespace, quota.name or request.name, quota.metadata.uid, limits)
    return judge(problems, (), Allowed(quota_change=change))
