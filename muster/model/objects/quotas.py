"""Resource quotas, and the ledger of what is reserved from them."""

from __future__ import annotations

from msgspec import field

from muster.model.objects.metadata import ApiStruct, Json, Object


class ScopeRequirement(ApiStruct, frozen=True, kw_only=True):
    """One requirement of a quota's scope selector."""

    scope_name: str
    operator: str
    values: tuple[str, ...] | None = None


class ScopeSelector(ApiStruct, frozen=True, kw_only=True):
    """Which pods a quota counts."""

    match_expressions: tuple[ScopeRequirement, ...] | None = None


class ResourceQuotaSpec(ApiStruct, frozen=True, kw_only=True):
    """A quota's limits."""

    hard: dict[str, Json] | None = None
    scopes: tuple[str, ...] | None = None
    scope_selector: ScopeSelector | None = None


class ResourceQuotaStatus(ApiStruct, frozen=True, kw_only=True):
    """What the API server's own quota controller counts."""

    hard: dict[str, Json] | None = None
    used: dict[str, Json] | None = None


class ResourceQuota(Object, frozen=True, kw_only=True):
    """core/v1 ResourceQuota."""

    spec: ResourceQuotaSpec = field(default_factory=ResourceQuotaSpec)
    status: ResourceQuotaStatus = field(default_factory=ResourceQuotaStatus)


class QuotaTotals(ApiStruct, frozen=True, kw_only=True):
    """One quota in the ledger: its limit and the totals of what the views at `observed` show."""

    uid: str
    hard: dict[str, str]
    reserved: dict[str, str] = field(default_factory=dict)
    used: dict[str, str] = field(default_factory=dict)
    other: dict[str, str] = field(default_factory=dict)


class LedgerData(ApiStruct, frozen=True, kw_only=True):
    """The quota ledger of a namespace; muster.ledger.table gives it meaning."""

    summary: str = ""
    seeded_at: str = ""
    observed: dict[str, str] = field(default_factory=dict)
    quotas: dict[str, QuotaTotals] = field(default_factory=dict)
    rows: tuple[str, ...] = ()


class QuotaLedger(Object, frozen=True, kw_only=True):
    """muster.sh/v1alpha1 QuotaLedger. Whole: only Muster writes it."""

    data: LedgerData = field(default_factory=LedgerData)
