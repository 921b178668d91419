"""The object that an unforeseen error is about, where what fails is a step for that object alone."""

from __future__ import annotations

from types import TracebackType
from typing import NamedTuple


class Culprit(NamedTuple):
    """An object, by its resource: API group and plural."""

    group: str
    plural: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.plural} {self.namespace}/{self.name}"


class BlamedError(Exception):
    """A step for one object failed in a way that nobody foresaw; its cause tells how.

    Attributes:
        culprit: the object.
    """

    def __init__(self, culprit: Culprit) -> None:
        super().__init__(f"a step for {culprit} failed")
        self.culprit = culprit


class about:  # noqa: N801 - a context, as contextlib's are
    """Say of an error in this context that it is this object's.

    It is entered for every object of a snapshot, and a generator's context takes four times as long.

    Raises:
        BlamedError: from any other error.
    """

    __slots__ = ("_culprit",)

    def __init__(self, group: str, plural: str, namespace: str, name: str) -> None:
        self._culprit = (group, plural, namespace, name)

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, Exception):
            raise BlamedError(Culprit(*self._culprit)) from error
