"""Strategies of admission registration: webhook configurations and ValidatingAdmissionPolicies."""

from __future__ import annotations

from typing import Final

from muster.sandbox.core import syntax
from muster.sandbox.core.status import Cause, not_one_of, required, wrong
from muster.sandbox.strategies.base import Json, Strategy

_FAILURE: Final = ("Fail", "Ignore")
_OPERATIONS: Final = frozenset({"*", "CREATE", "UPDATE", "DELETE", "CONNECT"})
_SIDE_EFFECTS: Final = ("None", "NoneOnDryRun")
_ACTIONS: Final = ("Deny", "Warn", "Audit")


class WebhooksStrategy(Strategy):
    """ValidatingWebhookConfiguration; MutatingWebhookConfiguration with one default more."""

    counts_generations = True
    unconditional = False
    mutating = False

    def default(self, obj: Json) -> None:
        """Set the defaults of each webhook."""
        for webhook in obj.get("webhooks") or ():
            webhook.setdefault("failurePolicy", "Fail")
            webhook.setdefault("matchPolicy", "Equivalent")
            webhook.setdefault("namespaceSelector", {})
            webhook.setdefault("objectSelector", {})
            webhook.setdefault("timeoutSeconds", 10)
            if self.mutating:
                webhook.setdefault("reinvocationPolicy", "Never")
            for rule in webhook.get("rules") or ():
                rule.setdefault("scope", "*")
            if service := (webhook.get("clientConfig") or {}).get("service"):
                service.setdefault("port", 443)

    def validate(self, obj: Json) -> list[Cause]:
        """Check each webhook."""
        causes: list[Cause] = []
        for index, webhook in enumerate(obj.get("webhooks") or ()):
            causes += _webhook_causes(webhook, f"webhooks[{index}]")
        return causes


class MutatingWebhooksStrategy(WebhooksStrategy):
    """MutatingWebhookConfiguration."""

    mutating = True


def _webhook_causes(webhook: Json, path: str) -> list[Cause]:
    causes = [
        wrong(f"{path}.name", webhook.get("name", ""), text) for text in syntax.subdomain(webhook.get("name", ""))
    ]
    if not causes and webhook["name"].count(".") < 2:
        text = "should be a domain with at least three segments separated by dots"
        causes.append(wrong(f"{path}.name", webhook["name"], text))
    if not webhook.get("admissionReviewVersions"):
        text = "must specify one of v1, v1beta1"
        causes.append(required(f"{path}.admissionReviewVersions", text))
    elif not {"v1", "v1beta1"} & set(webhook["admissionReviewVersions"]):
        text = "must include at least one of v1, v1beta1"
        causes.append(wrong(f"{path}.admissionReviewVersions", webhook["admissionReviewVersions"], text))
    for index, rule in enumerate(webhook.get("rules") or ()):
        causes += _rule_causes(rule, f"{path}.rules[{index}]")
    if webhook["failurePolicy"] not in _FAILURE:
        causes.append(not_one_of(f"{path}.failurePolicy", webhook["failurePolicy"], _FAILURE))
    if "sideEffects" not in webhook:
        causes.append(required(f"{path}.sideEffects", "must specify one of None, NoneOnDryRun"))
    elif webhook["sideEffects"] not in _SIDE_EFFECTS:
        causes.append(not_one_of(f"{path}.sideEffects", webhook["sideEffects"], _SIDE_EFFECTS))
    if not 1 <= webhook["timeoutSeconds"] <= 30:
        text = "the timeout value must be between 1 and 30 seconds"
        causes.append(wrong(f"{path}.timeoutSeconds", webhook["timeoutSeconds"], text))
    return causes + _client_causes(webhook.get("clientConfig") or {}, f"{path}.clientConfig")


def _rule_causes(rule: Json, path: str) -> list[Cause]:
    causes = [
        required(f"{path}.{name}")
        for name in ("operations", "apiGroups", "apiVersions", "resources")
        if not rule.get(name)
    ]
    causes += [
        not_one_of(f"{path}.operations[{index}]", each, sorted(_OPERATIONS))
        for index, each in enumerate(rule.get("operations") or ())
        if each not in _OPERATIONS
    ]
    return causes


def _client_causes(config: Json, path: str) -> list[Cause]:
    if ("url" in config) == ("service" in config):
        return [required(path, "exactly one of url or service is required")]
    if "url" in config and not config["url"].startswith("https://"):
        text = "'https' is the only allowed URL scheme; desired format: https://host[/path]"
        return [wrong(f"{path}.url", config["url"].partition(":")[0], text)]
    return []


class PolicyStrategy(Strategy):
    """ValidatingAdmissionPolicy."""

    unconditional = False
    has_status = True
    counts_generations = True

    def default(self, obj: Json) -> None:
        """Set the defaults."""
        spec = obj.setdefault("spec", {})
        spec.setdefault("failurePolicy", "Fail")
        if constraints := spec.get("matchConstraints"):
            constraints.setdefault("matchPolicy", "Equivalent")
            constraints.setdefault("namespaceSelector", {})
            constraints.setdefault("objectSelector", {})
            for rule in constraints.get("resourceRules") or ():
                rule.setdefault("scope", "*")

    def prepare_create(self, obj: Json) -> None:
        """Start with an empty status."""
        obj["status"] = {}

    def validate(self, obj: Json) -> list[Cause]:
        """Check that there is something to match and something to say."""
        spec = obj["spec"]
        causes: list[Cause] = []
        if not spec.get("matchConstraints"):
            causes.append(required("spec.matchConstraints"))
        if not spec.get("validations") and not spec.get("auditAnnotations"):
            causes.append(required("spec.validations", "validations or auditAnnotations must be specified"))
        if spec["failurePolicy"] not in _FAILURE:
            causes.append(not_one_of("spec.failurePolicy", spec["failurePolicy"], _FAILURE))
        for index, validation in enumerate(spec.get("validations") or ()):
            if not validation.get("expression", "").strip():
                causes.append(required(f"spec.validations[{index}].expression", "expression is not specified"))
        return causes


class PolicyBindingStrategy(Strategy):
    """ValidatingAdmissionPolicyBinding."""

    unconditional = False
    counts_generations = True

    def validate(self, obj: Json) -> list[Cause]:
        """Check that it names a policy and says what a failure does."""
        spec = obj.get("spec") or {}
        causes: list[Cause] = []
        if not spec.get("policyName"):
            causes.append(required("spec.policyName"))
        if not spec.get("validationActions"):
            causes.append(required("spec.validationActions"))
        for index, action in enumerate(spec.get("validationActions") or ()):
            if action not in _ACTIONS:
                causes.append(not_one_of(f"spec.validationActions[{index}]", action, _ACTIONS))
        return causes
