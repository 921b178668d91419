"""Resource amounts as exact integers.

Kubernetes writes amounts as decimal text with a suffix (``500m``, ``1.5Gi``, ``1e3``). Here an amount is an
``int`` counted in nano-units (10**-9), the finest step that Kubernetes itself keeps, so ``100m`` and ``0.1`` are
the same number, nothing is ever rounded behind a user's back, and sums can't overflow. Only `Resources` does
arithmetic on amounts; everything else compares and prints.

Source: the grammar and the canonical form of ``k8s.io/apimachinery/pkg/api/resource`` (Quantity).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from functools import lru_cache
from typing import Final

from msgspec import Struct

NANO: Final = 10**9
_MAX_UNITS: Final = 2**63 - 1
_TOO_MUCH: Final = "more than Kubernetes can count: write less than 9.2e18"
_MAX_TEXT: Final = 64
_WORDS: Final = {None: "null", True: "true", False: "false"}
"""What JSON and YAML call what Python calls otherwise."""

_READ: Final = 6
"""Digits of a number of bytes that a person reads; of more, the first ones count."""

_QUANTITY: Final = re.compile(
    r"(?P<sign>[+-]?)(?P<whole>[0-9]*)(?:\.(?P<fraction>[0-9]*))?"
    r"(?:(?P<suffix>[KMGTPE]i|[numkMGTPE])|[eE](?P<exponent>[+-]?[0-9]{1,3}))?",
)
_BINARY: Final = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50, "Ei": 2**60}
_DECIMAL: Final = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_DECIMAL_BY_POWER: Final = {power: suffix for suffix, power in _DECIMAL.items()}


class QuantityError(ValueError):
    """A text that isn't a Kubernetes quantity, or one beyond what the API can hold. Its text is for users."""


class QuantityFormat(Enum):
    """How a quantity was written; its canonical text keeps the family of suffixes."""

    DECIMAL = "DecimalSI"
    BINARY = "BinarySI"
    EXPONENT = "DecimalExponent"


class Quantity(Struct, frozen=True):
    """One amount: ``nano`` in units of 10**-9, and the form it was written in."""

    nano: int
    form: QuantityFormat = QuantityFormat.DECIMAL

    @staticmethod
    def parse(value: object) -> Quantity:
        """Read a quantity from JSON: text such as ``500m``, or a number.

        Raises:
            QuantityError: not a quantity, or outside +-(2**63 - 1) units. Finer than 10**-9 is rounded away from
                zero, as the API server does.
        """
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise QuantityError(f"{_shown(value)} is not a quantity; write it like 500m, 2 or 1.5Gi")
        if isinstance(value, int) and abs(value) > _MAX_UNITS:  # before repr(), which refuses 4,300 digits
            raise QuantityError(f"a number of {value.bit_length()} bits is {_TOO_MUCH}")
        return _parse(value if isinstance(value, str) else repr(value))

    def __str__(self) -> str:
        """Return the canonical text, the one that the API server would store."""
        if self.form is QuantityFormat.BINARY and abs(self.nano) >= 1024 * NANO and self.nano % NANO == 0:
            return _binary_text(self.nano // NANO)
        return _decimal_text(self.nano, exponent=self.form is QuantityFormat.EXPONENT)


@lru_cache(maxsize=65536)
def _parse(text: str) -> Quantity:
    # Length first: int() of a megabyte of digits takes minutes.
    match = _QUANTITY.fullmatch(text) if len(text) <= _MAX_TEXT else None
    if match is None or not (match["whole"] or match["fraction"]):
        raise QuantityError(f"{_shown(text)} is not a quantity; write it like 500m, 2 or 1.5Gi")
    fraction = match["fraction"] or ""
    digits = int((match["whole"] or "") + fraction)
    suffix = match["suffix"] or ""
    if suffix in _BINARY:
        form, numerator, power = QuantityFormat.BINARY, digits * _BINARY[suffix], 9
    elif match["exponent"] is not None:
        form, numerator, power = QuantityFormat.EXPONENT, digits, 9 + int(match["exponent"])
    else:
        form, numerator, power = QuantityFormat.DECIMAL, digits, 9 + _DECIMAL[suffix]
    power -= len(fraction)
    nano = numerator * 10**power if power >= 0 else -(-numerator // 10**-power)
    if nano > _MAX_UNITS * NANO:
        raise QuantityError(f"{_shown(text)} is {_TOO_MUCH}")
    return Quantity(-nano if match["sign"] == "-" else nano, form)


def _shown(value: object) -> str:
    text = _WORDS[value] if value is None or isinstance(value, bool) else repr(value)
    return text if len(text) <= _MAX_TEXT else text[: _MAX_TEXT - 3] + "..."


def _binary_text(units: int) -> str:
    suffix = ""
    for step in _BINARY:
        if units % 1024:
            break
        units //= 1024
        suffix = step
    return f"{units}{suffix}"


def _decimal_text(nano: int, *, exponent: bool) -> str:
    if nano == 0:
        return "0"
    power = -9
    while nano % 1000 == 0 and power < _DECIMAL["E"]:
        nano //= 1000
        power += 3
    if exponent:
        return f"{nano}e{power}" if power else str(nano)
    return f"{nano}{_DECIMAL_BY_POWER[power]}"


def _counts_bytes(name: str) -> bool:
    plain = name.removeprefix("requests.").removeprefix("limits.")
    return plain in {"memory", "storage", "ephemeral-storage"} or plain.startswith("hugepages-")


@lru_cache(maxsize=8192)
def _canonical(name: str, nano: int) -> str:
    """Write an amount as the API server does: bytes in the shorter of Gi and G."""
    decimal = str(Quantity(nano))
    if not _counts_bytes(name):
        return decimal
    binary = str(Quantity(nano, QuantityFormat.BINARY))
    return min(binary, decimal, key=len)


def exact_text(name: str, nano: int) -> str:
    """Write an amount of resource ``name`` the way people do, and to the last digit: ``9000``, ``500m``, ``1.5Gi``."""
    if nano % NANO:
        return _canonical(name, nano)
    if not _counts_bytes(name):
        return str(nano // NANO)  # 9k cpu is correct, and nobody writes it
    halves = (f"{nano // NANO / size:g}{suffix}" for suffix, size in _BINARY.items() if _has_half(nano // NANO, size))
    return min([_canonical(name, nano), *halves], key=len)


def amount_text(name: str, nano: int) -> str:
    """Write an amount of resource ``name`` the way people do; of long numbers of bytes only what they read of them.

    Nodes say that they have ``16393244Ki``: that is written ``15.64Gi``, rounded up, so that it is enough where it is asked for.
    """
    text, units = exact_text(name, nano), abs(nano) // NANO
    if not _counts_bytes(name) or nano % NANO or sum(map(str.isdigit, text)) <= _READ:
        return text
    suffix, size = max(((suffix, size) for suffix, size in _BINARY.items() if size <= units), key=lambda each: each[1])
    rounded = -(-units * 100 // size) / 100
    return f"{'-' if nano < 0 else ''}{rounded:g}{suffix}"


def _has_half(units: int, size: int) -> bool:
    return abs(units) > size and units % size != 0 and units * 2 % size == 0


class Resources(Struct, frozen=True):
    """A ResourceList: resource name to amount in nano-units. Immutable; absent means zero.

    Names with an amount of zero are kept: ``{"cpu": 0}`` as a quota's hard limit is a limit.
    """

    nano: Mapping[str, int]

    @staticmethod
    def parse(quantities: Mapping[str, object] | None) -> Resources:
        """Read a ResourceList from JSON.

        Raises:
            QuantityError: naming the resource and the value; also for a negative amount.
        """
        return Resources.total_of((quantities,))

    @staticmethod
    def total_of(lists: Iterable[Mapping[str, object] | None]) -> Resources:
        """Read several ResourceLists, and add them. Raises as `parse` does."""
        nano: dict[str, int] = {}
        for quantities in lists:
            if not quantities:
                continue
            for name, value in quantities.items():
                try:
                    # Text is what API servers send; each amount of each container comes by here.
                    amount = (_parse(value) if type(value) is str else Quantity.parse(value)).nano
                except QuantityError as error:
                    raise QuantityError(f"{name}: {error}") from error
                if amount < 0:
                    raise QuantityError(f"{name}: {_shown(value)} is negative; an amount is zero or more")
                nano[name] = nano.get(name, 0) + amount
        return Resources(nano)

    def __bool__(self) -> bool:
        """Whether any amount differs from zero."""
        return any(self.nano.values())

    def __iter__(self) -> Iterator[str]:
        """Iterate over the resource names."""
        return iter(self.nano)

    def __getitem__(self, name: str) -> int:
        """Return the amount of ``name`` in nano-units; zero when absent."""
        return self.nano.get(name, 0)

    def __contains__(self, name: object) -> bool:
        """Whether ``name`` is listed, be it with zero."""
        return name in self.nano

    def __hash__(self) -> int:
        """Hash by value, so that equal amounts share a class of tasks."""
        return hash(frozenset(self.nano.items()))

    def __add__(self, other: Resources) -> Resources:
        """Add by name."""
        # Every pod and every review adds some ten of these, so it is written out, and copies as C does.
        nano = dict(self.nano)
        for name, amount in other.nano.items():
            nano[name] = nano.get(name, 0) + amount
        return Resources(nano)

    def __sub__(self, other: Resources) -> Resources:
        """Subtract by name. The result may be negative: a debt is information."""
        nano = dict(self.nano)
        for name, amount in other.nano.items():
            nano[name] = nano.get(name, 0) - amount
        return Resources(nano)

    def __mul__(self, count: int) -> Resources:
        """Scale each amount, as for ``count`` equal pods."""
        return Resources({name: amount * count for name, amount in self.nano.items()})

    def maximum(self, other: Resources) -> Resources:
        """Take the larger amount of each name."""
        return Resources({name: max(self[name], other[name]) for name in _union(self.nano, other.nano)})

    @staticmethod
    def total(parts: Iterable[Resources]) -> Resources:
        """Add many, at the cost of one."""
        nano: dict[str, int] = {}
        for part in parts:
            for name, amount in part.nano.items():
                nano[name] = nano.get(name, 0) + amount
        return Resources(nano)

    def minimum(self, other: Resources) -> Resources:
        """Take the smaller amount of the names that both list, and the only amount of the others."""
        return Resources(
            {
                name: min(amount for amount in (self.nano.get(name), other.nano.get(name)) if amount is not None)
                for name in _union(self.nano, other.nano)
            },
        )

    @property
    def is_negative(self) -> bool:
        """Whether any amount is below zero."""
        return bool(self.nano) and min(self.nano.values()) < 0

    def positive(self) -> Resources:
        """Keep what is above zero."""
        if min(self.nano.values(), default=1) > 0:
            return self
        return Resources({name: amount for name, amount in self.nano.items() if amount > 0})

    def only(self, names: Iterable[str]) -> Resources:
        """Keep the amounts of ``names``."""
        wanted = frozenset(names)
        return Resources({name: amount for name, amount in self.nano.items() if name in wanted})

    def above(self, limit: Resources) -> Resources:
        """What exceeds ``limit``, counting only what it lists: a quota that doesn't list a name doesn't limit it."""
        return Resources({name: self[name] - most for name, most in limit.nano.items() if self[name] > most})

    def missing_from(self, available: Resources) -> Resources:
        """What ``available`` lacks to hold this, where a name it doesn't list is not there: a node's view."""
        return Resources(
            {name: amount - available[name] for name, amount in self.nano.items() if amount > available[name]}
        )

    def units(self, name: str) -> int:
        """Return the amount in the scheduler's step, rounded up: thousandths for cpu, whole units else (bytes, devices)."""
        step = 10**6 if name == "cpu" else NANO
        return -(-self[name] // step)

    def quantities(self) -> dict[str, str]:
        """Write it as JSON does, each amount as canonical text."""
        return {name: _canonical(name, amount) for name, amount in self.nano.items()}

    def __str__(self) -> str:
        """Write it for people: ``6 cpu, 4Gi memory``; ``nothing`` when empty."""
        parts = [_counted(name, amount) for name, amount in sorted(self.nano.items()) if amount]
        return ", ".join(parts) or "nothing"


def _counted(name: str, nano: int) -> str:
    return "1 pod" if name == "pods" and nano == NANO else f"{amount_text(name, nano)} {name}"


def _union(first: Mapping[str, int], second: Mapping[str, int]) -> list[str]:
    # Ordered, not a set: texts made of it must not depend on the hash seed.
    return [*first, *(name for name in second if name not in first)]


NOTHING: Final = Resources({})
