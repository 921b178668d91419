"""The observer of the cluster's autoscaler: what it tells, and what an API server that can't answer changes."""

from __future__ import annotations

from muster.kube import errors
from muster.kube.autoscalers import CLUSTER_AUTOSCALER, KARPENTER
from scheduler.controllers import autoscaler
from scheduler.controllers.autoscaler import AutoscalerObserver

DOWN = errors.UnreachableError("down", maybe_applied=False)


async def test_each_change_is_told_once_and_an_error_changes_nothing(monkeypatch, caplog):
    answers = iter(["", KARPENTER, KARPENTER, DOWN, DOWN, CLUSTER_AUTOSCALER, ""])

    async def find(_: object) -> str:
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(autoscaler.autoscalers, "find", find)
    told: list[str] = []
    observer = AutoscalerObserver(None, told.append)  # type: ignore[arg-type]
    for _ in range(7):
        await observer.look()
    assert told == [KARPENTER, CLUSTER_AUTOSCALER, ""]
    warned = [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]
    assert warned == ["cannot tell whether the cluster has an autoscaler: down"]
