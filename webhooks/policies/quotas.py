"""ResourceQuotas: the ledger learns a limit before it holds."""

from __future__ import annotations

from typing import Final

from muster.model import scopes, tenant_texts
from muster.model.amounts import Resources
from muster.model.objects import ResourceQuota, ResourceQuotaSpec
from webhooks.policies import common
from webhooks.review import AdmissionRequest
from webhooks.settings import WebhookSettings
from webhooks.verdict import ALLOWED, Allowed, Problem, QuotaChange, Verdict, judge
from webhooks.view import AdmissionView

_MOST: Final = 128
"""Resources that a quota may limit; a namespace's ledger has sums of each."""

_LONGEST: Final = 2048
"""Characters of a quota's scopes, which are part of each of these sums' names."""


def validate(request: AdmissionRequest, _: AdmissionView, __: WebhookSettings) -> Verdict:
    """Let any change pass that the ledger has taken note of."""
    if request.operation == "DELETE":
        gone = request.old(ResourceQuota)
        return Allowed(quota_change=QuotaChange(request.namespace, gone.name, gone.metadata.uid, None))
    quota = request.new(ResourceQuota)
    old = request.old(ResourceQuota) if request.operation == "UPDATE" else None
    if old is not None and quota.spec == old.spec:
        return ALLOWED
    hard, problems = _read(quota.spec)
    if old is not None:
        problems = common.new_problems(problems, _read(old.spec)[1])
    name, uid = quota.name or request.name, quota.metadata.uid
    tenant_texts.check("ResourceQuota", subdomains=(name,), uids=(uid,))
    limits = scopes.scoped(hard, scopes.scope_set(quota.spec))
    return judge(problems, (), Allowed(quota_change=QuotaChange(request.namespace, name, uid, limits)))


def _read(spec: ResourceQuotaSpec) -> tuple[Resources, list[Problem]]:
    """Return what a quota limits, and what of it can't be kept."""
    hard, problems = common.amounts(spec.hard, "spec.hard")
    if len(hard.nano) > _MOST:
        problems.append(Problem(f"it limits too many resources: limit at most {_MOST}", "spec.hard"))
    if len(scopes.scope_set(spec)) > _LONGEST:
        text = f"its scopes are too long: write at most {_LONGEST} characters"
        problems.append(Problem(text, "spec.scopeSelector"))
    return hard, problems
