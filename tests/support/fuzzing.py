"""Decoders of what tenants write, under a fuzzer that is led by coverage: python fuzzing.py TARGET [libFuzzer's options].

A process of its own for each target: the fuzzer takes the process over, and its status tells whether it found something.
A decoder may refuse by the error that it documents, and by no other; what it takes must be the same when written and read
again.
"""

from __future__ import annotations

import contextlib
import math
import sys
from collections.abc import Callable, Mapping

import atheris

with atheris.instrument_imports(
    include=["muster.model", "muster.kube.decoding", "muster.ledger.rows", "webhooks.review"]
):
    from muster.kube import decoding, errors
    from muster.kube.reflector import WatchEvent
    from muster.ledger.rows import MalformedLedgerError, Row
    from muster.model import durations, kinds
    from muster.model.amounts import Quantity, QuantityError, Resources
    from webhooks import review

_WATCHED = (kinds.PODS, kinds.PODGROUPS, kinds.JOBS, kinds.RESOURCEQUOTAS, kinds.NODES, kinds.QUOTALEDGERS)


def row(data: bytes) -> None:
    with contextlib.suppress(MalformedLedgerError):
        read = Row.parse(_text(data))
        assert Row.parse(str(read)) == read, str(read)


def duration(data: bytes) -> None:
    with contextlib.suppress(ValueError):
        read = durations.seconds(_text(data))
        assert read >= 0, read
        assert not math.isnan(read)


def quantity(data: bytes) -> None:
    with contextlib.suppress(QuantityError):
        read = Quantity.parse(_text(data))
        if read.nano > 0:
            amounts = Resources.parse({"cpu": _text(data)})
            assert Resources.parse(amounts.quantities()) == amounts, amounts


def admission_review(data: bytes) -> None:
    with contextlib.suppress(review.ReviewError):
        review.subject(review.parse(data))


def watch_line(data: bytes) -> None:
    with contextlib.suppress(errors.ServerError):
        event = decoding.strictly(WatchEvent, data)
        for kind in _WATCHED:
            with contextlib.suppress(errors.ServerError):
                decoding.item(kind, event.object)


def wrong(data: bytes) -> None:
    """The control: a decoder that fails on something."""
    assert not data.startswith(b"w")


TARGETS: Mapping[str, Callable[[bytes], None]] = {
    each.__name__: each for each in (row, duration, quantity, admission_review, watch_line, wrong)
}


def _text(data: bytes) -> str:
    return data.decode(errors="surrogateescape") if len(data) % 2 else data.decode(errors="replace")


if __name__ == "__main__":
    atheris.Setup([sys.argv[0], *sys.argv[2:]], TARGETS[sys.argv[1]])
    atheris.Fuzz()
