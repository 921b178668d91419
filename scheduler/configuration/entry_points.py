"""Plugins of users, found by the entry point ``muster.scheduler.plugins`` of installed packages.

The entry point's name is the plugin's name in the configuration. A package is imported only when it is named there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from scheduler.engine.arguments import BuiltinArguments
from scheduler.engine.plugin import Plugin
from scheduler.engine.plugin_arguments import Arguments

if TYPE_CHECKING:
    from importlib.metadata import EntryPoints

GROUP: Final = "muster.scheduler.plugins"
_TAKEN: Final = (BuiltinArguments, Arguments)
"""What a plugin may take for arguments."""


class ExtensionError(Exception):
    """A plugin can't be used. The text names it, its package and what is wrong."""


def _installed() -> EntryPoints:
    # Most configurations name no plugin of a user's, and what reads packages takes a while to import.
    from importlib import metadata

    return metadata.entry_points(group=GROUP)


def names() -> set[str]:
    """List the plugins that are installed."""
    return {each.name for each in _installed()}


def load(name: str) -> type[Plugin] | None:
    """Return the plugin of that name; None where no package has one.

    Raises:
        ExtensionError: several packages have one, it can't be imported, or isn't a plugin.
    """
    found = list(_installed().select(name=name))
    if not found:
        return None
    package = " and ".join(sorted({each.dist.name for each in found if each.dist is not None}))
    if len(found) > 1:
        raise ExtensionError(f"plugin {name!r} is in several packages: {package}; uninstall all but one")
    try:
        plugin = found[0].load()
    except Exception as error:
        words = " ".join(f"{type(error).__name__}: {error}".split())
        raise ExtensionError(f"plugin {name!r} of package {package} can't be imported: {words}") from error
    if not (isinstance(plugin, type) and issubclass(plugin, Plugin) and issubclass(plugin.arguments_type, _TAKEN)):
        raise ExtensionError(f"plugin {name!r} of package {package} is no subclass of scheduler.plugin.Plugin")
    return plugin
