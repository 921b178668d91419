"""The object that an unforeseen error is about, where what fails is a step for that object alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
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


@contextmanager
def about(group: str, plural: str, namespace: str, name: str) -> Iterator[None]:
    """Say of an error in this context that it is this object's.

    Raises:
        BlamedError: from any other error.
    """
    try:
        yield
    except Exception as error:
        raise BlamedError(Culprit(group, plural, namespace, name)) from error
