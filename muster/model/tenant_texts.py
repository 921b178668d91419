"""Checks of tenants' texts, made once before they become a name, a sum or a line of the ledger.

Annotations, ``minResources`` and owner references are free text to the API server. Muster makes names of groups, axes of
sums and rows of ledgers of them. Here is what such a text must be: Kubernetes' qualified names for resources, DNS
subdomains for groups and queues, words for the traits of pods, each of bounded length.

Where somebody is there to be told, `faults` says what is wrong and with which key. Where an object is stored already, the
text counts as absent.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Final

from muster.model import labels, names, scopes
from muster.model.text import shown

MOST_RESOURCES: Final = 64
"""Resources in one list, as the CRDs bound them too."""

LONGEST_LIST: Final = 8192
"""Characters of a list of resources in an annotation."""

_LONGEST_SUBDOMAIN: Final = 253
_LONGEST_NAME: Final = 63
_LONGEST_RESOURCE: Final = _LONGEST_SUBDOMAIN + 1 + _LONGEST_NAME
_LONGEST_FACTS: Final = 512
_LONGEST_UID: Final = 128

_SUBDOMAIN: Final = re.compile(labels.SUBDOMAIN)
_NAME: Final = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
_UID: Final = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.:]*[A-Za-z0-9])?")
_DNS: Final = 'write at most 253 lower-case letters, digits, "-" and "."'


class InvalidTextError(ValueError):
    """A text that Muster can't keep. Its message names the key, is bounded, and is for users."""


def is_subdomain(text: str) -> bool:
    """Whether an object can be called so: a DNS subdomain (RFC 1123)."""
    # Length first: regular expressions hold the interpreter for as long as they take, and a cache keeps what it is asked.
    return len(text) <= _LONGEST_SUBDOMAIN and _is_subdomain(text)


@lru_cache(maxsize=8192)
def _is_subdomain(text: str) -> bool:
    return _SUBDOMAIN.fullmatch(text) is not None


def is_resource(text: str) -> bool:
    """Whether a resource can be called so: a qualified name, as ``nvidia.com/gpu``.

    Source: ``IsQualifiedName`` of ``k8s.io/apimachinery/pkg/util/validation``.
    """
    return len(text) <= _LONGEST_RESOURCE and _is_resource(text)


@lru_cache(maxsize=8192)
def _is_resource(text: str) -> bool:
    prefix, slash, name = text.rpartition("/")
    return (is_subdomain(prefix) or not slash) and len(name) <= _LONGEST_NAME and _NAME.fullmatch(name) is not None


def are_resources(texts: Iterable[str]) -> bool:
    """Whether resources can be called by all of these names."""
    for text in texts:  # noqa: SIM110 - a generator costs as much as the checks
        # Not by `is_resource`: every amount of every review comes by here.
        if len(text) > _LONGEST_RESOURCE or not _is_resource(text):
            return False
    return True


def is_uid(text: str) -> bool:
    """Whether it can be the uid of an object; the API server takes any text as that of an owner."""
    return len(text) <= _LONGEST_UID and _UID.fullmatch(text) is not None


def resource_fault(name: str) -> str:
    """Return why a resource can't be called so, and what to do; empty where it can."""
    if is_resource(name):
        return ""
    return f"{shown(name)} can't be the name of a resource: write it like cpu or nvidia.com/gpu"


def traits(text: str) -> str:
    """Return the scope facts that an annotation has; empty where it is none, with which nothing is in a scope."""
    return _traits(text) if text and len(text) <= _LONGEST_FACTS else ""


@lru_cache(maxsize=1024)
def _traits(text: str) -> str:
    return "" if _traits_fault(text) else scopes.parse_facts(text)


def faults(annotations: Mapping[str, str] | None) -> Iterator[tuple[str, str]]:
    """Return which annotations Muster can't read as what they are for: (key, what is wrong and what to do)."""
    if not annotations:
        return
    for key in _CALLED:
        text = annotations.get(key, "").strip()
        if text and not is_subdomain(text):
            yield key, f"{shown(text)} can't be the name of a {_CALLED[key]}: {_DNS}"
    if (text := annotations.get(names.POD_TRAITS, "")) and (fault := _traits_fault(text)):
        yield names.POD_TRAITS, fault


def check(
    place: str, *, subdomains: Iterable[str] = (), resources: Iterable[str] = (), uids: Iterable[str] = ()
) -> None:
    """Check that a ledger can hold these texts.

    Raises:
        InvalidTextError: naming ``place`` and the first that it can't.
    """
    for text in subdomains:
        if not is_subdomain(text):
            raise InvalidTextError(f"{place}: {shown(text)} can't be the name of an object: {_DNS}")
    for text in resources:
        if fault := resource_fault(text):
            raise InvalidTextError(f"{place}: {fault}")
    for text in uids:
        if not is_uid(text):
            raise InvalidTextError(f"{place}: {shown(text)} is not a uid")


def fits_a_row(subdomains: Iterable[str], resources: Iterable[str], uid: str) -> bool:
    """Whether a ledger can hold these texts; `check` says why not."""
    return all(map(is_subdomain, subdomains)) and are_resources(resources) and is_uid(uid)


def _traits_fault(text: str) -> str:
    if len(text) > _LONGEST_FACTS:
        return f"{shown(text)} is too long: write at most {_LONGEST_FACTS} characters"
    words = text.split(",")
    if len(set(words)) < len(words) or sum(word.startswith("class=") for word in words) > 1:
        return f"{shown(text)} says a thing twice: write each trait once, and one class"
    return ""


_CALLED: Final[Mapping[str, str]] = {
    **dict.fromkeys(names.GROUP_NAME_KEYS, "PodGroup"),
    names.JOB_GROUP: "PodGroup",
    names.MEMBER_OF: "PodGroup",
    **dict.fromkeys(names.QUEUE_NAME_KEYS, "queue"),
}

READ: Final = frozenset({*_CALLED, names.POD_TRAITS})
"""The annotations of which `faults` has anything to say."""
