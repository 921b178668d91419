from __future__ import annotations

import pytest

from muster.kube import errors


@pytest.mark.parametrize(
    ("error", "ends"),
    [
        (
            errors.ForbiddenError(
                403,
                "Forbidden",
                "…",
                details={"causes": [{"reason": "NamespaceTerminating", "field": "metadata.namespace"}]},
            ),
            True,
        ),
        (errors.NotFoundError(404, "NotFound", 'namespaces "a" not found', details={"kind": "namespaces"}), True),
        (errors.NotFoundError(404, "NotFound", 'pods "a" not found', details={"kind": "pods"}), False),
        (errors.ForbiddenError(403, "Forbidden", "exceeded quota"), False),
        (errors.UnreachableError("no route", maybe_applied=False), False),
    ],
)
def test_a_namespace_that_ends_is_told_from_other_refusals(error, ends):
    assert errors.namespace_ends(error) is ends
