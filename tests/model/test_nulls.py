"""Go writes an empty list or map as null where its field isn't left out when empty: each of ours can be read that way."""

from __future__ import annotations

import msgspec
import pytest
from msgspec import inspect

from muster.model import kinds
from muster.model.kinds import Kind

_CONTAINERS = (inspect.ListType, inspect.VarTupleType, inspect.DictType, inspect.SetType, inspect.FrozenSetType)
KINDS = [each for each in vars(kinds).values() if isinstance(each, Kind)]
_NEVER_NULL = {"QuotaLedger", "CustomResourceDefinition"}
"""Only Muster writes the one; of the other a struct of Go's is read as a map."""


def _structs(struct, seen):
    """A struct and all that its fields are made of."""
    if struct in seen:
        return
    seen.add(struct)
    for field in inspect.type_info(struct).fields:
        for kind in _parts(field.type):
            if isinstance(kind, inspect.StructType):
                _structs(kind.cls, seen)


def _parts(kind):
    yield kind
    inner = [*getattr(kind, "types", ()), *(getattr(kind, name, None) for name in ("item_type", "value_type"))]
    for each in filter(None, inner):
        yield from _parts(each)


@pytest.mark.parametrize("kind", [each for each in KINDS if each.name not in _NEVER_NULL], ids=str)
def test_every_list_and_map_may_be_null(kind):
    seen = set()
    _structs(kind.struct, seen)
    refused = [
        f"{struct.__name__}.{field.encode_name}"
        for struct in seen
        for field in inspect.type_info(struct).fields
        if isinstance(field.type, _CONTAINERS)
    ]
    assert refused == []


def test_a_node_without_drivers_is_read_as_its_kubelet_writes_it():
    written = b'{"metadata": {"name": "n", "creationTimestamp": null}, "spec": {"drivers": null}}'
    assert msgspec.json.decode(written, type=kinds.CSINODES.struct).spec.drivers is None
