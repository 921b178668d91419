"""What nobody thought of: random sequences of requests, answered alike by both.

The names are few, so that requests meet the same objects, in whatever state they are.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

Step = dict[str, Any]

NAMES = st.sampled_from(["a", "b"])
VALUES = st.sampled_from(["1", "2", ""])
LABELS = st.dictionaries(st.sampled_from(["x", "y"]), VALUES, max_size=2)
FINALIZERS = st.sampled_from([[], ["example.com/a"], ["example.com/b", "example.com/a"]])
WIDGET = {"apiVersion": "differential.muster.sh/v1", "kind": "Widget"}
POD = {"schedulerName": "none", "automountServiceAccountToken": False, "containers": [{"name": "c", "image": "i"}]}
QUERIES = st.sampled_from(["", "?dryRun=All", "?fieldManager=test-other", "?fieldValidation=Strict"])


@st.composite
def bodies(draw: st.DrawFn, plural: str) -> Step:
    metadata: Step = {"name": draw(NAMES), "labels": draw(LABELS)}
    if draw(st.booleans()):
        metadata["finalizers"] = draw(FINALIZERS)
    match plural:
        case "configmaps":
            return {"metadata": metadata, "data": draw(st.dictionaries(st.sampled_from(["k", "l"]), VALUES))}
        case "pods":
            return {"metadata": metadata, "spec": POD}
    spec = draw(
        st.fixed_dictionaries(
            {},
            optional={
                "size": st.integers(0, 3),
                "colour": st.sampled_from(["red", "green", "pink", None]),
                "tags": LABELS,
                "parts": st.lists(st.fixed_dictionaries({"name": NAMES}, optional={"count": st.integers(0, 2)})),
                "nonsense": st.integers(0, 1),
            },
        )
    )
    return {**WIDGET, "metadata": metadata, "spec": spec}


@st.composite
def changes(draw: st.DrawFn, plural: str, name: str) -> Step:
    where = f"{plural}/{name}{draw(QUERIES)}"
    labels = draw(st.dictionaries(st.sampled_from(["x", "y"]), VALUES | st.none(), max_size=2))
    merge = {"metadata": {"labels": labels, "finalizers": draw(FINALIZERS | st.none())}}
    if plural == "configmaps":
        merge["data"] = draw(st.dictionaries(st.sampled_from(["k", "l"]), VALUES | st.none()))
    elif plural == "widgets":
        merge["spec"] = draw(st.dictionaries(st.sampled_from(["size", "replicas"]), st.integers(0, 3) | st.none()))
    operation = draw(st.sampled_from(["add", "replace", "remove", "test"]))
    path = draw(st.sampled_from(["/metadata/labels/x", "/metadata/labels", "/metadata/annotations", "/none/none"]))
    value: Any = {"x": "3"} if path.count("/") == 2 else "3"
    forms: list[Step] = [
        {"MERGE": where, "with": merge},
        {"STRATEGIC": where, "with": merge},
        {"JSON": where, "with": [{"op": operation, "path": path, "value": value}]},
    ]
    return draw(st.sampled_from(forms))


@st.composite
def applies(draw: st.DrawFn, plural: str) -> Step:
    kind = WIDGET if plural == "widgets" else {"apiVersion": "v1", "kind": "ConfigMap"}
    body = draw(bodies(plural)) | kind
    manager = draw(st.sampled_from(["test-one", "test-two"]))
    force = draw(st.sampled_from(["", "&force=true"]))
    return {"APPLY": f"{plural}/{body['metadata']['name']}?fieldManager={manager}{force}", "with": body}


@st.composite
def steps(draw: st.DrawFn) -> Step:
    plural = draw(st.sampled_from(["configmaps", "pods", "widgets"]))
    name = draw(NAMES)
    body = draw(bodies(plural))
    forms: list[Step] = [
        {"POST": plural + draw(QUERIES), "with": body},
        {"PUT": f"{plural}/{body['metadata']['name']}", "with": body},
        draw(changes(plural, name)),
        {"DELETE": f"{plural}/{name}"},
        {"GET": f"{plural}/{name}"},
        {"GET": f"{plural}?labelSelector={draw(st.sampled_from(['x', '!x', 'x%3D1', 'x+in+(1%2C2)']))}"},
        draw(applies(plural if plural != "pods" else "configmaps")),
    ]
    return draw(st.sampled_from(forms))


FIRST = {"POST": "configmaps", "with": {"metadata": {"name": "first"}, "data": {"k": "v"}}, "as": "first"}


@pytest.mark.asyncio(loop_scope="session")
@settings(
    max_examples=25,
    deadline=None,
    derandomize=True,
    # To shrink a failure is to play it hundreds of times, for minutes; the diff names the request already.
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(st.lists(steps(), min_size=4, max_size=12))
async def test_any_sequence_is_answered_alike_and_seen_alike_by_watches(compare, sequence):
    # The last change is one that both make, and so the end of both watches.
    last = {"MERGE": "configmaps/first", "with": {"data": {"k": "last"}}}
    watch = {"WATCH": "configmaps?resourceVersion=${rv:first}", "last": {"object.data.k": "last"}}
    await compare([FIRST, *sequence, last, watch])
