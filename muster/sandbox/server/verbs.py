"""What each method does to a target: from the request to the answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace as replace_fields

from muster.kube import transport
from muster.kube.transport import Request, Response
from muster.sandbox.codec import decoding, patching, strategic, syntaxerrors
from muster.sandbox.codec.fields import shape_of
from muster.sandbox.core.paths import Target
from muster.sandbox.core.registry import Resource
from muster.sandbox.core.request_info import Call, check_name, delete_options, options_of
from muster.sandbox.core.status import (
    StatusError,
    bad_options,
    bad_request,
    conflict,
    no_such_method,
    not_allowed,
    not_found,
    shown,
    unsupported_media_type,
    wrong,
)
from muster.sandbox.core.store import Object
from muster.sandbox.core.users import User
from muster.sandbox.core.versions import in_version
from muster.sandbox.fieldmanager import apply as ssa
from muster.sandbox.server import lists, responses, reviews, subresources
from muster.sandbox.server.writes import Writes, check_uid
from muster.sandbox.strategies import defaulting
from muster.sandbox.strategies.table import strategy_of

Json = dict[str, Any]

_OPTIONS: Final = {"POST": "CreateOptions", "PUT": "UpdateOptions", "PATCH": "PatchOptions", "DELETE": "DeleteOptions"}
_ORPHANED_PODS: Final = (
    "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove them or "
    "set propagationPolicy=Orphan to suppress this warning"
)
_PATCHES: Final = (transport.JSON_PATCH, transport.MERGE_PATCH, transport.STRATEGIC_PATCH, transport.APPLY_PATCH)


class Caller(Struct, frozen=True):
    """Who asks, and with what program (its User-Agent, or empty)."""

    user: User
    agent: str

    @property
    def manager(self) -> str:
        """The field manager of who doesn't name one."""
        return self.agent.partition("/")[0] or self.user.name.rpartition(":")[2]


async def answer(writes: Writes, target: Target, request: Request, caller: Caller, warnings: list[str]) -> Response:
    """Answer a request about a resource.

    Raises:
        StatusError: the answer is no.
    """
    if request.method == "GET":
        return _read(writes, target, request, warnings)
    call = _call(target, request, caller, warnings)
    if target.subresource in subresources.OWN_KINDS:
        return await subresources.answer(writes, call, request)
    match request.method:
        case "POST":
            return await _post(writes, call, request)
        case "PUT":
            return await _put(writes, call, request)
        case "PATCH":
            return await _patch(writes, call, request)
        case "DELETE":
            return await (_delete if target.name else _delete_all)(writes, call, request)
    raise no_such_method()


def _call(target: Target, request: Request, caller: Caller, warnings: list[str]) -> Call:
    options = options_of(_OPTIONS.get(request.method, ""), request.query)
    return Call(
        target,
        caller.user,
        manager=request.query.get("fieldManager") or caller.manager,
        strictness=options.get("fieldValidation") or "Warn",
        dry_run=bool(options.get("dryRun")),
        options=options,
        warnings=warnings,
    )


# ── reading ──────────────────────────────────────────────────────────────────────────────────────────────────────


def _read(writes: Writes, target: Target, request: Request, warnings: list[str]) -> Response:
    if target.subresource in subresources.OWN_KINDS:
        return subresources.read(writes, target, request)
    now = writes.clock.now()
    if not target.name:
        page = lists.read_page(writes.store, target, request.query)
        return responses.respond(
            200, responses.listing(target.resource, page.items, page.metadata(), request, now), warnings
        )
    found = writes.store.get(target.resource.key, target.namespace, target.name)
    _check_version(writes, request)
    if found is None:
        raise not_found(target.resource, target.name)
    return responses.respond(200, responses.single(target.resource, found, request, now), warnings)


def _check_version(writes: Writes, request: Request) -> None:
    text = request.query.get("resourceVersion", "")
    try:
        wanted = lists.version(text, "") if text else 0
    except StatusError as error:
        raise StatusError(500, "", error.message) from error
    if wanted > writes.store.revision:
        raise lists.too_new(wanted, writes.store.revision)


# ── writing ──────────────────────────────────────────────────────────────────────────────────────────────────────


async def _post(writes: Writes, call: Call, request: Request) -> Response:
    body = decoding.body_object(request.body, request.content_type, call.resource)
    call = _with_repeated(call, request)
    if "list" not in call.resource.verbs:
        return responses.respond(
            201, reviews.answer(call.resource, decoding.check_kind(body, call.resource), call.user)
        )
    created = await create(writes, call, body)
    return _one(writes, call, request, created, 201)


async def _put(writes: Writes, call: Call, request: Request) -> Response:
    body = decoding.body_object(request.body, request.content_type, call.resource)
    call = _with_repeated(call, request)
    missing = writes.store.get(call.resource.key, call.target.namespace, call.target.name) is None
    if missing and strategy_of(call.resource).creates_on_update and not call.target.subresource:
        check_name(body.get("metadata") or {}, call.target.name)
        return _one(writes, call, request, await create(writes, call, body), 201)
    return _one(writes, call, request, await replace(writes, call, body), 200)


def _with_repeated(call: Call, request: Request) -> Call:
    if call.strictness == "Ignore" or request.body.lstrip()[:1] != b"{":
        return call
    repeated = syntaxerrors.duplicates(request.body)
    return replace_fields(call, repeated=repeated) if repeated else call


async def _patch(writes: Writes, call: Call, request: Request) -> Response:
    content_type = request.content_type.partition(";")[0].strip()
    if content_type not in _PATCHES:
        raise StatusError(415, "UnsupportedMediaType", "415: Unsupported Media Type", {})
    if content_type == transport.STRATEGIC_PATCH and call.resource.custom:
        raise unsupported_media_type(content_type, (*_PATCHES[:2], _PATCHES[3]))
    decoding.check_size(request.body)
    if content_type == transport.APPLY_PATCH:
        force = lists.flag(request.query, "force")
        applied, created = await apply(writes, call, decoding.json_or_yaml(request.body), force=force)
        return _one(writes, call, request, applied, 201 if created else 200)
    if request.query.get("force"):
        causes = [not_allowed("force", "may not be specified for non-apply patch")]
        raise bad_options("PatchOptions", causes)
    change = patching.decode(request.body)
    return _one(writes, call, request, await patch(writes, call, change, content_type), 200)


async def _delete(writes: Writes, call: Call, request: Request) -> Response:
    options = _deletion(request)
    call = _dry(call, options)
    if call.resource.key == ("batch", "jobs") and not {"propagationPolicy", "orphanDependents"} & options.keys():
        call.warnings.append(_ORPHANED_PODS)
    deleted, gone = await writes.delete(call, options)
    if gone and not strategy_of(call.resource).returns_deleted:
        return responses.respond(200, _success(call, deleted), call.warnings)
    return _one(writes, call, request, deleted, 200)


async def _delete_all(writes: Writes, call: Call, request: Request) -> Response:
    options = _deletion(request)
    call = _dry(call, options)
    page = lists.read_page(writes.store, call.target, request.query)
    for obj in page.items:
        target = Target(call.resource, call.target.namespace, obj["metadata"]["name"])
        one = replace_fields(call, target=target)
        try:
            await writes.delete(one, options)
        except StatusError as error:
            if error.code != 404:  # somebody else was faster, which is what was wanted
                raise
    listing = responses.listing(call.resource, page.items, page.metadata(), request, writes.clock.now())
    return responses.respond(200, listing, call.warnings)


def _deletion(request: Request) -> Json:
    body: Any = {}
    if request.body.strip():
        decoding.check_size(request.body)
        body = decoding.delete_options(request.body)
    return delete_options(request.query, body)


def _dry(call: Call, options: Json) -> Call:
    return replace_fields(call, dry_run=bool(options.get("dryRun")), options=options)


def _success(call: Call, obj: Object) -> Json:
    resource = call.resource
    details: Json = {"name": call.target.name}
    if resource.group:
        details["group"] = resource.group
    details |= {"kind": resource.plural, "uid": obj["metadata"]["uid"]}
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}


def _one(writes: Writes, call: Call, request: Request, obj: Object, code: int) -> Response:
    return responses.respond(code, responses.single(call.resource, obj, request, writes.clock.now()), call.warnings)


# ── the verbs themselves ─────────────────────────────────────────────────────────────────────────────────────────


async def create(writes: Writes, call: Call, body: Json) -> Object:
    """Create an object of a decoded body."""
    return await writes.create(call, _taken_in(call, body))


async def replace(writes: Writes, call: Call, body: Json) -> Object:
    """Replace an object by a decoded body."""
    # Read before anything else, so that warnings come even with a refusal; and anew where the change is tried again.
    read = [_taken_in(call, body)]

    def change(old: Object) -> Json:
        obj = read.pop() if read else _taken_in(call, body)
        check_name(obj["metadata"], call.target.name)
        check_uid(call, obj, old)
        return obj

    return await writes.update(call, change)


async def patch(writes: Writes, call: Call, change: Any, content_type: str) -> Object:
    """Patch an object with a decoded patch."""
    patched = patcher(call.resource, change, content_type)
    pinned = _pinned(change, content_type)

    def apply_to(old: Object) -> Json:
        if pinned and pinned != old["metadata"]["resourceVersion"]:
            raise conflict(call.resource, call.target.name)
        given = strategic.go_text(change) if content_type == transport.STRATEGIC_PATCH else None
        obj = _patched(call, patched(in_version(call.resource, old)), given)
        check_name(obj["metadata"], call.target.name)
        return obj

    return await writes.update(call, apply_to)


async def apply(writes: Writes, call: Call, body: Any, *, force: bool) -> tuple[Object, bool]:
    """Apply a configuration; give the object as stored, and whether it is new.

    Raises:
        StatusError: 409 with each field that another manager owns, unless ``force``.
    """
    configuration = ssa.read_configuration(call, body)
    call = replace_fields(call, applies=True)
    if writes.store.get(call.resource.key, call.target.namespace, call.target.name) is None:
        metadata = configuration.wanted["metadata"]
        if call.target.subresource:
            raise not_found(call.resource, call.target.name)
        if uid := metadata.get("uid"):
            why = f"uid mismatch: the provided object specified uid {uid}, and no existing object was found"
            raise conflict(call.resource, call.target.name, why)
        metadata.pop("resourceVersion", None)
        return await writes.create(call, ssa.created(call, configuration, writes.clock.now())), True

    def apply_to(old: Object) -> Json:
        return ssa.changed(call, configuration, old, writes.clock.now(), force=force)

    return await writes.update(call, apply_to), False


def patcher(resource: Resource, change: Any, content_type: str) -> Callable[[Json], Json]:
    """Return the function that applies a patch of a content type.

    Raises:
        StatusError: 400 when the patch isn't of its form.
    """
    if content_type == transport.JSON_PATCH:
        return lambda obj: patching.json_patch(obj, change)
    if not isinstance(change, dict):
        if change is None:
            raise bad_request("Invalid JSON Patch")
        given = decoding.json_name(change)
        raise bad_request(
            f"error decoding patch: json: cannot unmarshal {given} into Go value of type map[string]interface {{}}"
        )
    if content_type == transport.STRATEGIC_PATCH:
        shape = shape_of(resource)
        return lambda obj: strategic.strategic_merge(shape, obj, change)

    def merge(obj: Json) -> Json:
        merged: Json = patching.merge_patch(obj, change)
        return merged

    return merge


def _patched(call: Call, obj: Json, given: str | None) -> Json:
    try:
        return _taken_in(call, obj)
    except StatusError as error:
        if error.code != 400:
            raise
        why = error.message.partition(f"cannot be handled as a {call.resource.kind}: ")[2] or error.message
        raise bad_patch(obj if given is None else given, why) from error


def bad_patch(obj: Json | str, why: str) -> StatusError:
    """422 for a patch whose result isn't an object of its kind any more."""
    cause = wrong("patch", obj if isinstance(obj, str) else shown(obj), why)
    return StatusError(422, "Invalid", f' "" is invalid: {cause}', {"causes": [cause.json()]})


def _pinned(change: Any, content_type: str) -> str:
    if content_type == transport.JSON_PATCH or not isinstance(change.get("metadata"), dict):
        return ""
    return str(change["metadata"].get("resourceVersion") or "")


def _taken_in(call: Call, body: Json) -> Json:
    unknown: list[str] = []
    obj = defaulting.with_defaults(call.resource, body, strategy_of(call.resource), unknown)
    found = decoding.faults(call.repeated, unknown)
    if call.strictness == "Strict":
        decoding.strictly_known(found, call.resource)
    elif call.strictness == "Warn":
        call.warnings.extend(found)
    return obj
