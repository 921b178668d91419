"""What the server works out the quick way on each write is what the long way gives."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone
from random import Random
from typing import Any
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from muster.sandbox.codec.duplicates import duplicates
from muster.sandbox.core.identities import Identities, timestamp
from muster.sandbox.core.registry import Registry, Resource

# ── fields that stand twice ──────────────────────────────────────────────────────────────────────────────────────

texts = st.text('ab:"\\/é\u2028{},[]', max_size=6)
values = st.recursive(
    texts | st.integers() | st.booleans() | st.none(),
    lambda inner: st.lists(inner, max_size=3) | st.lists(st.tuples(texts, inner), max_size=4).map(tuple),
    max_leaves=12,
)
"""JSON in which an object is a tuple of pairs, so that a field can stand twice."""


def written(value: Any, escapes: Random) -> str:
    if isinstance(value, tuple):
        pairs = (f"{written(key, escapes)} :{written(each, escapes)}" for key, each in value)
        return "{" + ", ".join(pairs) + "}"
    if isinstance(value, list):
        return "[" + ",".join(written(each, escapes) for each in value) + "]"
    text = json.dumps(value, ensure_ascii=escapes.random() < 0.5)
    return text.replace(":", "\\u003a") if escapes.random() < 0.3 else text


def standing_twice(value: Any, path: str = "") -> list[str]:
    if isinstance(value, list):
        return [each for index, one in enumerate(value) for each in standing_twice(one, f"{path}[{index}]")]
    found: list[str] = []
    seen = set()
    for key, each in value if isinstance(value, tuple) else ():
        below = f"{path}.{key}" if path else key
        found += standing_twice(each, below) + ([below] if key in seen else [])
        seen.add(key)
    return found


@given(st.lists(st.tuples(texts, values), max_size=4).map(tuple), st.randoms(use_true_random=False))
def test_every_field_that_stands_twice_is_found_and_no_other(value: Any, escapes: Random) -> None:
    body = written(value, escapes).encode()

    assert duplicates(body) == list(dict.fromkeys(standing_twice(value)))


def test_an_escaped_colon_does_not_hide_a_field_that_stands_twice() -> None:
    assert duplicates(rb'{"a": 1, "a": 2, "b": "\u003a"}') == ["a"]


# ── identities and times ─────────────────────────────────────────────────────────────────────────────────────────


@given(st.integers(0, 2**64))
def test_a_uid_is_the_random_uuid_of_its_seed(seed: int) -> None:
    assert Identities(seed).uid() == str(UUID(int=Random(seed).getrandbits(128), version=4))


@given(
    st.datetimes(datetime(1000, 1, 2), datetime(9999, 12, 30)),  # noqa: DTZ001 - the zone is given below
    st.integers(-1439, 1439),
)
def test_a_time_is_written_in_utc_to_the_second(moment: datetime, minutes: int) -> None:
    aware = moment.replace(tzinfo=timezone(timedelta(minutes=minutes)))

    assert timestamp(aware) == aware.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


# ── resources ────────────────────────────────────────────────────────────────────────────────────────────────────


def cart(version: str, *, storage: bool) -> Resource:
    return Resource("shop.example.com", version, "carts", "Cart", "cart", storage=storage, crd="carts.shop.example.com")


def test_what_is_found_by_key_and_kind_follows_every_change() -> None:
    registry, key = Registry(), ("shop.example.com", "carts")
    assert registry.by_key(key) is None
    old, new = cart("v1", storage=True), cart("v2", storage=True)

    registry.add(old)
    assert registry.by_key(key) is registry.by_kind(key[0], "Cart") is registry.by_kind(key[0], "Cart", "v1") is old
    assert registry.by_kind(key[0], "Cart", "v2") is None

    registry.add(cart("v1", storage=False))
    registry.add(new)
    assert registry.by_key(key) is registry.by_kind(key[0], "Cart") is registry.by_kind(key[0], "Cart", "v2") is new

    registry.remove(*key)
    assert registry.by_key(key) is None
    assert registry.by_kind(key[0], "Cart", "v2") is None
