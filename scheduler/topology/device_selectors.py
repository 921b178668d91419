"""The expressions that choose devices: compiled once each, evaluated once for each device."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Container, Iterable, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from muster import cel
from muster.cel.folds import LIMIT
from scheduler.model.devices import Device
from scheduler.topology.device_budget import STEP, DeviceAccount

LONGEST: Final = 10 * 1024
"""Characters of an expression, by the API."""
_SHOWN: Final = 160
"""Characters of an expression, and of what is wrong with it, that are repeated."""
_MOST_ANSWERS: Final = 500_000
"""Answers that are remembered: 65 MB of memory."""
_MOST_COMPILED: Final = 256 * 1024
"""Characters of the expressions that are kept compiled: each takes 120 bytes."""
_EVALUATION: Final = 10
"""Attempts that each evaluation costs at least."""
_COMPILED_PER_ATTEMPT: Final = 2
_KNOWN_PER_ATTEMPT: Final = 4
"""Answers that are looked up for one."""
_DEVICE: Final = cel.object_of(
    {
        "driver": cel.STRING,
        "allowMultipleAllocations": cel.BOOL,
        "attributes": cel.map_of(cel.STRING, cel.map_of(cel.STRING, cel.DYN)),
        "capacity": cel.map_of(cel.STRING, cel.map_of(cel.STRING, cel.QUANTITY)),
    }
)


class SelectorError(ValueError):
    """An expression can't be evaluated, or has no value for a device."""


Answer = bool | SelectorError
"""Whether an expression is true of a device, or why that can't be said."""


class _Domains(dict[str, Any]):
    """Attributes by domain; of a domain that has none there is an empty map, as upstream has it."""

    def __missing__(self, domain: str) -> Mapping[str, Any]:
        return {}


class _SeenDevice(NamedTuple):
    """A device, which is kept so that no other one gets its identity; what expressions see of it, and the same as bytes."""

    device: Device
    variables: Mapping[str, Any]
    facts: bytes


class SelectorAnswers:
    """Answers by what a device is and by expression, at most so many. Threads may share it: what one misses is found out again."""

    def __init__(self) -> None:
        self._known: dict[bytes, dict[str, Answer]] = {}
        self._count = 0

    def __len__(self) -> int:
        """How many there are."""
        return self._count

    def get(self, facts: bytes, expression: str) -> Answer | None:
        """Return an answer; None where it isn't known."""
        known = self._known.get(facts)
        return known.get(expression) if known is not None else None

    def remember(self, facts: bytes, expression: str, answer: Answer) -> None:
        """Remember it; where they are many, all others go."""
        if self._count >= _MOST_ANSWERS:
            self.keep(())
        self._known.setdefault(facts, {})[expression] = answer
        self._count += 1

    def keep(self, facts: Container[bytes]) -> None:
        """Forget all that isn't about these."""
        for each in list(self._known):
            if each not in facts:
                self._known.pop(each, None)
        # Counted anew: where two threads remember the same, it counts twice.
        self._count = sum(map(len, list(self._known.values())))


class Selectors:
    """Answers whether devices are chosen, and remembers it: of a device that is read anew and hasn't changed, too.

    ``answers`` may be those of others, also of another thread.
    """

    def __init__(self, answers: SelectorAnswers | None = None) -> None:
        self.answers = answers if answers is not None else SelectorAnswers()
        self._compiled = CompiledSelectors()
        self._devices: dict[int, _SeenDevice] = {}

    def keep(self, devices: Iterable[Device]) -> None:
        """Forget all but some devices."""
        if not self.answers:
            return
        kept = {id(device): self._seen(device) for device in devices}
        self._devices = kept
        self.answers.keep({each.facts for each in kept.values()})

    def _seen(self, device: Device) -> _SeenDevice:
        seen = self._devices.get(id(device))
        if seen is None:
            seen = self._devices[id(device)] = _SeenDevice(device, _variables(device), _facts(device))
        return seen

    def choose(self, expressions: tuple[str, ...], device: Device, account: DeviceAccount) -> bool:
        """Whether all expressions are true of a device, at the cost of an account.

        Raises:
            SelectorError: one can't be evaluated.
            BudgetError: the account has nothing left; what was found out is remembered.
        """
        account.spend(1 + len(expressions) // _KNOWN_PER_ATTEMPT)
        return all(self._true(each, device, account) for each in expressions)

    def _true(self, expression: str, device: Device, account: DeviceAccount) -> bool:
        facts = self._seen(device).facts
        known = self.answers.get(facts, expression)
        if known is None:
            known = self._evaluate(expression, device, account)
            self.answers.remember(facts, expression, known)
        if isinstance(known, SelectorError):
            # Another one: an error that is kept would keep what it is raised through, the whole session.
            raise SelectorError(*known.args)
        return known

    def _evaluate(self, expression: str, device: Device, account: DeviceAccount) -> Answer:
        account.spend(_EVALUATION)
        program = self._compiled.get(expression, account)
        if isinstance(program, SelectorError):
            return program
        steps, answer = account.steps(LIMIT), SelectorError(f"{_short(expression)!r} is no condition")
        given = steps.left
        try:
            value = program.evaluate(self._seen(device).variables, steps)
        except cel.CelError as error:
            value = None
            answer = SelectorError(f"{_short(expression)!r} of device {device.id.name}: {_short(str(error))}")
        # Where the account was the limit, this is more than it has: another session goes on.
        account.spend((given - max(steps.left, -1)) * STEP)
        return value if isinstance(value, bool) else answer


class CompiledSelectors:
    """The expressions that were asked for last, compiled."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, cel.Program | SelectorError] = OrderedDict()
        self._characters = 0

    def get(self, expression: str, account: DeviceAccount) -> cel.Program | SelectorError:
        """Compile an expression at the cost of an account, unless it is; where it can't be, return the reason.

        Raises:
            BudgetError: the account has nothing left.
        """
        known = self._known.get(expression)
        if known is None:
            account.spend(min(len(expression), LONGEST) // _COMPILED_PER_ATTEMPT)
            known = self._known[expression] = compiled(expression)
            self._characters += len(expression)
            while self._characters > _MOST_COMPILED and len(self._known) > 1:
                oldest, _ = self._known.popitem(last=False)
                self._characters -= len(oldest)
        self._known.move_to_end(expression)
        return known


def compiled(expression: str) -> cel.Program | SelectorError:
    """Compile an expression; where it can't be, return the reason."""
    if len(expression) > LONGEST:
        return SelectorError(f"an expression of more than {LONGEST} characters")
    try:
        program = cel.compile_expression(expression, {"device": _DEVICE})
    except (cel.CompileError, RecursionError) as error:
        return SelectorError(
            f"{_short(expression)!r} is not evaluated: {_short(getattr(error, 'message', str(error)))}"
        )
    if program.type.kind not in {"bool", "dyn"}:
        return SelectorError(f"{_short(expression)!r} is no condition")
    return program


def _short(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"


def _facts(device: Device) -> bytes:
    """Write what expressions see of a device: the same only where all of it is."""
    # In nano-units, amounts are larger than what can be written as a number.
    capacity = [
        (domain, name, str(each.nano), each.form.value)
        for domain, amounts in device.capacity.items()
        for name, each in amounts.items()
    ]
    try:
        return msgspec.msgpack.encode((device.id, device.attributes, capacity), enc_hook=repr)
    except OverflowError:
        return repr((device.id, device.attributes, capacity)).encode()


def _variables(device: Device) -> Mapping[str, Any]:
    return {
        "device": {
            "driver": device.id.driver,
            "allowMultipleAllocations": False,
            "attributes": _Domains(device.attributes),
            "capacity": _Domains(device.capacity),
        }
    }
