from __future__ import annotations

import sys
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.kube import decoding
from muster.model import kinds
from muster.model.nesting import DEPTH, decode_shallow, shallow

# What an API server stores from anybody: 10,000 levels are its own limit.
DEPTHS = [DEPTH, DEPTH + 1, 990, 1200, 9900]

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text('[]{}",\\/a', max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text('[]{}"\\a', max_size=3), inner, max_size=3),
    max_leaves=30,
)


def deep(levels: int, within: bytes = b"1") -> bytes:
    return b'{"f:a":[' * (levels // 2) + within + b"]}" * (levels // 2)


def pruned(value: Any, level: int = 0) -> Any:
    """The same on values, one level after the other."""
    if isinstance(value, (list, dict)) and level == DEPTH:
        return None
    if isinstance(value, list):
        return [pruned(each, level + 1) for each in value]
    if isinstance(value, dict):
        return {key: pruned(each, level + 1) for key, each in value.items()}
    return value


@given(VALUES, st.integers(0, DEPTH + 10))
def test_what_lies_deeper_is_null_and_all_else_is_kept(value, levels):
    text = b"[" * levels + msgspec.json.encode(value) + b"]" * levels
    assert msgspec.json.decode(shallow(text)) == pruned(msgspec.json.decode(text))


@pytest.mark.parametrize("levels", DEPTHS)
@pytest.mark.parametrize("limit", [400, 1000, 20_000])
def test_a_pod_is_read_however_deep_its_managed_fields_are(levels, limit):
    pod = (
        b'{"metadata":{"name":"p","uid":"u","resourceVersion":"7","managedFields":[{"fieldsV1":'
        + deep(levels)
        + b'}],"labels":{"a":"b"}},"spec":{"nodeName":"n"}}'
    )
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(limit)
    try:
        read = decoding.item(kinds.PODS, pod)
        page = decoding.page(kinds.PODS, b'{"metadata":{"resourceVersion":"9"},"items":[' + pod + b"," + pod + b"]}")
    finally:
        sys.setrecursionlimit(before)
    assert not isinstance(read, decoding.Unreadable)
    assert (read.metadata.labels, read.spec.node_name) == ({"a": "b"}, "n")
    assert (len(page.items), page.unreadable) == (2, ())


@pytest.mark.parametrize("text", [b"[" * 100_000, b'{"a":' * 100_000, b"]" * 100_000, b'["' + b"[" * 100_000, b""])
def test_what_is_no_json_stays_none(text):
    with pytest.raises(msgspec.DecodeError):
        decode_shallow(msgspec.json.decode, text)
