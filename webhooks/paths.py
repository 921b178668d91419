"""The paths of the webhooks: each ends in a segment that only API servers are told.

``/validate/pods/SEGMENT`` is a call, ``/validate/pods`` one only while no segment is in use yet. The segments are in a Secret
that is mounted, and change while the server runs (`certs.paths` says when).
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import math
from pathlib import Path
from typing import Final

from certs.serving import POLL
from muster.kube.clock import Clock, SystemClock
from muster.model.names import NO_SEGMENT, SEGMENTS_FILE

_LONGEST: Final = 64 * 1024
"""Bytes of the file: what is longer was not written by Muster."""
_UNGUARDED: Final = frozenset({NO_SEGMENT})

log = logging.getLogger(__name__)


def hook_path(path: str, accepted: frozenset[str] | None) -> str | None:
    """Return the path of the webhook that a caller means, None for a stranger.

    ``accepted`` is None where callers have proved by a certificate who they are: their paths may end in anything.
    """
    parts = path.split("/")
    if len(parts) == 3:
        return path if accepted is None or NO_SEGMENT in accepted else None
    if len(parts) != 4 or not parts[3].isascii():
        return None
    if accepted is None:
        return "/".join(parts[:3])
    # All are compared, each in constant time: how long an answer takes says nothing of a segment.
    known = [hmac.compare_digest(parts[3], each) for each in accepted if each != NO_SEGMENT]
    return "/".join(parts[:3]) if any(known) else None


class LivePaths:
    """The segments that are accepted, which follow a file.

    Attributes:
        accepted: as the file had it when it could be read last, nothing before; None where certificates are demanded.
    """

    def __init__(self, folder: Path | None, clock: Clock | None = None, *, certified: bool = False) -> None:
        """Follow ``folder``; without one, no segment is ever in use. ``certified``: callers show a certificate."""
        self._folder = folder if not certified else None
        self._clock = clock or SystemClock()
        self._failed_at = self._clock.now()
        self._trouble = ""
        self.accepted: frozenset[str] | None = None if certified else frozenset() if folder else _UNGUARDED
        self.refresh()

    @property
    def failed_at(self) -> int:
        """When a call of who knows the path failed last, in seconds since 1970, rounded up.

        An API server prints the URL then. A start counts as one: calls may have failed before it.
        """
        return math.ceil(self._failed_at.timestamp())

    def failed(self) -> None:
        """Take note that a call failed."""
        self._failed_at = self._clock.now()

    def problems(self) -> list[str]:
        """Say why no caller is known yet; nothing when some are."""
        if self.accepted is None or self.accepted:
            return []
        return [f"{self._folder} has no file {SEGMENTS_FILE} yet: `muster certs run` writes it"]

    def refresh(self) -> None:
        """Accept what the file holds now; one that isn't there, is empty or can't be read changes nothing."""
        if self._folder is None:
            return
        try:
            with (self._folder / SEGMENTS_FILE).open() as file:
                self.accepted = frozenset(file.read(_LONGEST).split()) or self.accepted
        except FileNotFoundError:
            # The Secret is made empty, and filled by the leader.
            return
        except (OSError, UnicodeDecodeError) as error:
            if self._trouble != (trouble := type(error).__name__):
                log.warning("the paths of the webhooks can't be read from %s: %s", self._folder, trouble)
            self._trouble = trouble
        else:
            self._trouble = ""

    async def run(self) -> None:
        """Follow the file, until cancelled."""
        while True:
            await asyncio.sleep(POLL)
            self.refresh()
