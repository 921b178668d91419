"""Which group a pod belongs to, and what the group asks for, as annotations tell it.

Admission and the podgroup controller both answer these questions, at different times, and must answer alike: what is
reserved at a Job's creation is what its generated PodGroup holds later. Annotations are read from the nearest object
that has them: the pod (or pod template), then its owners upward, then the namespace.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from muster.model import names
from muster.model.amounts import QuantityError, Resources
from muster.model.objects import Meta

_MAX_INT32: Final = 2**31 - 1
_SHOWN: Final = 40


def group_of(meta: Meta) -> str:
    """Give the name of the PodGroup that a pod says it belongs to; empty when it doesn't say."""
    return meta.annotation(*names.GROUP_NAME_KEYS)


def generated_name(uid: str) -> str:
    """Name the PodGroup generated for the owner of this uid; making it twice makes it once."""
    return f"podgroup-{uid}"


def queue_name(*nearest_first: Meta | None) -> str:
    """Give the queue of the nearest object that names one, else the default queue."""
    return _nearest(nearest_first, names.QUEUE_NAME_KEYS)[1] or names.DEFAULT_QUEUE


def min_member(*nearest_first: Meta | None) -> tuple[int, str]:
    """Give the generated group's minMember (1 unless told otherwise), and a warning where the value is illegal."""
    key, text = _nearest(nearest_first, names.GROUP_MIN_MEMBER_KEYS)
    if not key:
        return 1, ""
    # Length first: int() of a megabyte of digits takes minutes.
    if text.isascii() and text.isdigit() and len(text) <= _SHOWN and int(text) <= _MAX_INT32:
        return int(text), ""
    return 1, f"{key} {_shown(text)} counts as 1: write a whole number from 0 to {_MAX_INT32}"


def min_resources(*nearest_first: Meta | None) -> tuple[Resources | None, str]:
    """Give the generated group's minResources, None when nobody says, and a warning where the value is illegal.

    The annotation is a ResourceList in JSON: ``{"cpu": "2", "memory": "4Gi"}``. An illegal one is passed over.
    """
    key, text = _nearest(nearest_first, (names.GROUP_MIN_RESOURCES,))
    if not key:
        return None, ""
    try:
        return Resources.parse(msgspec.json.decode(text, type=dict[str, Any])), ""
    except QuantityError as error:
        return None, f"{key} is ignored: {error}"
    except (msgspec.MsgspecError, RecursionError):
        return None, f'{key} {_shown(text)} is ignored: write it like {{"cpu": "2"}}'


def _nearest(metas: tuple[Meta | None, ...], keys: tuple[str, ...]) -> tuple[str, str]:
    """Find the first of ``keys`` on the first object that has one: (key, value), both empty when none has. Blank counts as absent."""
    for meta in metas:
        if meta is None or not meta.annotations:
            continue
        for key in keys:
            if text := meta.annotations.get(key, "").strip():
                return key, text
    return "", ""


def _shown(text: str) -> str:
    return repr(text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "...")
