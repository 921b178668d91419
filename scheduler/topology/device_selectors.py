"""The expressions that choose devices: compiled once each, evaluated once for each device."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, Final

from muster import cel
from scheduler.model.devices import Device

LONGEST: Final = 10 * 1024
"""Characters of an expression, by the API."""
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


class _Domains(dict[str, Any]):
    """Attributes by domain; of a domain that has none there is an empty map, as upstream has it."""

    def __missing__(self, domain: str) -> Mapping[str, Any]:
        return {}


class Selectors:
    """Answers whether devices are chosen, and remembers it."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, int], bool | SelectorError] = {}
        self._devices: dict[int, tuple[Device, Mapping[str, Any]]] = {}

    def keep(self, devices: Iterable[Device]) -> None:
        """Forget all but some devices."""
        kept = set(map(id, devices))
        self._devices = {key: each for key, each in self._devices.items() if key in kept}
        self._known = {key: answer for key, answer in self._known.items() if key[1] in self._devices}

    def choose(self, expressions: tuple[str, ...], device: Device) -> bool:
        """Whether all expressions are true of a device.

        Raises:
            SelectorError: one can't be evaluated.
        """
        return all(self._true(each, device) for each in expressions)

    def _true(self, expression: str, device: Device) -> bool:
        key = (expression, id(device))
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = self._evaluate(expression, device)
        if isinstance(known, SelectorError):
            raise known
        return known

    def _evaluate(self, expression: str, device: Device) -> bool | SelectorError:
        if id(device) not in self._devices:
            # The device is kept, so that no other one gets its identity.
            self._devices[id(device)] = (device, _variables(device))
        program = compiled(expression)
        if isinstance(program, SelectorError):
            return program
        try:
            value = program.evaluate(self._devices[id(device)][1])
        except cel.CelError as error:
            return SelectorError(f"{expression!r} of device {device.id.name}: {error}")
        return value if isinstance(value, bool) else SelectorError(f"{expression!r} is no condition")


@lru_cache(maxsize=1024)
def compiled(expression: str) -> cel.Program | SelectorError:
    """Compile an expression; where it can't be, return the reason."""
    if len(expression) > LONGEST:
        return SelectorError(f"an expression of more than {LONGEST} characters")
    try:
        program = cel.compile_expression(expression, {"device": _DEVICE})
    except (cel.CompileError, RecursionError) as error:
        return SelectorError(f"{expression!r} is not evaluated: {getattr(error, 'message', error)}")
    if program.type.kind not in {"bool", "dyn"}:
        return SelectorError(f"{expression!r} is no condition")
    return program


def _variables(device: Device) -> Mapping[str, Any]:
    return {
        "device": {
            "driver": device.id.driver,
            "allowMultipleAllocations": False,
            "attributes": _Domains(device.attributes),
            "capacity": _Domains(device.capacity),
        }
    }
