"""The scheduler's configuration that a question is answered with: a file's, the cluster's own, or the built-in one."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from muster.cli.options import policy_of
from muster.model import names

if TYPE_CHECKING:
    from muster.model.objects import ConfigMap
    from scheduler.engine.policy import Policy

_NAME, _KEY = names.SCHEDULER_CONFIGMAP


class Configuration(NamedTuple):
    """A configuration, and where it is from: a phrase. ``assumed``: nobody knows whether the scheduler runs with it."""

    policy: Policy
    source: str
    assumed: bool = False

    def sentence(self) -> str:
        """Say what it does, and which it is."""
        return f"{', '.join(action.name for action in self.policy.actions)} ({self.source})"


def find(
    file: Path | None, found: Iterable[ConfigMap], *, readable: bool = True, home: str = names.SYSTEM_NAMESPACE
) -> Configuration:
    """Return a file's configuration where one is named, else what the scheduler's ConfigMap says, else the built-in one.

    Args:
        file: as a person named it.
        found: the ConfigMaps of Muster's namespace.
        readable: whether they may be read at all.
        home: Muster's namespace.

    Raises:
        ClickException: the file can't be used; a line per mistake.
    """
    if file is not None:
        return Configuration(policy_of(file), str(file))
    stored = next((each for each in found if each.name == _NAME), None)
    text = (stored.data or {}).get(_KEY) if stored is not None else None
    place = f"ConfigMap {stored.namespace if stored is not None else home}/{_NAME}"
    if text is None:
        why = f"there is no {place}" if readable else f"{place} may not be read"
        return Configuration(policy_of(None), f"the built-in one, since {why}", assumed=True)
    from scheduler.configuration import config

    try:
        return Configuration(config.parse(text, place), place)
    except config.ConfigurationError as error:
        for line in str(error).splitlines():
            click.echo(f"note: {line}", err=True)
        return Configuration(policy_of(None), f"the built-in one, since {place} can't be used here", assumed=True)
