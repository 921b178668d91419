"""get, get -w, describe, explain, discovery, events, logs: what people read."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

Kubectl = Any


def cart(name: str, **spec: Any) -> dict[str, Any]:
    labels = {"fleet": spec.pop("fleet", "a")}
    return {
        "apiVersion": "shop.example.com/v1",
        "kind": "Cart",
        "metadata": {"name": name, "labels": labels},
        "spec": {"wheels": 4, **spec},
    }


@pytest.fixture
def filled(carts: Kubectl) -> Kubectl:
    """Three carts: a with 4 wheels, b with 3, c with 2."""
    documents = [cart("a", owner="me"), cart("b", wheels=3, colour="blue", fleet="b"), cart("c", wheels=2)]
    carts("create", "-f", "-", stdin=yaml.safe_dump_all(documents))
    return carts


def test_a_custom_resource_prints_its_columns(filled: Kubectl) -> None:
    header, *rows = filled("get", "carts").words
    assert header == ["NAME", "WHEELS", "COLOUR", "READY", "AGE"]
    assert [row[:3] for row in rows] == [["a", "4", "red"], ["b", "3", "blue"], ["c", "2", "red"]]


def test_wide_output_adds_the_columns_of_lower_priority(filled: Kubectl) -> None:
    header, first, *_ = filled("get", "ct", "-o", "wide").words
    assert header == ["NAME", "WHEELS", "COLOUR", "READY", "OWNER", "AGE"]
    assert first[3] == "me"


def test_an_object_is_found_by_short_name_singular_kind_and_full_name(filled: Kubectl) -> None:
    for kind in ("ct", "cart", "carts", "Cart", "carts.shop.example.com", "carts.v1.shop.example.com", "shopping"):
        assert "a" in filled("get", kind, *([] if kind == "shopping" else ["a"])).out, kind


def test_structured_output_is_the_object_itself(filled: Kubectl) -> None:
    one = json.loads(filled("get", "cart", "a", "-o", "json").out)
    assert (one["kind"], one["spec"]) == ("Cart", {"wheels": 4, "colour": "red", "owner": "me"})
    assert one["metadata"]["generation"] == 1
    listed = yaml.safe_load(filled("get", "carts", "-o", "yaml").out)
    assert (listed["kind"], [item["metadata"]["name"] for item in listed["items"]]) == ("List", ["a", "b", "c"])
    assert filled("get", "carts", "-o", "name").lines == [f"cart.shop.example.com/{name}" for name in "abc"]


def test_templates_and_paths_choose_fields(filled: Kubectl) -> None:
    assert filled("get", "carts", "-o", "jsonpath={.items[*].spec.wheels}").out == "4 3 2"
    columns = filled("get", "carts", "-o", "custom-columns=N:.metadata.name,W:.spec.wheels", "--no-headers")
    assert columns.words == [["a", "4"], ["b", "3"], ["c", "2"]]


def test_labels_and_fields_select(filled: Kubectl) -> None:
    assert filled("get", "carts", "-l", "fleet=b", "-o", "name").lines == ["cart.shop.example.com/b"]
    assert len(filled("get", "carts", "-l", "fleet in (a, z),!absent", "-o", "name").lines) == 2
    assert filled("get", "carts", "--field-selector", "metadata.name=c", "-o", "name").lines == [
        "cart.shop.example.com/c"
    ]
    assert filled("get", "carts", "-L", "fleet").words[0][-1] == "FLEET"
    assert filled("get", "carts", "--show-labels").words[1][-1] == "fleet=a"


def test_a_field_that_cannot_be_selected_by_is_named(filled: Kubectl) -> None:
    said = filled.fails("get", "carts", "--field-selector", "spec.colour=red")
    assert "field label not supported: spec.colour" in said


def test_all_namespaces_show_theirs(filled: Kubectl) -> None:
    header, *rows = filled("get", "carts", "-A").words
    assert header[:2] == ["NAMESPACE", "NAME"]
    assert [filled.namespace, "a"] in [row[:2] for row in rows]


def test_rows_are_sorted_and_pages_are_joined(filled: Kubectl) -> None:
    rows = filled("get", "carts", "--sort-by=.spec.wheels", "--no-headers").words
    assert [row[0] for row in rows] == ["c", "b", "a"]
    rows = filled("get", "carts", "--chunk-size=1", "--no-headers").words
    assert [row[0] for row in rows] == ["a", "b", "c"]


def test_several_kinds_are_listed_with_their_names(filled: Kubectl) -> None:
    filled("create", "configmap", "settings", "--from-literal=a=b")
    out = filled("get", "cart/a", "configmap/settings").out
    assert "cart.shop.example.com/a" in out
    assert "configmap/settings" in out


def test_nothing_found_is_said_and_is_no_failure(carts: Kubectl) -> None:
    done = carts.run("get", "carts")
    assert (done.status, done.out) == (0, "")
    assert done.err.strip() == f"No resources found in {carts.namespace} namespace."


@pytest.mark.parametrize("arguments", [["carts"], ["cart", "watched"]])
def test_a_watch_prints_what_is_there_and_then_each_change_once(carts: Kubectl, arguments: list[str]) -> None:
    carts("create", "-f", "-", stdin=yaml.safe_dump(cart("watched")))
    with carts.started("get", *arguments, "-w", "--no-headers") as watch:
        assert watch.line()[:2] == ["watched", "4"]
        carts("patch", "cart", "watched", "--type=merge", "-p", '{"spec":{"wheels":5}}')
        assert watch.line()[:2] == ["watched", "5"]


def test_a_watch_of_structured_output_writes_whole_objects(carts: Kubectl) -> None:
    carts("create", "-f", "-", stdin=yaml.safe_dump(cart("watched")))
    with carts.started(
        "get", "carts", "-w", "--output-watch-events", "-o", "jsonpath={.type} {.object.kind}{'\\n'}"
    ) as watch:
        assert watch.line() == ["ADDED", "Cart"]
        carts("delete", "cart", "watched")
        assert watch.line() == ["DELETED", "Cart"]


def test_describe_shows_a_custom_resource_and_its_events(filled: Kubectl) -> None:
    uid = filled("get", "cart", "a", "-o", "jsonpath={.metadata.uid}").out
    event = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": "a.1"},
        "involvedObject": {
            "apiVersion": "shop.example.com/v1",
            "kind": "Cart",
            "name": "a",
            "namespace": filled.namespace,
            "uid": uid,
        },
        "reason": "Pushed",
        "message": "it rolls",
        "type": "Normal",
        "source": {"component": "test"},
        "firstTimestamp": "2026-01-01T00:00:00Z",
        "lastTimestamp": "2026-01-01T00:00:00Z",
        "count": 2,
    }
    filled("create", "-f", "-", stdin=json.dumps(event))
    described = filled("describe", "cart", "a").out
    assert "Colour:  red" in described
    assert "Pushed" in described
    assert "it rolls" in described
    header, row = filled("events", "--for", "cart/a").lines
    assert header.split() == ["LAST", "SEEN", "TYPE", "REASON", "OBJECT", "MESSAGE"]
    assert "Cart/a" in row
    header, row = filled("get", "events").lines
    assert "cart/a" in row
    assert "it rolls" in row


def test_describe_knows_the_kinds_that_people_look_at(kubectl: Kubectl) -> None:
    kubectl("create", "quota", "limits", "--hard=pods=7")
    kubectl("wait", "--for=jsonpath={.status.hard.pods}=7", "quota/limits", "--timeout=100s")
    quota = kubectl("describe", "quota", "limits").words
    assert ["pods", "0", "7"] in quota
    namespace = kubectl("describe", "namespace", kubectl.namespace).out
    assert "Status:       Active" in namespace
    assert "limits" in namespace


def test_every_resource_is_discovered_with_its_verbs(carts: Kubectl) -> None:
    rows = carts("api-resources", "-o", "wide", "--no-headers").lines
    row = next(line for line in rows if line.startswith("carts"))
    assert row.split() == [
        "carts",
        "ct",
        "shop.example.com/v1",
        "true",
        "Cart",
        "delete,deletecollection,get,list,patch,create,update,watch",
        "shopping",
    ]
    assert "shop.example.com/v1" in carts("api-versions").lines
    assert carts("api-resources", "--api-group=shop.example.com", "-o", "name").lines == ["carts.shop.example.com"]


def test_explain_tells_of_custom_and_built_in_fields(carts: Kubectl) -> None:
    out = carts("explain", "cart.spec.wheels").out
    assert "FIELD: wheels <integer>" in out
    assert "How many wheels it has." in out
    assert "colour\t<string>" in carts("explain", "cart.spec").out
    assert "metadata\t<ObjectMeta>" in carts("explain", "cart").out
    pod = carts("explain", "pod.spec.containers").out
    assert "FIELD: containers <[]Container>" in pod
    assert "image\t<string>" in pod
    assert "parallelism\t<integer>" in carts("explain", "job.spec", "--recursive").out
    assert carts.fails("explain", "pod.spec.nothing") == 'error: field "nothing" does not exist'


def test_versions_of_client_and_server_are_told(kubectl: Kubectl) -> None:
    assert "Server Version: v1.37" in kubectl.run("version").out  # stderr warns of an older client


def test_who_am_i_and_may_i(kubectl: Kubectl) -> None:
    (user,) = [value for name, value, *_ in kubectl("auth", "whoami").words if name == "Username"]
    assert user.endswith("admin")
    assert kubectl("auth", "can-i", "create", "pods").out.strip() == "yes"
