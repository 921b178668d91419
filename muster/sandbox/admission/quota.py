"""ResourceQuota admission: the last step. What is admitted is counted at once, in the quota's status.

Between the check and the count nothing waits, so concurrent requests can't share what is left. A request that fails
after it was counted leaves the count too high until the quota controller recounts, as on a real server.
"""

from __future__ import annotations

from typing import Any, Final

from muster.model.amounts import Quantity
from muster.sandbox.admission import usage
from muster.sandbox.admission.attributes import Attributes
from muster.sandbox.core.store import Object, Store

QUOTAS: Final = ("", "resourcequotas")
Amounts = usage.Amounts


def check(store: Store, attributes: Attributes) -> None:
    """Count a write against the namespace's quotas.

    Raises:
        StatusError: 403, a quota would be exceeded or can't be applied.
    """
    if not _handles(attributes):
        return
    quotas = store.list(QUOTAS, attributes.namespace)
    if not quotas:
        return
    counted = [new for quota in quotas if (new := _counted(quota, attributes)) is not None]
    if not attributes.dry_run:
        for quota in counted:
            store.put(QUOTAS, quota)


def _handles(attributes: Attributes) -> bool:
    key, operation = attributes.resource.key, attributes.operation
    if attributes.object is None or not attributes.namespace or key == ("", "namespaces"):
        return False
    if attributes.subresource:
        return key == usage.PODS and attributes.subresource == "resize" and operation == "UPDATE"
    if operation == "UPDATE":
        return key in {usage.SERVICES, usage.CLAIMS} or (key == usage.PODS and _changed_scope(attributes))
    return operation == "CREATE"


def _changed_scope(attributes: Attributes) -> bool:
    assert attributes.object is not None
    return _has_deadline(attributes.object) != _has_deadline(attributes.old_object or {})


def _has_deadline(pod: Object) -> bool:
    """Whether a pod is in the scope Terminating, the only one that an update can take it into."""
    return (pod.get("spec") or {}).get("activeDeadlineSeconds") is not None


def _counted(quota: Object, attributes: Attributes) -> Object | None:
    """Return the quota with the write counted; None when it doesn't count."""
    key, obj = attributes.resource.key, attributes.object
    assert obj is not None
    if not usage.matches(quota, key, obj):
        return None
    name, status = quota["metadata"]["name"], quota["status"]
    limited = usage.tracked(key, status["hard"])
    lacking = usage.missing(limited, obj) if key == usage.PODS else ""
    if lacking:
        raise attributes.forbidden(f"failed quota: {name}: must specify {lacking}")
    unknown = limited - (status.get("used") or {}).keys()
    if unknown:
        raise attributes.forbidden(f"status unknown for quota: {name}, resources: {','.join(sorted(limited))}")
    asked = _asked(quota, attributes, status["hard"])
    if not asked:
        return None
    have = {each: Quantity.parse(text) for each, text in status["used"].items()}
    return _with_used(quota, _granted(attributes, name, status["hard"], have, asked))


def _asked(quota: Object, attributes: Attributes, hard: dict[str, Any]) -> Amounts:
    key, obj, old = attributes.resource.key, attributes.object, attributes.old_object
    assert obj is not None
    amounts = usage.charge(key, obj)
    negative = sorted(each for each, amount in amounts.items() if amount.nano < 0)
    if negative:
        raise attributes.forbidden(f"quota usage is negative for resource(s): {','.join(negative)}")
    if attributes.operation == "UPDATE" and old is not None and usage.matches(quota, key, old):
        before = usage.charge(key, old)
        # Only what is more: a real server gives back less only when its controller recounts.
        amounts = {
            each: Quantity(max(0, amount.nano - before[each].nano) if each in before else amount.nano, amount.form)
            for each, amount in amounts.items()
        }
    return {each: amount for each, amount in amounts.items() if amount.nano and each in hard}


def _granted(attributes: Attributes, name: str, hard: dict[str, Any], have: Amounts, asked: Amounts) -> Amounts:
    total = usage.plus(have, asked)
    exceeded = [each for each in asked if total[each].nano > Quantity.parse(hard[each]).nano]
    if exceeded:
        limits = {each: Quantity.parse(hard[each]) for each in exceeded}
        raise attributes.forbidden(
            f"exceeded quota: {name}, requested: {_listed(asked, exceeded)}, "
            f"used: {_listed(have, exceeded)}, limited: {_listed(limits, exceeded)}"
        )
    return total


def _listed(amounts: Amounts, names: list[str]) -> str:
    return ",".join(f"{name}={amounts[name]}" for name in sorted(names))


def _with_used(quota: Object, amounts: Amounts) -> Object:
    return {**quota, "status": {**quota["status"], "used": {name: str(each) for name, each in amounts.items()}}}
