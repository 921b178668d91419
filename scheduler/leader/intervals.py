"""Bounds of a leader's cycles, in seconds: how often it decides, and how long it may take."""

from __future__ import annotations

from typing import Final

MIN_CYCLE_INTERVAL_SECONDS: Final = 0.05
"""Between the beginnings of two cycles."""
RESYNC_INTERVAL_SECONDS: Final = 10.0
"""Between two cycles, at most, while something waits: where a machine's clock is set anew, a deadline is missed."""
USER_PLUGIN_INTERVAL_SECONDS: Final = 1.0
"""The same with plugins of users, which may decide by the clock without telling."""
REST_PER_CYCLE: Final = 9.0
"""How many times as long as deciding takes it rests after it, where nothing changes."""
INLINE_CYCLE_SECONDS: Final = 0.05
"""That the loop may be held up; a cycle that takes longer makes the next one run in a thread."""
INLINE_PENDING_PODS: Final = 1000
"""So do more pods that wait."""
CYCLE_HANG_SECONDS: Final = 30.0
"""After which a cycle that is still being decided won't end: tens of times as long as the largest takes."""
RESERVATION_RETRY_SECONDS: Final = 5.0
"""After which a group that the ledger refused its minimum may request it again, the first time."""
LONGEST_RESERVATION_RETRY_SECONDS: Final = 60.0
"""The same after many refusals in a row: each time it is twice as long."""
PHASE_EVENT_SECONDS: Final = 60.0
"""Between two events of phases of one group that aren't the first of their phase."""
FIND_CULPRIT_SECONDS: Final = 10.0
"""That the search for the group with which a cycle fails may take: less than what counts as a cycle that hangs."""
