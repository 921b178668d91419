"""Events that tell of PodGroups: each phase, what is wrong, and on the workload that a group was generated for its start."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from msgspec import Struct, field

from muster.kube.events import EventRecorder
from muster.model.durations import human_duration
from muster.model.kinds import Kind
from muster.model.objects import Condition, Meta, Object, PodGroup
from muster.model.text import counted
from scheduler.controllers.workload import HELD, STARTED, generated_for, held_text
from scheduler.engine import lifecycle
from scheduler.leader.intervals import PHASE_EVENT_SECONDS
from scheduler.model.plan import GroupStatus, Urgency
from scheduler.model.snapshot import GroupKey, Phase

_BEFORE_START = frozenset({Phase.PENDING, Phase.INQUEUE})


class _Recorded(Struct):
    """What events told of a group: its phases, and what of its workload, each with the loop's time of the last one."""

    phases: set[Phase] = field(default_factory=set)
    last: float = float("-inf")
    held: float = float("-inf")


class GroupEvents:
    """Records what becomes of groups, each thing once and after that at most once a minute.

    ``find_group`` finds a group by its key, as the caches show it.
    """

    def __init__(
        self,
        recorder: EventRecorder,
        kinds_by_group: Mapping[str, Kind[PodGroup]],
        find_group: Callable[[GroupKey], PodGroup | None],
    ) -> None:
        self._recorder = recorder
        self._kinds = kinds_by_group
        self._find_group = find_group
        self._recorded: dict[GroupKey, _Recorded] = {}

    def record(self, status: GroupStatus) -> None:
        """Record that a group comes to a status."""
        wrong = lifecycle.lasting_obstacle(status.conditions)
        if status.phase is not status.before and self._is_news(status):
            self._record(status, status.phase.value, _phase_text(status))
        if wrong is not None and status.urgency is Urgency.NOW:
            self._record(status, wrong.reason, wrong.message, warning=True)
        failing = lifecycle.failing(status.conditions)
        if failing is not None and status.urgency is Urgency.NOW:
            self._record(status, failing.reason, failing.message, warning=True)
        if status.owner:
            self._record_on_owner(status, wrong)

    def record_on(self, key: GroupKey, reason: str, message: str) -> None:
        """Record what others did to a group; nothing where it is gone."""
        if (group := self._find_group(key)) is not None:
            self._recorder.record(self._kinds[key.group], group, reason, message)

    def forget(self, key: GroupKey) -> None:
        """Keep nothing of a group that is gone."""
        self._recorded.pop(key, None)

    def _record(self, status: GroupStatus, reason: str, message: str, *, warning: bool = False) -> None:
        meta = Meta(name=status.key.name, namespace=status.key.namespace, uid=status.uid)
        kind = self._kinds[status.key.group]
        self._recorder.record(kind, Object(metadata=meta), reason, message, type_="Warning" if warning else "Normal")

    def _record_on_owner(self, status: GroupStatus, wrong: Condition | None) -> None:
        group = self._find_group(status.key)
        if group is None or (workload := generated_for(group.metadata)) is None:
            return
        kind, owner = workload
        if wrong is not None and status.phase is Phase.PENDING and self._may_say_held(status):
            self._recorder.record(kind, owner, HELD, held_text(status.queue, wrong))
        elif _starts(status):
            minimum = counted(max(group.spec.min_member, 1), "pod")
            verb = "ran" if status.phase is Phase.COMPLETED else "is running"
            self._recorder.record(kind, owner, STARTED, f"Its minimum of {minimum} {verb} in queue {status.queue}")

    def _is_news(self, status: GroupStatus) -> bool:
        """Whether a phase is worth an event: the first of its kind of a group, and after that one a minute."""
        now, told = asyncio.get_running_loop().time(), self._of(status.key)
        if status.phase in told.phases and now - told.last < PHASE_EVENT_SECONDS:
            return False
        told.phases.add(status.phase)
        told.last = now
        return True

    def _may_say_held(self, status: GroupStatus) -> bool:
        """Whether to say that a workload is held: where it is news, and not more than once a minute."""
        now, told = asyncio.get_running_loop().time(), self._of(status.key)
        if status.urgency is not Urgency.NOW or now - told.held < PHASE_EVENT_SECONDS:
            return False
        told.held = now
        return True

    def _of(self, key: GroupKey) -> _Recorded:
        return self._recorded.setdefault(key, _Recorded())


def _starts(status: GroupStatus) -> bool:
    """Whether a group runs for the first time, or was over before anybody saw it run."""
    if status.before not in _BEFORE_START:
        return False
    return status.phase is Phase.RUNNING or (
        status.phase is Phase.COMPLETED and bool(status.succeeded or status.failed)
    )


def _phase_text(status: GroupStatus) -> str:
    """Return the text of the event that a new phase is."""
    before = f"was {status.before.value}"
    if status.lasted is not None:
        before += f" for {human_duration(status.lasted)}"
    match status.phase:
        case Phase.INQUEUE:
            return f"Admitted to queue {status.queue}; {before}"
        case Phase.PENDING:
            again = "Started again in" if status.before is Phase.COMPLETED else "Returned to"
            return f"{again} queue {status.queue}; {before}"
        case Phase.RUNNING:
            return f"Its minimum of pods is running; {before}"
        case Phase.UNKNOWN:
            return f"Fewer pods than its minimum are running; {before}"
        case Phase.COMPLETED:
            return f"Its pods have ended; {before}"
