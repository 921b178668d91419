"""The effect of each method on a target: from the request to the answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace as replace_fields

from muster.kube import transport
from muster.kube.transport import Request, Response
from muster.sandbox.codec import decoding, patching, strategic
from muster.sandbox.codec.duplicates import duplicates
from muster.sandbox.codec.fields import shape_of
from muster.sandbox.core.paths import Target
from muster.sandbox.core.registry import Resource
from muster.sandbox.core.request_info import RequestInfo, check_name, delete_options, options_of
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
    info = _request_info(target, request, caller, warnings)
    if target.subresource in subresources.OWN_KINDS:
        return await subresources.answer(writes, info, request)
    match request.method:
        case "POST":
            return await _post(writes, info, request)
        case "PUT":
            return await _put(writes, info, request)
        case "PATCH":
            return await _patch(writes, info, request)
        case "DELETE":
            return await (_delete if target.name else _delete_all)(writes, info, request)
    raise no_such_method()


def _request_info(target: Target, request: Request, caller: Caller, warnings: list[str]) -> RequestInfo:
    options = options_of(_OPTIONS.get(request.method, ""), request.query)
    return RequestInfo(
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


async def _post(writes: Writes, info: RequestInfo, request: Request) -> Response:
    body = decoding.body_object(request.body, request.content_type, info.resource)
    info = _with_repeated(info, request)
    if "list" not in info.resource.verbs:
        return responses.respond(
            201, reviews.answer(info.resource, decoding.check_kind(body, info.resource), info.user)
        )
    created = await create(writes, info, body)
    return _one(writes, info, request, created, 201)


async def _put(writes: Writes, info: RequestInfo, request: Request) -> Response:
    body = decoding.body_object(request.body, request.content_type, info.resource)
    info = _with_repeated(info, request)
    missing = writes.store.get(info.resource.key, info.target.namespace, info.target.name) is None
    if missing and strategy_of(info.resource).creates_on_update and not info.target.subresource:
        check_name(body.get("metadata") or {}, info.target.name)
        return _one(writes, info, request, await create(writes, info, body), 201)
    return _one(writes, info, request, await replace(writes, info, body), 200)


def _with_repeated(info: RequestInfo, request: Request) -> RequestInfo:
    if info.strictness == "Ignore" or request.body.lstrip()[:1] != b"{":
        return info
    repeated = duplicates(request.body)
    return replace_fields(info, repeated=repeated) if repeated else info


async def _patch(writes: Writes, info: RequestInfo, request: Request) -> Response:
    content_type = request.content_type.partition(";")[0].strip()
    if content_type not in _PATCHES:
        raise StatusError(415, "UnsupportedMediaType", "415: Unsupported Media Type", {})
    if content_type == transport.STRATEGIC_PATCH and info.resource.custom:
        raise unsupported_media_type(content_type, (*_PATCHES[:2], _PATCHES[3]))
    decoding.check_size(request.body)
    if content_type == transport.APPLY_PATCH:
        force = lists.flag(request.query, "force")
        applied, created = await apply(writes, info, decoding.applied(request.body), force=force)
        return _one(writes, info, request, applied, 201 if created else 200)
    if request.query.get("force"):
        causes = [not_allowed("force", "may not be specified for non-apply patch")]
        raise bad_options("PatchOptions", causes)
    change = patching.decode(request.body)
    return _one(writes, info, request, await patch(writes, info, change, content_type), 200)


async def _delete(writes: Writes, info: RequestInfo, request: Request) -> Response:
    options = _deletion(request)
    info = _dry(info, options)
    if info.resource.key == ("batch", "jobs") and not {"propagationPolicy", "orphanDependents"} & options.keys():
        info.warnings.append(_ORPHANED_PODS)
    deleted, gone = await writes.delete(info, options)
    if gone and not strategy_of(info.resource).returns_deleted:
        return responses.respond(200, _success(info, deleted), info.warnings)
    return _one(writes, info, request, deleted, 200)


async def _delete_all(writes: Writes, info: RequestInfo, request: Request) -> Response:
    options = _deletion(request)
    info = _dry(info, options)
    page = lists.read_page(writes.store, info.target, request.query)
    for obj in page.items:
        target = Target(info.resource, info.target.namespace, obj["metadata"]["name"])
        one = replace_fields(info, target=target)
        try:
            await writes.delete(one, options)
        except StatusError as error:
            if error.code != 404:  # somebody else was faster, which is what was wanted
                raise
    listing = responses.listing(info.resource, page.items, page.metadata(), request, writes.clock.now())
    return responses.respond(200, listing, info.warnings)


def _deletion(request: Request) -> Json:
    body: Any = {}
    if request.body.strip():
        decoding.check_size(request.body)
        body = decoding.delete_options(request.body)
    return delete_options(request.query, body)


def _dry(info: RequestInfo, options: Json) -> RequestInfo:
    return replace_fields(info, dry_run=bool(options.get("dryRun")), options=options)


def _success(info: RequestInfo, obj: Object) -> Json:
    resource = info.resource
    details: Json = {"name": info.target.name}
    if resource.group:
        details["group"] = resource.group
    details |= {"kind": resource.plural, "uid": obj["metadata"]["uid"]}
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}


def _one(writes: Writes, info: RequestInfo, request: Request, obj: Object, code: int) -> Response:
    return responses.respond(code, responses.single(info.resource, obj, request, writes.clock.now()), info.warnings)


# ── the verbs themselves ─────────────────────────────────────────────────────────────────────────────────────────


async def create(writes: Writes, info: RequestInfo, body: Json) -> Object:
    """Create an object of a decoded body."""
    return await writes.create(info, _taken_in(info, body))


async def replace(writes: Writes, info: RequestInfo, body: Json) -> Object:
    """Replace an object by a decoded body."""
    # Read before anything else, so that warnings come even with a refusal; and anew where the change is tried again.
    read = [_taken_in(info, body)]

    def change(old: Object) -> Json:
        obj = read.pop() if read else _taken_in(info, body)
        check_name(obj["metadata"], info.target.name)
        check_uid(info, obj, old)
        return obj

    return await writes.update(info, change)


async def patch(writes: Writes, info: RequestInfo, change: Any, content_type: str) -> Object:
    """Patch an object with a decoded patch."""
    patched = patcher(info.resource, change, content_type)
    pinned = _pinned(change, content_type)

    def apply_to(old: Object) -> Json:
        if pinned and pinned != old["metadata"]["resourceVersion"]:
            raise conflict(info.resource, info.target.name)
        given = strategic.go_text(change) if content_type == transport.STRATEGIC_PATCH else None
        obj = _patched(info, patched(in_version(info.resource, old)), given)
        check_name(obj["metadata"], info.target.name)
        return obj

    # Where the patch names no version it is tried again, as an API server does: webhooks take time.
    return await writes.update(info, apply_to, pinned=bool(pinned))


async def apply(writes: Writes, info: RequestInfo, body: Any, *, force: bool) -> tuple[Object, bool]:
    """Apply a configuration; return the object as stored, and whether it is new.

    Raises:
        StatusError: 409 with each field that another manager owns, unless ``force``.
    """
    configuration = ssa.read_configuration(info, body)
    info = replace_fields(info, applies=True)
    if writes.store.get(info.resource.key, info.target.namespace, info.target.name) is None:
        metadata = configuration.wanted["metadata"]
        if info.target.subresource:
            raise not_found(info.resource, info.target.name)
        if uid := metadata.get("uid"):
            why = f"uid mismatch: the provided object specified uid {uid}, and no existing object was found"
            raise conflict(info.resource, info.target.name, why)
        metadata.pop("resourceVersion", None)
        return await writes.create(info, ssa.created(info, configuration, writes.clock.now())), True

    def apply_to(old: Object) -> Json:
        return ssa.changed(info, configuration, old, writes.clock.now(), force=force)

    return await writes.update(info, apply_to), False


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


def _patched(info: RequestInfo, obj: Json, given: str | None) -> Json:
    try:
        return _taken_in(info, obj)
    except StatusError as error:
        if error.code != 400:
            raise
        why = error.message.partition(f"cannot be handled as a {info.resource.kind}: ")[2] or error.message
        raise bad_patch(obj if given is None else given, why) from error


def bad_patch(obj: Json | str, why: str) -> StatusError:
    """422 for a patch whose result isn't an object of its kind any more."""
    cause = wrong("patch", obj if isinstance(obj, str) else shown(obj), why)
    return StatusError(422, "Invalid", f' "" is invalid: {cause}', {"causes": [cause.json()]})


def _pinned(change: Any, content_type: str) -> str:
    if content_type == transport.JSON_PATCH or not isinstance(change.get("metadata"), dict):
        return ""
    return str(change["metadata"].get("resourceVersion") or "")


def _taken_in(info: RequestInfo, body: Json) -> Json:
    unknown: list[str] = []
    obj = defaulting.with_defaults(info.resource, body, strategy_of(info.resource), unknown)
    found = decoding.faults(info.repeated, unknown)
    if info.strictness == "Strict":
        decoding.strictly_known(found, info.resource)
    elif info.strictness == "Warn":
        info.warnings.extend(found)
    return obj
