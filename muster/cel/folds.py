"""The parts of a compiled expression that aren't functions: selection, logic, macros."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from msgspec import Struct

from muster.cel.values import NUMBERS, CelError, Optional, kind_of

Frame = dict[str, Any]
Run = Callable[[Frame], Any]
Convert = Callable[[Any], Any] | None

STEPS: Final = "@steps"
"""Where a frame keeps the `Steps` that are left, shared by inner frames."""

LIMIT: Final = 50_000
"""About half a second. The real server counts cost, and allows an expression 0.1 to 1 s of it."""

_NO_OVERLOAD: Final = "no such overload"
_PARTS_PER_STEP: Final = 50


class Steps(Struct):
    """How many steps an evaluation may yet take; each is about ten microseconds."""

    left: int = LIMIT


def charge(frame: Frame, steps: int) -> None:
    """Take steps from those that an evaluation has left.

    Raises:
        CelError: it has none left.
    """
    left = frame[STEPS]
    left.left -= steps
    if left.left < 0:
        raise CelError("operation cancelled: actual cost limit exceeded")


def price(parts: int) -> int:
    """Return how many steps one round of a macro is whose body has so many parts."""
    return 1 + parts // _PARTS_PER_STEP


def present(run: Run, name: str, *, typed: bool) -> Run:
    """``has(operand.name)``. A field of a ``typed`` object that is null counts as absent."""

    def test(frame: Frame) -> bool:
        holder = run(frame)
        if isinstance(holder, Optional):
            holder = holder.value if holder.present else {}
        if kind_of(holder) != "map":
            raise CelError(_NO_OVERLOAD)
        return name in holder and not (typed and holder[name] is None)

    return test


def field(run: Run, name: str, convert: Convert) -> Run:
    """``operand.name``."""

    def get(frame: Frame) -> Any:
        holder = run(frame)
        if type(holder) is Optional:
            return _field_of(holder, name, convert)
        if type(holder) is not dict and kind_of(holder) != "map":
            raise CelError(_NO_OVERLOAD)
        value = _key(holder, name)
        return value if convert is None else convert(value)

    return get


def _key(holder: Any, name: Any) -> Any:
    try:
        return holder[name]
    except KeyError:
        raise CelError(f"no such key: {name}") from None


def maybe(run: Run, name: str, convert: Convert, *, typed: bool) -> Run:
    """``operand.?name``; see `present` for ``typed``."""
    return lambda frame: _field_of(run(frame), name, convert, typed=typed)


def _field_of(holder: Any, name: str, convert: Convert, *, typed: bool = False) -> Optional:
    if isinstance(holder, Optional):
        if not holder.present:
            return holder
        holder = holder.value
    if kind_of(holder) != "map":
        raise CelError(_NO_OVERLOAD)
    if name not in holder or (typed and holder[name] is None):
        return Optional()
    return Optional(True, convert(holder[name]) if convert else holder[name])


def element(run: Run, key_run: Run) -> Run:
    """``operand[key]``."""

    def get(frame: Frame) -> Any:
        holder, key = run(frame), key_run(frame)
        if type(holder) is Optional:
            return _maybe_element(holder, key)
        if kind_of(holder) == "map":
            return _key(holder, key) if kind_of(key) != "bool" else _missing(key)
        return holder[_position(holder, key)]

    return get


def maybe_element(run: Run, key_run: Run) -> Run:
    """``operand[?key]``."""
    return lambda frame: _maybe_element(run(frame), key_run(frame))


def _maybe_element(holder: Any, key: Any) -> Optional:
    if isinstance(holder, Optional):
        if not holder.present:
            return holder
        holder = holder.value
    if kind_of(holder) == "map":
        return Optional(True, holder[key]) if key in holder else Optional()
    try:
        return Optional(True, holder[_position(holder, key)])
    except CelError as error:
        if str(error).startswith("index out of bounds"):
            return Optional()
        raise


def _missing(key: Any) -> Any:
    raise CelError(f"no such key: {key}")


def _position(holder: Any, key: Any) -> int:
    if kind_of(holder) != "list" or kind_of(key) not in NUMBERS or key != int(key):
        raise CelError(_NO_OVERLOAD)
    if not 0 <= key < len(holder):
        raise CelError(f"index out of bounds: {int(key)}")
    return int(key)


def logic(runs: tuple[Run, ...], *, stop: bool) -> Run:
    """``||`` (stops at true) and ``&&`` (at false): a side that decides makes an error on another side irrelevant."""

    def decide(frame: Frame) -> bool:
        failure: CelError | None = None
        for run in runs:
            try:
                value = run(frame)
            except CelError as error:
                failure = failure or error
                continue
            if type(value) is not bool:
                failure = failure or CelError(_NO_OVERLOAD)
            elif value == stop:
                return stop
        if failure is not None:
            raise failure
        return not stop

    return decide


def conditional(condition: Run, then: Run, other: Run) -> Run:
    """``condition ? then : other``."""

    def choose(frame: Frame) -> Any:
        value = condition(frame)
        if type(value) is not bool:
            raise CelError(_NO_OVERLOAD)
        return then(frame) if value else other(frame)

    return choose


def _frames(run: Run, variables: tuple[str, ...], frame: Frame, price: int) -> Iterator[tuple[Any, Frame]]:
    operand = run(frame)
    kind = kind_of(operand)
    if kind not in {"list", "map"}:
        raise CelError(_NO_OVERLOAD)
    inner = dict(frame)
    for number, each in enumerate(operand):
        charge(frame, price)
        if len(variables) == 1:
            inner[variables[0]] = each
        else:
            inner[variables[0]], inner[variables[1]] = (number, each) if kind == "list" else (each, operand[each])
        yield each, inner


def quantifier(macro: str, run: Run, variables: tuple[str, ...], body: Run, price: int) -> Run:
    """``all``, ``exists`` and ``exists_one``; ``price``: steps of a round, here and below."""
    if macro == "exists_one":
        return lambda frame: sum(_true(body(inner)) for _, inner in _frames(run, variables, frame, price)) == 1
    stop = macro == "exists"

    def decide(frame: Frame) -> bool:
        failure: CelError | None = None
        for _, inner in _frames(run, variables, frame, price):
            try:
                value = _true(body(inner))
            except CelError as error:
                failure = failure or error
                continue
            if value is stop:
                return stop
        if failure is not None:
            raise failure
        return not stop

    return decide


def _true(value: Any) -> bool:
    if type(value) is not bool:
        raise CelError(_NO_OVERLOAD)
    return value


def transform(run: Run, variables: tuple[str, ...], body: Run, where: Run | None, price: int) -> Run:
    """``map``, with or without a condition."""
    return lambda frame: [
        body(inner) for _, inner in _frames(run, variables, frame, price) if where is None or _true(where(inner))
    ]


def keep(run: Run, variables: tuple[str, ...], body: Run, price: int) -> Run:
    """``filter``."""
    return lambda frame: [each for each, inner in _frames(run, variables, frame, price) if _true(body(inner))]
