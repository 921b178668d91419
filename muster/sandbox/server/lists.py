"""Lists: selectors, pages and versions, on a consistent state of the store."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec
from msgspec import Struct

from muster.sandbox.codec import selectors
from muster.sandbox.core.paths import Target
from muster.sandbox.core.status import (
    StatusError,
    bad_options,
    bad_request,
    expired,
    not_allowed,
    not_one_of,
    quote,
)
from muster.sandbox.core.store import ExpiredError, Object, Store, identity

_TOO_OLD: Final = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new list without "
    "the continue parameter, or use the continue token in this response to retrieve the remainder of the results. "
    "Continuing with the provided token results in an inconsistent list - objects that were created, modified, or "
    "deleted between the time the first chunk was returned and now may show up in the list."
)
_MATCHES: Final = {"", "Exact", "NotOlderThan"}
_TRUE: Final = {"1", "true", "True", "TRUE", "t", "T"}
_FALSE: Final = {"", "0", "false", "False", "FALSE", "f", "F"}


def flag(query: Mapping[str, str], name: str) -> bool:
    """Return a boolean parameter; present without a value is true, as kubectl's ``?watch`` is."""
    value = query.get(name)
    return value is not None and (value == "" or value not in _FALSE)


def integer(query: Mapping[str, str], name: str) -> int:
    """Return an integer parameter, 0 when absent.

    Raises:
        StatusError: 400 when it isn't one.
    """
    text = query.get(name, "")
    try:
        return int(text) if text else 0
    except ValueError as error:
        raise bad_request(f"strconv.ParseInt: parsing {quote(text)}: invalid syntax") from error


def version(text: str, wrapped: str = "invalid resource version: ") -> int:
    """Return a resourceVersion as a number.

    Raises:
        StatusError: 400 when it isn't one.
    """
    if text.isascii() and text.isdigit():
        return int(text)
    value = quote(text)
    message = f"resourceVersion: Invalid value: {value}: strconv.ParseUint: parsing {value}: invalid syntax"
    raise bad_request(wrapped + message)


class Page(Struct, frozen=True):
    """A list, or a part of it. ``token`` and ``remaining`` when there is more; ``remaining`` None: unknown."""

    items: list[Object]
    revision: int
    token: str = ""
    remaining: int | None = None

    def metadata(self) -> dict[str, Any]:
        """Return the list's metadata."""
        metadata: dict[str, Any] = {"resourceVersion": str(self.revision)}
        if self.token:
            metadata["continue"] = self.token
        if self.remaining is not None:
            metadata["remainingItemCount"] = self.remaining
        return metadata


def read_page(store: Store, target: Target, query: Mapping[str, str]) -> Page:
    """Read a list as the query says: labelSelector, fieldSelector, limit, continue, resourceVersion(Match).

    Raises:
        StatusError: 400 or 422 for the query, 410 for a version that is forgotten, 504 for one that is to come.
    """
    resource = target.resource
    matches = selectors.matcher(resource, query.get("labelSelector", ""), query.get("fieldSelector", ""))
    limit = max(integer(query, "limit"), 0)
    token = query.get("continue", "")
    if token:
        _check_continued(query)
        revision, start = _read_token(token)
        objects = _continued(store, target, revision, start)
        revision = revision if revision > 0 else store.revision
    else:
        objects, revision = _started(store, target, query)
    if matches is None:
        return _cut(objects, limit, revision)
    return _selected((obj for obj in objects if matches(obj)), limit, revision)


def _started(store: Store, target: Target, query: Mapping[str, str]) -> tuple[list[Object], int]:
    match = query.get("resourceVersionMatch", "")
    text = query.get("resourceVersion", "")
    causes = []
    if "sendInitialEvents" in query:
        causes.append(not_allowed("sendInitialEvents", "sendInitialEvents is forbidden for list"))
    if match and not text:
        causes.append(
            not_allowed("resourceVersionMatch", "resourceVersionMatch is forbidden unless resourceVersion is provided")
        )
    if match not in _MATCHES:
        causes.append(not_one_of("resourceVersionMatch", match, ("Exact", "NotOlderThan", "")))
    if match == "Exact" and text == "0":
        causes.append(
            not_allowed("resourceVersionMatch", 'resourceVersionMatch "exact" is forbidden for resourceVersion "0"')
        )
    if causes:
        raise bad_options("ListOptions", causes)
    wanted = version(text) if text else 0
    if wanted and not match and query.get("limit", "0") != "0":
        match = "Exact"  # a page of a version, from before there was resourceVersionMatch
    if wanted > store.revision:
        raise too_new(wanted, store.revision)
    if match != "Exact":
        return store.list(target.resource.key, target.namespace), store.revision
    try:
        return store.snapshot(target.resource.key, wanted, target.namespace), wanted
    except ExpiredError as error:
        raise expired(f"The resourceVersion for the provided list is too old: {wanted}") from error


def _check_continued(query: Mapping[str, str]) -> None:
    if query.get("resourceVersionMatch"):
        causes = [not_allowed("resourceVersionMatch", "resourceVersionMatch is forbidden when continue is provided")]
        if not query.get("resourceVersion"):
            why = "resourceVersionMatch is forbidden unless resourceVersion is provided"
            causes.insert(0, not_allowed("resourceVersionMatch", why))
        raise bad_options("ListOptions", causes)
    if query.get("resourceVersion", "0") != "0":
        raise bad_request("specifying resource version is not allowed when using continue")


def _continued(store: Store, target: Target, revision: int, start: tuple[str, str]) -> list[Object]:
    key, namespace = target.resource.key, target.namespace
    try:
        objects = store.snapshot(key, revision, namespace) if revision > 0 else store.list(key, namespace)
    except ExpiredError as error:
        raise expired(_TOO_OLD, _token(-1, start)) from error
    return [obj for obj in objects if identity(obj) > start]


def _cut(objects: list[Object], limit: int, revision: int) -> Page:
    if not limit or len(objects) <= limit:
        return Page(objects, revision)
    page = objects[:limit]
    return Page(page, revision, _token(revision, identity(page[-1])), len(objects) - limit)


def _selected(objects: Iterator[Object], limit: int, revision: int) -> Page:
    page: list[Object] = []
    for obj in objects:
        if limit and len(page) == limit:
            # How many more the selector takes isn't counted, as in the real server.
            return Page(page, revision, _token(revision, identity(page[-1])))
        page.append(obj)
    return Page(page, revision)


def too_new(wanted: int, current: int) -> StatusError:
    """504: the client has seen a version that this server hasn't reached (it lost its state, or it is another)."""
    details = {
        "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
        "retryAfterSeconds": 1,
    }
    message = f"Timeout: Too large resource version: {wanted}, current: {current}"
    return StatusError(504, "Timeout", message, details, {"Retry-After": "1"})


class _Token(msgspec.Struct, frozen=True):
    v: str
    rv: int
    start: tuple[str, str]


def _token(revision: int, start: tuple[str, str]) -> str:
    """Return a continue token: the version of the list (-1: whatever is current) and the last name it has shown."""
    return base64.urlsafe_b64encode(msgspec.json.encode(_Token("muster/v1", revision, start))).decode()


def _read_token(text: str) -> tuple[int, tuple[str, str]]:
    try:
        token = msgspec.json.decode(base64.urlsafe_b64decode(text.encode()), type=_Token)
    except (binascii.Error, ValueError, msgspec.MsgspecError) as error:
        raise bad_request(
            f"invalid continue token: continue key is not valid: {' '.join(str(error).split())}"
        ) from error
    return token.rv, token.start
