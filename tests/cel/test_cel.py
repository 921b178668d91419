"""Expressions: what each gives, or why it gives nothing, is what kube-apiserver 1.36.3 said of the same expression."""

from __future__ import annotations

import json
import re
from itertools import product
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from muster.cel import DYN, INT, STRING, CelError, CompileError, Steps, compile_expression, from_schema, list_of
from muster.cel.linear import MOST_STEPS, LinearPattern, attempts
from muster.cel.numbers import double_text
from muster.cel.regular import PatternError, compile_pattern, translated
from muster.cel.values import kind_of
from muster.model.amounts import Quantity
from muster.sandbox.core.status import quote

RECORDED = json.loads((Path(__file__).parent / "data" / "cel.json").read_text())
SELF = {"self": from_schema(RECORDED["schema"])}
NOT_SHOWN = "nomsg"  # what the recording has where a value can't be written as text


def shown(value):
    """Write a value as the recording does: as ``%s`` of the real server."""
    match kind_of(value):
        case "string":
            return str(value)
        case "null":
            return "null"
        case "bool":
            return "true" if value else "false"
        case "double":
            return double_text(value)
        case "bytes":
            return str(value, "utf-8", "replace")
        case "list":
            return f"[{', '.join(map(_inside, value))}]"
        case "map":
            return f"{{{', '.join(f'{_inside(key)}:{_inside(value[key])}' for key in sorted(value, key=str))}}}"
        case _ if isinstance(value, Quantity):
            raise CelError("a quantity has no text")
    return str(value)


def _inside(value):
    return quote(value) if isinstance(value, str) else shown(value)


def evaluated(source, known=None, **values):
    """Give ("value", text), ("error", text) or ("refused", first line)."""
    try:
        program = compile_expression(source, known if known is not None else dict.fromkeys(values, DYN))
    except CompileError as error:
        return "refused", str(error).split("\n")[0]
    try:
        value = program.evaluate(values)
    except CelError as error:
        return "error", str(error)
    try:
        return "value", shown(value)
    except CelError:
        return "value", NOT_SHOWN


@pytest.mark.parametrize(("source", "kind", "text"), RECORDED["results"], ids=[row[0] for row in RECORDED["results"]])
def test_an_expression_means_what_it_means_to_the_real_server(source, kind, text):
    given_kind, given_text = evaluated(source, SELF, self=RECORDED["value"])
    assert given_kind == kind
    assert NOT_SHOWN in {text, given_text} or given_text == text


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("ip('1.2.3.4')", "function 'ip' is not supported by the Muster sandbox"),
        ("[1].sum()", "function 'sum' is not supported by the Muster sandbox"),
        ("sets.contains([1], [1])", "function 'sets.contains' is not supported by the Muster sandbox"),
        ("x.optMap(v, v)", "function 'optMap' is not supported by the Muster sandbox"),
        ("type(x)", "function 'type' is not supported by the Muster sandbox"),
        ("x == int", "type 'int' as a value is not supported by the Muster sandbox"),
        ("1u", "unsigned integer '1u' is not supported by the Muster sandbox"),
        ("quantity('1').add(1)", "function 'add' is not supported by the Muster sandbox"),
        ("timestamp(1)", "'timestamp' of int is not supported by the Muster sandbox"),
        ("string(duration('1s'))", "'string' of duration is not supported by the Muster sandbox"),
        ("duration('1s') + duration('1s')", "'+' of duration, duration is not supported by the Muster sandbox"),
        ("timestamp('2024-01-01').getHours()", "function 'getHours' is not supported by the Muster sandbox"),
        ("lists.range(3)", "function 'lists.range' is not supported by the Muster sandbox"),
        ("authorizer.group('x')", "undeclared reference to 'authorizer'"),
        ("{true: 1}", "the keys of a map must be of type string or int in the Muster sandbox"),
        ("'a'.matches('(?=x)')", "invalid matches argument"),
        ("(" * 100 + "1" + ")" * 100, "expression recursion limit exceeded"),
        (" + ".join("1" * 200), "expression recursion limit exceeded"),
        ("'\\q'", "Syntax error: invalid escape"),
        ("a b", "Syntax error: mismatched input 'b'"),
        ("[1, 2", "Syntax error: mismatched input '<EOF>' expecting ']'"),
        ("x.map(1, 2)", "argument must be a simple name"),
        ("has(x)", "invalid argument to has() macro"),
        ("1 # 2", "token recognition error at: '#'"),
    ],
)
def test_what_the_sandbox_can_not_do_is_refused_when_it_is_compiled(source, message):
    with pytest.raises(CompileError, match="ERROR: <input>:1:") as refusal:
        compile_expression(source, {"x": DYN})
    assert message in str(refusal.value)


def test_a_message_points_at_the_place_as_the_real_compiler_does():
    with pytest.raises(CompileError) as refusal:
        compile_expression("self.a > 1 &&\n  self.nope", {"self": SELF["self"]})
    assert str(refusal.value) == "ERROR: <input>:2:7: undefined field 'nope'\n |   self.nope\n | ......^"


def test_a_long_row_of_conditions_is_no_deep_expression():
    assert evaluated(" && ".join(["x > 0"] * 500), x=1) == ("value", "true")


def test_macros_over_macros_end_when_they_take_too_many_steps():
    rows = list(range(40))
    source = "rows.all(a, rows.all(b, rows.all(c, a + b + c >= 0)))"
    assert evaluated(source, rows=rows) == ("error", "operation cancelled: actual cost limit exceeded")


def test_the_depth_of_data_can_not_end_the_process():
    deep = []
    for _ in range(5000):
        deep = [deep]
    assert evaluated("x == y", x=deep, y=[deep[0]])[0] == "error"


@given(st.integers(-(2**63), 2**63 - 1), st.integers(-(2**63), 2**63 - 1).filter(bool))
def test_division_cuts_towards_zero_and_its_rest_fits(left, right):
    known = {"a": INT, "b": INT}
    if left == -(2**63) and right == -1:
        with pytest.raises(CelError, match="integer overflow"):
            compile_expression("a / b", known).evaluate({"a": left, "b": right})
        return
    quotient = compile_expression("a / b", known).evaluate({"a": left, "b": right})
    rest = compile_expression("a % b", known).evaluate({"a": left, "b": right})
    assert quotient * right + rest == left
    assert abs(rest) < abs(right)
    assert rest == 0 or (rest < 0) == (left < 0)


@given(st.lists(st.integers(-9, 9)), st.integers(-9, 9))
def test_macros_agree_with_their_definitions(values, limit):
    known = {"v": list_of(INT), "n": INT}

    def value(source):
        return compile_expression(source, known).evaluate({"v": values, "n": limit})

    assert value("v.all(x, x < n)") == all(x < limit for x in values)
    assert value("v.exists(x, x < n)") == any(x < limit for x in values)
    assert value("v.exists_one(x, x == n)") == (values.count(limit) == 1)
    assert value("v.filter(x, x < n).map(x, x * 2)") == [x * 2 for x in values if x < limit]
    assert value("v.all(i, x, v[i] == x)") is True


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.floats(allow_nan=False) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=3),
    max_leaves=6,
)


@given(json_values, json_values)
def test_equality_is_symmetric_and_tells_truth_from_numbers(left, right):
    program = compile_expression("a == b", {"a": DYN, "b": DYN})
    assert program.evaluate({"a": left, "b": right}) == program.evaluate({"a": right, "b": left})
    assert program.evaluate({"a": left, "b": json.loads(json.dumps(left))})
    assert not program.evaluate({"a": True, "b": 1})


@given(st.text(max_size=40))
def test_any_text_compiles_or_is_refused_with_its_place(source):
    message = ""
    try:
        compile_expression(source, {"a": DYN})
    except CompileError as error:
        message = str(error)
    assert not message or message.startswith("ERROR: <input>:")


# ── regular expressions ──────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("pattern", "text", "found"),
    [
        ("^a$", "a\n", False),
        ("(?m)^a$", "a\nb", True),
        (r"a\z", "a", True),
        ("[[:alpha:]]+[[:digit:]]", "ab1", True),
        (r"\d", "٣", False),
        ("(?i)ABC", "abc", True),
        (r"\x{e9}", "é", True),
        ("(?<n>a)(?P<m>b)", "ab", True),
        ("[a&&b]", "&", True),
        ("[]a]", "]", True),
        (r"^\+?([0-9]+|[0-9]+\.[0-9]*|\.[0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]+)?$", "1.5Gi", True),
    ],
)
def test_a_pattern_of_go_finds_what_go_finds(pattern, text, found):
    compiled = compile_pattern(pattern)
    assert compiled.search(text) == found
    assert LinearPattern(translated(pattern)).search(text) == found


@pytest.mark.parametrize(
    "pattern", ["(", "(?=a)", "(?<!a)b", r"(a)\1", r"\pL", "a++", r"\Qa\E", "(?P=n)", "a(?i)b", "[a"]
)
def test_a_pattern_that_can_not_be_translated_is_refused(pattern):
    with pytest.raises(PatternError, match="error parsing regexp: "):
        compile_pattern(pattern)


LEAVES = st.sampled_from(["a", "b", "[ab]", "[^a]", ".", r"\w", r"\b", "^", "$", "c", "(?i:A)"])
PATTERNS = st.recursive(
    LEAVES,
    lambda inner: (
        st.tuples(inner, inner).map("".join)
        | st.tuples(inner, inner).map(lambda pair: f"({pair[0]}|{pair[1]})")
        | st.tuples(inner, st.sampled_from(["*", "+", "?", "*?", "{2}", "{1,2}", "{0,2}?", "{1,}"])).map(
            lambda pair: f"(?:{pair[0]}){pair[1]}"
        )
    ),
    max_leaves=8,
)


@given(PATTERNS, st.text("abcA. \n", max_size=7))
def test_both_engines_find_the_same(pattern, text):
    try:
        python = translated(pattern)
        expected = re.compile(python, re.ASCII).search(text) is not None
    except (PatternError, re.error):
        assume(False)
    assert LinearPattern(python).search(text) == expected


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("(a+)+$", "a" * 60 + "b"),
        ("^(a|a)*$", "a" * 60 + "b"),
        ("^(a?a?a?a?)+$", "a" * 60 + "b"),
        ("^a*a*a*a*a*$", "a" * 300 + "b"),
        ("a*b", "a" * 20_000),
        ("^" + "(a|a)" * 40 + "c", "a" * 41),
        ("^" + "a?" * 40 + "a" * 40 + "c", "a" * 80),
    ],
)
def test_no_pattern_makes_python_try_for_long(pattern, text):
    # Python's engine would take from minutes to years for each of these: that the test ends is its point.
    assert attempts(translated(pattern), len(text)) > MOST_STEPS
    assert not compile_pattern(pattern).search(text)


def test_a_plain_pattern_is_left_to_python():
    assert attempts(translated(r"^gpu-[0-9]+(-mig)?$"), 64) <= MOST_STEPS


@pytest.mark.parametrize(("pattern", "length"), [("(a+)+$", 1_000_000), ("(((a{100}){100}){100})", 10)])
def test_a_match_that_would_take_too_long_has_no_value(pattern, length):
    with pytest.raises(CelError, match="actual cost limit exceeded"):
        LinearPattern(translated(pattern)).search("a" * length + "b")


def test_additions_can_not_take_all_memory():
    doubled = "['" + "x" * 64 + "']" + ".map(x, x + x)" * 30
    with pytest.raises(CelError, match="actual cost limit exceeded"):
        compile_expression(doubled, {}).evaluate({})
    assert compile_expression("('a' + 'b') == 'ab' && [1] + [2] == [1, 2]", {}).evaluate({})


MANY = "[" + ",".join("1" for _ in range(400)) + "]"


@pytest.mark.parametrize(
    "source",
    [
        # A match, a pattern that is compiled anew, a match that is given up, and a body of thousands of parts.
        f"{MANY}.exists(x, '{'a' * 3000}'.matches('(a|aa)+x'))",
        f"{MANY}.exists(x, {MANY}.exists(y, 'a'.matches('{'b' * 200}' + string(x + y))))",
        f"{MANY}.exists(x, '{'a' * 9000}'.matches('^(a|b|(aa|b){{1,60}}){{1,30}}x'))",
        f"{MANY}.exists(x, {MANY}.exists(y, {MANY}.size() == 3))",
    ],
)
def test_what_a_round_of_a_macro_takes_is_counted(source):
    with pytest.raises(CelError, match="actual cost limit exceeded"):
        compile_expression(source, {}).evaluate({})


def test_a_caller_may_give_fewer_steps_and_learns_how_many_are_left():
    program = compile_expression("[1, 2, 3].exists(x, x == 3)", {})
    steps = Steps(3)
    assert program.evaluate({}, steps) is True
    assert steps.left == 0
    with pytest.raises(CelError, match="actual cost limit exceeded"):
        program.evaluate({}, Steps(2))


def test_what_is_made_dynamic_has_fields_and_members():
    assert evaluated("has(dyn(x).a) && dyn(x).a.b == 1 && dyn(x)['a'].b == 1", x={"a": {"b": 1}}) == ("value", "true")
    assert evaluated("has(dyn(x).a)", x={}) == ("value", "false")


@pytest.mark.parametrize(
    ("text", "refusal"),
    [
        ("1.2.3", ""),
        ("2.0.0-rc.1", ""),
        ("1.2.3+b.1", ""),
        ("1.2.3-x+y-z.01", ""),
        ("1.2.3-00a", ""),
        ("", "Version string empty"),
        ("1.2", "No Major.Minor.Patch elements found"),
        ("1.2.", 'strconv.ParseUint: parsing "": invalid syntax'),
        ("1.2.3.4", 'Invalid character(s) found in patch number "3.4"'),
        ("v1.2.3", 'Invalid character(s) found in major number "v1"'),
        ("1.02.3", 'Minor number must not contain leading zeroes "02"'),
        ("1.2.3-", "Prerelease is empty"),
        ("1.2.3-a..b", "Prerelease is empty"),
        ("1.2.3-a_b", 'Invalid character(s) found in prerelease "a_b"'),
        ("1.2.3-01", 'Numeric PreRelease version must not contain leading zeroes "01"'),
        ("1.2.3+", "Build meta data is empty"),
        ("1.2.3+a_b", 'Invalid character(s) found in build meta data "a_b"'),
        ("99999999999999999999.0.0", 'strconv.ParseUint: parsing "99999999999999999999": value out of range'),
    ],
)
def test_a_version_is_read_as_go_reads_it(text, refusal):
    # The texts are those of github.com/blang/semver 4.0.0, which the real server uses.
    assert compile_expression("isSemver(text)", {"text": STRING}).evaluate({"text": text}) == (not refusal)
    if refusal:
        with pytest.raises(CelError) as refused:
            compile_expression("semver(text)", {"text": STRING}).evaluate({"text": text})
        assert str(refused.value) == refusal


def test_versions_are_ordered_by_precedence():
    texts = (
        "1.0.0-alpha 1.0.0-alpha.1 1.0.0-alpha.beta 1.0.0-beta 1.0.0-beta.2 1.0.0-beta.11 1.0.0-rc.1 1.0.0 1.9.0 1.10.0"
    )
    compare = compile_expression("semver(a).compareTo(semver(b))", {"a": STRING, "b": STRING})
    ordered = texts.split()
    for (at, one), (place, other) in product(enumerate(ordered), repeat=2):
        assert compare.evaluate({"a": one, "b": other}) == (at > place) - (at < place)


@pytest.mark.parametrize(
    "text",
    [
        "semver('1.0.0+x') == semver('1.0.0')",
        "semver('1.10.0').isGreaterThan(semver('1.9.0')) && !semver('1.0.0').isLessThan(semver('1.0.0'))",
        "semver('2.3.4-rc.1').major() == 2 && semver('2.3.4').minor() == 3 && semver('2.3.4').patch() == 4",
        "[semver('1.0.0')].exists(v, v == semver('1.0.0')) && dyn(semver('1.0.0')) != dyn('1.0.0')",
    ],
)
def test_versions_in_expressions(text):
    assert compile_expression(text, {}).evaluate({}) is True


def test_a_version_that_is_completed_is_refused():
    with pytest.raises(CompileError, match="not supported by the Muster sandbox"):
        compile_expression("semver('v1.2', true)", {})
