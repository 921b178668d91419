"""Checks of what is registered with admission itself: webhook configurations, policies, bindings.

Beyond `muster.sandbox.strategies.registration`, which checks the fields one by one: here is what needs the compilers
(expressions, selectors), what holds across fields, and what the sandbox can't do and therefore refuses.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final
from urllib.parse import urlsplit

from muster import cel
from muster.sandbox.admission.hooks import MUTATING, VALIDATING
from muster.sandbox.admission.matching import VARIABLES, compiled
from muster.sandbox.admission.policies import BINDINGS, POLICIES, policy_variables
from muster.sandbox.codec.selectors import validate_object
from muster.sandbox.core import syntax
from muster.sandbox.core.status import Cause, StatusError, duplicate, not_one_of, required, unsupported, wrong
from muster.sandbox.core.store import Key, Object

Json = Mapping[str, Any]

_MATCH_POLICIES: Final = ("Equivalent", "Exact")
_REINVOCATION: Final = ("IfNeeded", "Never")
_SCOPES: Final = ("*", "Cluster", "Namespaced")
_REASONS: Final = ("Forbidden", "Invalid", "RequestEntityTooLarge")
_IDENTIFIER: Final = re.compile(r"[_a-zA-Z][_a-zA-Z0-9]*")
_MOST_CONDITIONS: Final = 64


def check_registration(key: Key, obj: Object) -> list[Cause]:
    """Return what is wrong with a webhook configuration, a policy or a binding; nothing for other kinds.

    Raises:
        StatusError: 501, it asks for what the sandbox doesn't do.
    """
    if key in {MUTATING, VALIDATING}:
        return list(_webhooks(obj.get("webhooks") or ()))
    if key == POLICIES:
        return list(_policy(obj["metadata"]["name"], obj["spec"]))
    if key == BINDINGS:
        return list(_binding(obj["spec"]))
    return []


def _webhooks(webhooks: Sequence[Json]) -> Iterator[Cause]:
    seen: set[str] = set()
    for number, webhook in enumerate(webhooks):
        path = f"webhooks[{number}]"
        yield from _webhook(webhook, path)
        name = webhook["name"]
        if name in seen:
            yield duplicate(f"{path}.name", name)
        seen.add(name)


def _webhook(webhook: Json, path: str) -> Iterator[Cause]:
    for number, rule in enumerate(webhook.get("rules") or ()):
        yield from _rule(rule, f"{path}.rules[{number}]")
    yield from _match(webhook, path)
    again = webhook.get("reinvocationPolicy", "Never")
    if again not in _REINVOCATION:
        yield not_one_of(f"{path}.reinvocationPolicy", again, _REINVOCATION)
    config = webhook["clientConfig"]
    if config.get("url"):
        yield from _url(config["url"], f"{path}.clientConfig.url")
    if config.get("service"):
        yield from _service(config["service"], f"{path}.clientConfig.service")
    yield from _conditions(webhook.get("matchConditions") or (), f"{path}.matchConditions")
    versions = webhook["admissionReviewVersions"]
    for number, version in enumerate(versions):
        if version in versions[:number]:
            yield wrong(f"{path}.admissionReviewVersions[{number}]", version, "duplicate version")


def _url(url: str, path: str) -> Iterator[Cause]:
    form = 'should be of the form "https://host[:port]/path"'
    try:
        parts = urlsplit(url)
        host = parts.hostname
        _ = parts.port
    except ValueError as error:
        yield required(path, f"url must be a valid URL: {error}; desired format: https://host[:port]/path")
        return
    if not host:
        yield wrong(path, parts.netloc, f"host must be specified; {form}")
    for name, value in (
        ("user information", parts.username),
        ("fragments", parts.fragment),
        ("query parameters", parts.query),
    ):
        if value:
            yield wrong(
                path,
                value,
                f"{name} are not permitted in the URL"
                if name != "user information"
                else "user information is not permitted in the URL",
            )


def _service(service: Json, path: str) -> Iterator[Cause]:
    for name, text in (("name", "service name is required"), ("namespace", "service namespace is required")):
        if not service.get(name):
            yield required(f"{path}.{name}", text)
    port = service.get("port", 443)
    if not 1 <= port <= 65535:
        yield wrong(f"{path}.port", port, "port is not valid: must be between 1 and 65535, inclusive")
    where = service.get("path")
    if where is not None and not where.startswith("/"):
        yield wrong(f"{path}.path", where, "must start with a '/'")


def _rule(rule: Json, path: str) -> Iterator[Cause]:
    plain = {"apiGroups": "API groups", "apiVersions": "API versions", "operations": "operations"}
    for name, shown in plain.items():
        values = rule.get(name) or ()
        if len(values) > 1 and "*" in values:
            yield wrong(f"{path}.{name}", values, f"if '*' is present, must not specify other {shown}")
    for number, version in enumerate(rule.get("apiVersions") or ()):
        if not version:
            yield required(f"{path}.apiVersions[{number}]")
    yield from _resources(rule.get("resources") or (), f"{path}.resources")
    scope = rule.get("scope", "*")
    if scope not in _SCOPES:
        yield not_one_of(f"{path}.scope", scope, _SCOPES)


def _resources(resources: Sequence[str], path: str) -> Iterator[Cause]:
    all_of: set[str] = set()
    everywhere: set[str] = set()
    for number, each in enumerate(resources):
        name, slash, sub = each.partition("/")
        if not each:
            yield required(f"{path}[{number}]")
        if not slash:
            continue
        if name in all_of:
            yield wrong(f"{path}[{number}]", each, f"if '{name}/*' is present, must not specify {each}")
        if sub in everywhere:
            yield wrong(f"{path}[{number}]", each, f"if '*/{sub}' is present, must not specify {each}")
        if sub == "*":
            all_of.add(name)
        if name == "*":
            everywhere.add(sub)
    if len(resources) > 1 and "*/*" in resources:
        yield wrong(path, resources, "if '*/*' is present, must not specify other resources")
    if "*" in resources and any("/" not in each and each != "*" for each in resources):
        yield wrong(path, resources, "if '*' is present, must not specify other resources without subresources")


def _match(source: Json, path: str) -> Iterator[Cause]:
    policy = source.get("matchPolicy", "Equivalent")
    if policy not in _MATCH_POLICIES:
        yield not_one_of(f"{path}.matchPolicy", policy, _MATCH_POLICIES)
    for name in ("namespaceSelector", "objectSelector"):
        if source.get(name):
            yield from validate_object(source[name], f"{path}.{name}")


def _conditions(conditions: Sequence[Json], path: str) -> Iterator[Cause]:
    if len(conditions) > _MOST_CONDITIONS:
        text = f"Too many: {len(conditions)}: must have at most {_MOST_CONDITIONS} items"
        yield Cause("FieldValueTooMany", path, text)
    seen: set[str] = set()
    for number, condition in enumerate(conditions):
        where = f"{path}[{number}]"
        expression, name = condition.get("expression", "").strip(), condition.get("name", "")
        if not expression:
            yield required(f"{where}.expression")
        else:
            yield from _expression(expression, VARIABLES, f"{where}.expression", "bool")
        if not name:
            yield required(f"{where}.name")
            continue
        yield from (wrong(f"{where}.name", name, text) for text in syntax.qualified_name(name))
        if name in seen:
            yield duplicate(f"{where}.name", name)
        seen.add(name)


def _expression(text: str, known: Mapping[str, cel.Type], path: str, wanted: str) -> Iterator[Cause]:
    try:
        program = compiled(text) if known is VARIABLES else cel.compile_expression(text, known)
    except cel.CompileError as error:
        yield wrong(path, text, f"compilation failed: {error}")
        return
    given = program.type.kind
    if wanted not in {given, "dyn"} and given != "dyn":
        yield wrong(path, text, f"must evaluate to {wanted} but got {given}")


# ── policies ─────────────────────────────────────────────────────────────────────────────────────────────────────


def _policy(name: str, spec: Json) -> Iterator[Cause]:
    if spec.get("paramKind"):
        raise _refused(f"paramKind of ValidatingAdmissionPolicy {name}")
    if spec.get("auditAnnotations"):
        raise _refused(f"auditAnnotations of ValidatingAdmissionPolicy {name} (there is no audit log)")
    yield from _match_resources(spec.get("matchConstraints") or {}, "spec.matchConstraints")
    if not (spec.get("matchConstraints") or {}).get("resourceRules"):
        yield required("spec.matchConstraints.resourceRules")
    yield from _conditions(spec.get("matchConditions") or (), "spec.matchConditions")
    yield from _policy_variables(spec)
    known = policy_variables(spec)
    for number, validation in enumerate(spec.get("validations") or ()):
        yield from _validation(validation, known, f"spec.validations[{number}]")


def _policy_variables(spec: Json) -> Iterator[Cause]:
    variables = spec.get("variables") or ()
    for number, variable in enumerate(variables):
        path = f"spec.variables[{number}]"
        name, expression = variable.get("name", ""), variable.get("expression", "")
        if not name.strip():
            yield required(f"{path}.name", "name is not specified")
        elif not _IDENTIFIER.fullmatch(name) or name in cel.RESERVED:
            yield wrong(f"{path}.name", name, "must be a valid CEL identifier")
        if not expression.strip():
            yield required(f"{path}.expression", "expression is not specified")
        else:
            # A variable may use those before it, so none can be made of itself.
            known = policy_variables({"variables": variables[:number]})
            yield from _expression(expression, known, f"{path}.expression", "dyn")


def _validation(validation: Json, known: Mapping[str, cel.Type], path: str) -> Iterator[Cause]:
    yield from _expression(validation["expression"], known, f"{path}.expression", "bool")
    expression = validation.get("messageExpression", "")
    if expression and not expression.strip():
        yield wrong(f"{path}.messageExpression", expression, "must be non-empty if specified")
    elif expression:
        yield from _expression(expression, known, f"{path}.messageExpression", "string")
    message = validation.get("message", "")
    if message and not message.strip():
        yield wrong(f"{path}.message", message, "must be non-empty if specified")
    elif re.search(r"[\n\r]", message.strip()):
        yield wrong(f"{path}.message", message, "must not contain line breaks")
    reason = validation.get("reason")
    if reason is not None and reason not in _REASONS:
        yield not_one_of(f"{path}.reason", reason, _REASONS)


def _match_resources(resources: Json, path: str) -> Iterator[Cause]:
    yield from _match(resources, path)
    for kind in ("resourceRules", "excludeResourceRules"):
        for number, rule in enumerate(resources.get(kind) or ()):
            where = f"{path}.{kind}[{number}]"
            yield from (
                required(f"{where}.{name}")
                for name in ("operations", "apiGroups", "apiVersions", "resources")
                if not rule.get(name)
            )
            yield from _rule(rule, where)


def _binding(spec: Json) -> Iterator[Cause]:
    if spec.get("paramRef"):
        raise _refused(f"paramRef of the binding of ValidatingAdmissionPolicy {spec.get('policyName')}")
    yield from _match_resources(spec.get("matchResources") or {}, "spec.matchResources")
    actions = spec["validationActions"]
    for number, action in enumerate(actions):
        if action in actions[:number]:
            yield duplicate(f"spec.validationActions[{number}]", action)
    if {"Deny", "Warn"} <= set(actions):
        text = "must not contain both Deny and Warn (repeating the same validation failure information in the API response and headers serves no purpose)"
        yield wrong("spec.validationActions", actions, text)


def _refused(what: str) -> StatusError:
    return unsupported(what)
