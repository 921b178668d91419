"""Exact amounts."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from muster.model.amounts import (
    NANO,
    NOTHING,
    Quantity,
    QuantityError,
    QuantityFormat,
    Resources,
    amount_text,
    exact_text,
)

# ── reading and writing ──────────────────────────────────────────────────────────────────────────────────────────

# Text, value in units, and the text that the API server would store. From the rules that
# k8s.io/apimachinery/pkg/api/resource documents for the canonical form: no fraction, the largest suffix that keeps an
# integer, the family of suffixes as written.
CANONICAL = [
    ("0", "0", "0"),
    ("0Gi", "0", "0"),
    ("0e3", "0", "0"),
    ("-0", "0", "0"),
    ("+5", "5", "5"),
    ("1", "1", "1"),
    ("1.", "1", "1"),
    (".5", "0.5", "500m"),
    ("0.1", "0.1", "100m"),
    ("100m", "0.1", "100m"),
    ("1.5", "1.5", "1500m"),
    ("1500m", "1.5", "1500m"),
    ("1000m", "1", "1"),
    ("1000", "1000", "1k"),
    ("1500", "1500", "1500"),
    ("100k", "100000", "100k"),
    ("1000k", "1000000", "1M"),
    ("1.5G", "1500000000", "1500M"),
    ("1T", "1e12", "1T"),
    ("1P", "1e15", "1P"),
    ("9E", "9e18", "9E"),
    ("1u", "0.000001", "1u"),
    ("1n", "1e-9", "1n"),
    ("1500n", "0.0000015", "1500n"),
    ("1000n", "0.000001", "1u"),
    ("0.5n", "1e-9", "1n"),
    ("-0.5n", "-1e-9", "-1n"),
    ("1.0000000001", "1.000000001", "1000000001n"),
    ("1Ki", "1024", "1Ki"),
    ("1024Ki", "1048576", "1Mi"),
    ("1.5Gi", "1610612736", "1536Mi"),
    ("0.5Ki", "512", "512"),
    ("0.5Mi", "524288", "512Ki"),
    ("1Ti", "1099511627776", "1Ti"),
    ("1Pi", "1125899906842624", "1Pi"),
    ("7Ei", "8070450532247928832", "7Ei"),
    ("1e3", "1000", "1e3"),
    ("1E3", "1000", "1e3"),
    ("12e6", "12000000", "12e6"),
    ("1e1", "10", "10"),
    ("1e-3", "0.001", "1e-3"),
    ("1.5e3", "1500", "1500"),
    ("1e18", "1e18", "1e18"),
    ("-1", "-1", "-1"),
    ("-1Gi", "-1073741824", "-1Gi"),
    ("9223372036854775807", "9223372036854775807", "9223372036854775807"),
]


@pytest.mark.parametrize(("text", "units", "canonical"), CANONICAL)
def test_a_quantity_is_read_exactly_and_written_in_its_canonical_form(text: str, units: str, canonical: str) -> None:
    quantity = Quantity.parse(text)
    assert quantity.nano == int(Decimal(units) * NANO)
    assert str(quantity) == canonical
    assert Quantity.parse(canonical).nano == quantity.nano


NO_QUANTITIES = (
    """| |1 | 1|one|1,5|0x10|1kk|1K|1ki|1KI|1mi|Gi|.|-|+|e3|1e|1e+|1.2.3|--1|NaN|Inf|-inf|1e1000|١|1_000|1e3Ki"""
)


@pytest.mark.parametrize("text", [*NO_QUANTITIES.split("|"), "1\n", "1" * 65])
def test_what_is_no_quantity_is_named_with_the_way_to_write_one(text: str) -> None:
    with pytest.raises(QuantityError, match=r"is not a quantity; write it like 500m, 2 or 1\.5Gi") as error:
        Quantity.parse(text)
    assert len(str(error.value)) < 130


@pytest.mark.parametrize("value", [None, True, False, [], {}, b"1"])
def test_other_json_is_no_quantity(value: object) -> None:
    with pytest.raises(QuantityError, match="is not a quantity"):
        Quantity.parse(value)


@pytest.mark.parametrize("value", ["9223372036854775808", "8Ei", "10E", "1e30", 2**63, -(2**63)])
def test_more_than_kubernetes_can_count_is_refused(value: object) -> None:
    with pytest.raises(QuantityError, match=r"more than Kubernetes can count: write less than 9\.2e18") as error:
        Quantity.parse(value)
    assert len(str(error.value)) < 130


@pytest.mark.parametrize(
    ("value", "nano"), [(3, 3 * NANO), (0, 0), (-2, -2 * NANO), (0.5, NANO // 2), (1e3, 1000 * NANO)]
)
def test_numbers_of_json_are_quantities(value: float, nano: int) -> None:
    assert Quantity.parse(value).nano == nano


def test_a_number_of_thousands_of_digits_is_refused_without_being_written_out() -> None:
    with pytest.raises(QuantityError, match=r"a number of 16610 bits is more than Kubernetes can count"):
        Quantity.parse(10**5000)


def test_a_number_that_is_not_finite_is_no_quantity() -> None:
    for value in (float("nan"), float("inf")):
        with pytest.raises(QuantityError, match="is not a quantity"):
            Quantity.parse(value)


@given(st.text())
def test_no_text_does_anything_but_parse_or_be_refused(text: str) -> None:
    try:
        quantity = Quantity.parse(text)
    except QuantityError as error:
        assert "\n" not in str(error)  # noqa: PT017 - one of two outcomes, both of which are right
    else:
        assert Quantity.parse(str(quantity)).nano == quantity.nano


SUFFIXES = {
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 1000),
    "": Fraction(1),
    "k": Fraction(1000),
}
SUFFIXES |= {
    "M": Fraction(10**6),
    "Ki": Fraction(2**10),
    "Mi": Fraction(2**20),
    "e2": Fraction(100),
    "E-2": Fraction(1, 100),
}


@given(st.integers(-(10**6), 10**6), st.integers(0, 10**9 - 1), st.integers(0, 9), st.sampled_from(sorted(SUFFIXES)))
def test_the_value_is_that_of_the_decimal_rounded_away_from_zero_at_the_ninth_place(
    whole: int, part: int, places: int, suffix: str
) -> None:
    digits = f"{part:09}"[:places]
    text = f"{whole}.{digits}{suffix}" if places else f"{whole}{suffix}"
    exact = Fraction(Decimal(f"{whole}.{digits or 0}")) * SUFFIXES[suffix] * NANO
    away = -(-exact.numerator // exact.denominator) if exact > 0 else exact.numerator // exact.denominator
    assert Quantity.parse(text).nano == away


@given(st.integers(-(2**63) * NANO + NANO, (2**63 - 1) * NANO), st.sampled_from(QuantityFormat))
def test_every_amount_survives_being_written_and_read(nano: int, form: QuantityFormat) -> None:
    text = str(Quantity(nano, form))
    assert Quantity.parse(text).nano == nano
    # 668000 bytes in binary form have no suffix, so whoever reads them takes them for decimal, as Kubernetes does.
    assert form is QuantityFormat.BINARY or str(Quantity.parse(text)) == text


@given(st.integers(1, 2**63 - 1), st.sampled_from(QuantityFormat))
def test_the_canonical_text_has_no_fraction_and_the_largest_suffix_of_its_family(
    units: int, form: QuantityFormat
) -> None:
    text = str(Quantity(units * NANO, form))
    assert "." not in text
    number = int("".join(each for each in text.partition("e")[0] if each.isdigit()))
    binary = form is QuantityFormat.BINARY and units >= 1024
    assert number % (1024 if binary else 1000) or text.endswith("Ei" if binary else ("E", "e18"))


# ── the way people read it ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("name", "text", "shown"),
    [
        ("cpu", "1500m", "1500m"),
        ("cpu", "9k", "9000"),
        ("pods", "1M", "1000000"),
        ("nvidia.com/gpu", "0.5", "500m"),
        ("memory", "1Gi", "1Gi"),
        ("memory", "1G", "1G"),
        ("memory", "90000Gi", "90000Gi"),
        ("memory", "1500M", "1500M"),
        ("memory", "100m", "100m"),
        ("requests.memory", "1536Mi", "1.5Gi"),
        ("memory", "512Mi", "512Mi"),
        ("memory", "16393244Ki", "15.64Gi"),
        ("memory", "3221225473", "3.01Gi"),
        ("limits.ephemeral-storage", "1Ki", "1Ki"),
        ("hugepages-2Mi", "2Mi", "2Mi"),
        ("nvidia.com/gpu", "1024", "1024"),
    ],
)
def test_amounts_are_written_in_units_that_people_use(name: str, text: str, shown: str) -> None:
    assert amount_text(name, Quantity.parse(text).nano) == shown


@given(st.sampled_from(["cpu", "memory", "pods"]), st.integers(-(2**63) * NANO + NANO, (2**63 - 1) * NANO))
def test_what_people_read_can_be_written_into_a_manifest_and_is_never_too_little(name: str, nano: int) -> None:
    assert Quantity.parse(exact_text(name, nano)).nano == nano
    read = Quantity.parse(amount_text(name, nano)).nano
    assert nano <= read <= nano + abs(nano) // 100 + NANO


def test_a_list_is_written_for_people_in_one_order_and_without_zeros() -> None:
    assert str(Resources.parse({"memory": "4Gi", "cpu": 6, "pods": 0})) == "6 cpu, 4Gi memory"
    assert str(Resources.parse({"pods": 0})) == str(NOTHING) == "nothing"


def test_a_list_is_written_to_the_api_server_in_its_own_form() -> None:
    assert Resources.parse({"cpu": 9000, "memory": "1536Mi"}).quantities() == {"cpu": "9k", "memory": "1536Mi"}


def test_a_list_is_written_as_json_and_read_back() -> None:
    mine = Resources.parse({"cpu": "1500m", "memory": "4Gi", "pods": 0})
    assert mine.quantities() == {"cpu": "1500m", "memory": "4Gi", "pods": "0"}
    assert Resources.parse(mine.quantities()) == mine


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("-1", "cpu: '-1' is negative; an amount is zero or more"),
        ("x", "cpu: 'x' is not a quantity; write it like 500m"),
    ],
)
def test_a_malformed_list_names_the_resource(value: str, text: str) -> None:
    with pytest.raises(QuantityError) as error:
        Resources.parse({"memory": "1Gi", "cpu": value})
    assert str(error.value).startswith(text)


# ── arithmetic ───────────────────────────────────────────────────────────────────────────────────────────────────

lists = st.dictionaries(st.sampled_from(["cpu", "memory", "x/y"]), st.integers(-50, 50), max_size=3).map(Resources)


@given(lists, lists, lists)
def test_sums_obey_the_laws_of_sums(a: Resources, b: Resources, c: Resources) -> None:
    assert a + b == b + a
    assert (a + b) + c == a + (b + c)
    assert a + NOTHING == a
    assert not (a - a)
    assert (a + b) - b == a + Resources(dict.fromkeys(b, 0))


@given(lists, st.integers(0, 5))
def test_a_multiple_is_a_sum(a: Resources, count: int) -> None:
    total = Resources(dict.fromkeys(a, 0))
    for _ in range(count):
        total += a
    assert a * count == total


@given(lists, lists)
def test_maximum_and_minimum_bound_both_name_by_name(a: Resources, b: Resources) -> None:
    most, least = a.maximum(b), a.minimum(b)
    for name in {*a, *b}:
        assert most[name] == max(a[name], b[name])
        both = [each[name] for each in (a, b) if name in each]
        assert least[name] == min(both)


@given(lists, lists)
def test_what_exceeds_a_limit_is_what_has_to_go(a: Resources, limit: Resources) -> None:
    over = a.above(limit)
    assert set(over) <= set(limit)
    assert all(over[name] > 0 for name in over)
    assert not (a - over).above(limit)


@given(lists, lists)
def test_what_is_missing_is_what_has_to_come(a: Resources, available: Resources) -> None:
    missing = a.missing_from(available)
    assert set(missing) <= set(a)
    assert not a.missing_from(available + missing)


@given(lists)
def test_a_list_is_true_where_something_is_not_zero(a: Resources) -> None:
    assert bool(a) == any(a[name] for name in a)
    assert a.positive() == Resources({name: a[name] for name in a if a[name] > 0})
    assert a.only(["cpu", "z"]) == Resources({name: a[name] for name in a if name == "cpu"})


@given(lists, lists)
def test_equal_lists_hash_alike(a: Resources, b: Resources) -> None:
    assume(a == b or a.nano != b.nano)
    assert hash(a) == hash(Resources(dict(reversed(a.nano.items()))))
    if a == b:
        assert hash(a) == hash(b)


def test_a_zero_that_is_listed_is_a_limit() -> None:
    hard = Resources.parse({"cpu": 0})
    assert "cpu" in hard
    assert "memory" not in hard
    assert Resources.parse({"cpu": 1, "memory": 1}).above(hard) == Resources.parse({"cpu": 1})


@pytest.mark.parametrize(
    ("name", "text", "units"), [("cpu", "1.5", 1500), ("cpu", "1n", 1), ("memory", "1Ki", 1024), ("x/y", "100m", 1)]
)
def test_the_schedulers_step_is_rounded_up(name: str, text: str, units: int) -> None:
    assert Resources.parse({name: text}).units(name) == units
