"""Rates nodes by a number in a label of theirs, so that pods go to the fastest of those that would do."""

import numpy as np
from pydantic import Field

from scheduler.model.snapshot import TaskClass
from scheduler.model.vectors import Floats
from scheduler.plugin import Arguments, Nodes, Plugin


class FasterArguments(Arguments):
    label: str = Field(default="example.com/speed", alias="faster-nodes.label")
    weight: float = Field(default=1, ge=0, alias="faster-nodes.weight")


class FasterNodes(Plugin):
    name = "faster-nodes"
    arguments_type = FasterArguments

    def score(self, kind: TaskClass, nodes: Nodes) -> Floats:
        labels = [nodes.table.nodes[row].metadata.labels or {} for row in nodes.rows]
        speeds = [float(each.get(self.arguments.label, 0)) for each in labels]
        # The more cpu a pod asks for, the more it matters; amounts are whole thousandths of a cpu.
        return self.arguments.weight * kind.request.units("cpu") / 1000 * np.array(speeds)
