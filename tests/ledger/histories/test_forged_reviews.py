"""Reviews that no API server sent, from somebody who knows the path of a webhook: they may keep others waiting, and reserve no
more than the quota.

Each history has forged creations, updates and quotas among the true ones, with uids and revisions of what exists, of what is
under way, and made up. They are written into the ledger like any other, and nothing of them is ever stored.
"""

from __future__ import annotations

import os
import random
from typing import Any

import pytest

SOAK = int(os.environ.get("MUSTER_SOAK", "1"))


def forging(model: Any) -> Any:
    """Return a world in which somebody forges reviews."""

    class Forged(model.Request):
        """A review of nothing: the API server stores none of it."""

    class World(model.World):
        """The same as others', whose API server knows its own requests."""

        forged = 0

        def forge(self, choose: Any) -> None:
            target = self._target(choose)
            uid, revision, name, had, group = target
            units, facts = choose(12), model.FACTS[choose(4)]
            old = (0, revision, revision - choose(3), self.revision + choose(3))[choose(4)]
            quota, pod = choose(6) == 0, choose(2) == 0
            self.forged += 1
            self.requests.append(
                Forged(
                    "team" if quota else name,
                    uid,
                    units,
                    self.now,
                    max(old, 0),
                    (had, choose(12))[choose(2)],
                    quota=quota,
                    scoped=choose(12),
                    facts=facts,
                    had_facts=model.FACTS[choose(4)] if old else "",
                    pod_of=("", group, *model.NAMES)[choose(6)] if pod else None,
                )
            )

        def _target(self, choose: Any) -> tuple[str, int, str, int, str]:
            """Return of what a review is forged: uid, revision, name, amount and group."""
            stored = [
                (at.uid, at.revision, name, at.amounts["cpu"] // model.NANO, "") for name, at in self.objects.items()
            ]
            stored += [
                (at.uid, at.revision, at.uid, at.amounts["cpu"] // model.NANO, at.group) for at in self.pods.values()
            ]
            coming = [(each.uid, each.old, each.name, each.had, each.pod_of or "") for each in self.requests[-20:]]
            quota = [(self.quota.uid, self.quota.revision, "team", 0, "")] if self.quota else []
            made_up = [(f"f{self.forged}", 0, model.NAMES[choose(4)], 0, "")]
            known = sorted([*stored, *coming, *quota, *made_up])
            return known[choose(len(known))]

        def _possible(self, request: Any) -> bool:
            return not isinstance(request, Forged) and super()._possible(request)

        def _pending(self, request: Any) -> bool:
            return not isinstance(request, Forged) and super()._pending(request)

    return World


@pytest.mark.parametrize("seed", range(8 * SOAK))
def test_no_forged_review_has_more_reserved_than_the_quota(seed: int, model: Any) -> None:
    world, chance = forging(model)(), random.Random(seed)
    world.change_quota(10)
    for _ in range(500):
        if chance.randrange(3) == 0:
            world.forge(chance.randrange)
        model.act(world, chance.randrange)
    assert world.forged > 100
    world.settle()
