"""The sandbox answers as kube-apiserver was recorded to; and the records are what kube-apiserver answers.

A file of ``conversations/`` is a list of steps: method, path, body, content type, and what kube-apiserver 1.36.3
answered. A step whose ``answer`` is null is compared by its status only: there the sandbox words an error differently,
or does at once what the real server does a moment later.
"""

import json
import re
import ssl
import urllib.error
import urllib.request
from pathlib import Path

import binaries
import pytest
from controlplane import ControlPlane

FILES = sorted((Path(__file__).parent / "conversations").glob("*.json"))
_VARIES = {
    "resourceVersion",
    "time",
    "lastTransitionTime",
    "creationTimestamp",
    "deletionTimestamp",
    "uid",
    "lastProbeTime",
}
_UID = re.compile(r"[0-9a-f]{8}-[0-9a-f-]{27}")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT[\d:]+Z")


def steps(file):
    return json.loads(file.read_text(encoding="utf-8"))


def comparable(value):
    """Return an answer without what differs from server to server: uids, times, versions, and who owns which field."""
    if isinstance(value, dict):
        kept = {_UID.sub("UID", key): comparable(each) for key, each in value.items() if key not in _VARIES}
        kept.pop("managedFields", None)
        if "items" in kept:
            # Only the real server leaves these out of the entries of a built-in list.
            kept["items"] = [
                {key: each for key, each in item.items() if key not in {"kind", "apiVersion"}} for item in kept["items"]
            ]
        if "continue" in kept:
            kept["continue"] = bool(kept["continue"])
        return kept
    if isinstance(value, list):
        return [comparable(each) for each in value]
    if isinstance(value, str):
        return _TIME.sub("TIME", _UID.sub("UID", value))
    return value


ids = [file.stem for file in FILES]


def encoded(step):
    body = step["body"]
    if body is None:
        return None
    return body.encode() if isinstance(body, str) else json.dumps(body).encode()


def same(step, status, answer):
    assert status == step["status"], (step["method"], step["path"], answer)
    if step["answer"] is not None:
        assert comparable(answer) == step["answer"], (step["method"], step["path"], step["body"])


@pytest.mark.parametrize("file", FILES, ids=ids)
async def test_the_sandbox_answers_as_the_real_server_did(api, file):
    for step in steps(file):
        status, answer = await api.send(step["method"], step["path"], encoded(step), step["type"], "*/*")
        same(step, status, answer)


@pytest.fixture(scope="module")
def apiserver():
    """Return a kube-apiserver without controllers, which would answer some steps before the next is asked."""
    if missing := [each.name for each in binaries.BINARIES if binaries.find(each.name) is None]:
        pytest.skip(f"real control plane: not run, {', '.join(missing)} missing (make controlplane)")
    with ControlPlane(nodes_simulated=False) as plane:
        plane.kill("kube-controller-manager")
        yield plane


@pytest.mark.processes
@pytest.mark.xdist_group("conversations")
@pytest.mark.parametrize("file", FILES, ids=ids)
def test_the_real_server_answers_as_it_was_recorded_to(apiserver, file):
    plane = apiserver
    trust = ssl.create_default_context(cafile=str(plane.ca_file))
    for step in steps(file):
        headers = {"Authorization": f"Bearer {plane.token}", "User-Agent": "cmp/1"}
        if step["body"] is not None:
            headers["Content-Type"] = step["type"]
        request = urllib.request.Request(
            plane.url + step["path"], method=step["method"], data=encoded(step), headers=headers
        )
        try:
            with urllib.request.urlopen(request, context=trust) as response:
                same(step, response.status, json.load(response))
        except urllib.error.HTTPError as error:
            with error:
                same(step, error.code, json.load(error))
