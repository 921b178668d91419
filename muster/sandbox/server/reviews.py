"""Questions about oneself: who am I, may I? The sandbox knows users, and lets all of them do everything."""

from __future__ import annotations

from typing import Any

from muster.sandbox.core.registry import Resource
from muster.sandbox.core.status import unsupported
from muster.sandbox.core.users import User

Json = dict[str, Any]

_WHY = "the Muster sandbox authenticates but doesn't enforce RBAC"


def answer(resource: Resource, review: Json, user: User) -> Json:
    """Answer a review.

    Raises:
        StatusError: 501 for one that the sandbox can't answer truthfully.
    """
    base: Json = {"kind": resource.kind, "apiVersion": resource.api_version, "metadata": {}}
    match resource.kind:
        case "SelfSubjectReview":
            return base | {"status": {"userInfo": user.info()}}
        case "SelfSubjectAccessReview" | "SubjectAccessReview":
            return base | {"spec": review.get("spec", {}), "status": {"allowed": True, "reason": _WHY}}
        case "SelfSubjectRulesReview":
            everything = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}
            rules = {"resourceRules": [everything], "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}]}
            return base | {"spec": review.get("spec", {}), "status": {**rules, "incomplete": False}}
    raise unsupported(f"{resource.kind}")
