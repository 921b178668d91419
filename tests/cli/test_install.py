from __future__ import annotations

import pytest

from muster.cli.installation import crds
from muster.model import kinds, names

LEGACY = {f"{kind.plural}.{kind.group}" for kind in (*kinds.LEGACY_QUEUES, *kinds.LEGACY_PODGROUPS)}


def by_name(*, legacy_apis: bool):
    return {crd["metadata"]["name"]: crd for crd in crds.manifests(legacy_apis=legacy_apis)}


def test_the_primary_kinds_are_always_there_and_the_legacy_ones_on_request():
    primary = {str(kinds.PODGROUPS), str(kinds.QUEUES), str(kinds.QUOTALEDGERS), str(kinds.HYPERNODES)}
    assert set(by_name(legacy_apis=False)) == primary
    assert set(by_name(legacy_apis=True)) == primary | LEGACY


@pytest.mark.parametrize("kind", [*kinds.LEGACY_QUEUES, *kinds.LEGACY_PODGROUPS], ids=str)
def test_a_legacy_kind_has_the_same_schema_its_own_version_and_no_short_name(kind):
    crds = by_name(legacy_apis=True)
    legacy, primary = crds[str(kind)], crds[f"{kind.plural}.{names.VOLCANO_GROUP}"]
    assert legacy["spec"]["versions"][0]["schema"] == primary["spec"]["versions"][0]["schema"]
    assert legacy["spec"]["versions"][0]["name"] == kind.version
    assert "shortNames" not in legacy["spec"]["names"]
    assert "categories" not in legacy["spec"]["names"]


def test_a_kind_in_a_protected_group_says_that_it_is_not_approved():
    crds = by_name(legacy_apis=True)
    said = crds[f"queues.{names.INCUBATOR_GROUP}"]["metadata"]["annotations"]["api-approved.kubernetes.io"]
    assert said.startswith("unapproved, ")


@pytest.mark.parametrize("kind", [kinds.PODGROUPS, kinds.QUEUES, kinds.QUOTALEDGERS], ids=str)
def test_the_kinds_are_served_where_the_client_looks_for_them(kind):
    spec = by_name(legacy_apis=False)[str(kind)]["spec"]
    assert (spec["group"], spec["versions"][0]["name"], spec["names"]["kind"]) == (kind.group, kind.version, kind.name)
    assert (spec["scope"] == "Namespaced") is kind.namespaced
