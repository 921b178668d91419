"""`muster ui`: who is answered, with what, and what a page is told; the page itself is tried in test_ui_in_chromium.py."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import zipfile
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest
from asked import TAKEN, asked, gang, node, queue, quota, state
from msgspec.structs import replace
from restricted import Restricted

from muster.cli import expected_starts, overviews
from muster.cli.overviews import Seen
from muster.cli.questions import Question
from muster.cli.ui import command
from muster.cli.ui.history import ALL, MOST, History
from muster.cli.ui.reader import Reader
from muster.cli.ui.server import UiServer
from muster.cli.ui.suppositions import Suppositions
from muster.kube import errors
from muster.kube.client import Client
from muster.kube.transport import Request, Response
from muster.model import kinds, names
from muster.model.objects import Event
from muster.sandbox.inprocess import InProcessTransport
from muster.whatif import group_life
from muster.whatif.overview import Overview, overview

ROOT = Path(__file__).parents[2]
OBJECTS = [
    node("n", {"cpu": "8"}),
    node("m", {"cpu": "8"}),
    queue("lab", weight=1),
    queue("night", weight=3),
    *gang("runs", [4, 2], "night", "n"),
    *gang("waits", [6, 6], "lab"),
    quota("q", cpu="10"),
]


def seen(objects: Sequence[Any] = OBJECTS) -> Seen:
    cluster = asked(objects)
    return Seen(overview(cluster.state, [], cluster.decide()), cluster.state, (), cluster.policy)


async def no_events(_: str, __: str) -> Sequence[Event]:
    return ()


class Served:
    """A server, and what is asked of it as programs ask that choose each header themselves."""

    def __init__(self, server: UiServer, reader: Reader, session: aiohttp.ClientSession) -> None:
        self.reader = reader
        self.url = server.url
        self.origin, _, token = server.url.rstrip("/").rpartition("/")
        self.token = token
        self._session = session

    async def get(self, path: str = "", **headers: str) -> tuple[int, str]:
        return await self.ask("GET", self.url + path, headers)

    async def post(self, path: str, body: Any, **headers: str) -> tuple[int, str]:
        usual = {"Origin": self.origin, "Content-Type": "application/json"}
        return await self.ask("POST", self.url + path, usual | headers, msgspec.json.encode(body))

    async def ask(self, method: str, url: str, headers: dict[str, str], body: bytes | None = None) -> tuple[int, str]:
        async with self._session.request(method, url, headers=headers, data=body, allow_redirects=False) as answer:
            self.headers = answer.headers
            return answer.status, await answer.text()


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    async def read() -> Seen:
        return seen()

    reader = Reader(read, no_events, 3600)
    await reader.start()
    server = UiServer(reader, Suppositions(reader, ["muster"]).answer)
    await server.start()
    async with aiohttp.ClientSession() as session:
        yield Served(server, reader, session)
    await server.stop()


# ── who is answered ──────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "path", ["", "data", "ui.js", "ui.css", "history", "group?namespace=team&name=runs", "nothing"]
)
@pytest.mark.parametrize("token", ["", "x" * 32, "..", "%2e"])
async def test_without_the_token_nothing_is_told(served: Served, path: str, token: str) -> None:
    status, text = await served.ask("GET", f"{served.origin}/{token}/{path}", {})
    assert status == 403
    assert "the address lacks its token" in text
    assert served.token not in text


async def test_each_server_has_a_token_of_its_own(served: Served) -> None:
    other = UiServer(served.reader, Suppositions(served.reader, ["muster"]).answer)
    assert served.token not in other.url
    assert len(served.token) >= 32


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1", "127.0.0.1:1", "127.0.0.1.evil.example:{port}", "[::1]:{port}"]
)
async def test_a_foreign_host_is_refused(served: Served, host: str) -> None:
    port = served.origin.rpartition(":")[2]
    status, text = await served.get("data", Host=host.format(port=port))
    assert status == 421
    assert "answers to no other name" in text
    assert "queues" not in text


async def test_localhost_is_a_name_of_it(served: Served) -> None:
    status, _ = await served.get("data", Host=served.origin.removeprefix("http://").replace("127.0.0.1", "localhost"))
    assert status == 200


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "https://127.0.0.1:{port}", "http://127.0.0.1:1", "null", ""]
)
async def test_requests_of_other_origins_are_refused(served: Served, origin: str) -> None:
    port = served.origin.rpartition(":")[2]
    told = origin.format(port=port)
    assert (await served.get("data", Origin=told))[0] == 403
    assert (await served.post("what-if", {"drain": ["n"]}, Origin=told))[0] == 403


async def test_what_a_browser_calls_cross_site_is_refused_but_for_a_link_to_the_page(served: Served) -> None:
    for site in ("cross-site", "same-site"):
        headers = {"Sec-Fetch-Site": site}
        assert (await served.get("data", **headers))[0] == 403
        assert (await served.post("what-if", {"drain": ["n"]}, **headers))[0] == 403
        assert (await served.get("", **headers))[0] == 200


@pytest.mark.parametrize(
    "headers",
    [{"Content-Type": "application/json"}, {"Content-Type": "text/plain", "Origin": "own"}],
    ids=["without an origin", "as a form can send it"],
)
async def test_a_post_that_a_page_of_another_site_could_send_is_refused(
    served: Served, headers: dict[str, str]
) -> None:
    own = {key: served.origin if value == "own" else value for key, value in headers.items()}
    status, text = await served.ask("POST", f"{served.url}what-if", own, b'{"drain": ["n"]}')
    assert status == 403
    assert "Origin of the page" in text


@pytest.mark.parametrize("method", ["PUT", "PATCH", "DELETE", "OPTIONS", "POST"])
async def test_nothing_can_be_changed(served: Served, method: str) -> None:
    assert (await served.ask(method, f"{served.url}data", {}))[0] == 405


async def test_a_large_body_is_refused(served: Served) -> None:
    assert (await served.post("what-if", {"drain": ["n" * 100_000]}))[0] == 413


@pytest.mark.parametrize("path", ["", "data", "ui.js", "nothing", "group?namespace=no&name=no"])
async def test_every_answer_keeps_browsers_from_guessing_keeping_and_framing_it(served: Served, path: str) -> None:
    await served.get(path)
    policy = dict(each.split(" ", 1) for each in served.headers["Content-Security-Policy"].split("; "))
    assert policy["default-src"] == "'none'"
    assert policy["frame-ancestors"] == "'none'"
    assert policy["require-trusted-types-for"] == "'script'"
    # Nothing of other hosts, nothing inline.
    assert {value for key, value in policy.items() if key.endswith("-src")} == {"'none'", "'self'"}
    assert served.headers["Cache-Control"] == "no-store"
    assert served.headers["X-Content-Type-Options"] == "nosniff"
    assert served.headers["Referrer-Policy"] == "no-referrer"
    assert "Access-Control-Allow-Origin" not in served.headers


async def test_it_listens_on_this_machine_alone(served: Served) -> None:
    assert served.url.startswith("http://127.0.0.1:")


# ── the files ────────────────────────────────────────────────────────────────────────────────────────────────────

STATIC = ROOT / "muster" / "cli" / "ui" / "static"


def test_the_page_names_no_other_host_and_makes_no_markup_of_texts() -> None:
    for file in STATIC.iterdir():
        text = file.read_text().replace("http://www.w3.org/2000/svg", "")
        assert "://" not in text, file.name
        for never in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", 'style="', "onclick="):
            assert never not in text, file.name
        assert text.count("\n") <= 400, file.name


@pytest.mark.processes
def test_the_wheel_has_the_page(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    packed = {name for name in zipfile.ZipFile(wheel).namelist() if "/ui/static/" in name}
    assert packed == {f"muster/cli/ui/static/{each.name}" for each in STATIC.iterdir()}


# ── what a page is told ──────────────────────────────────────────────────────────────────────────────────────────


async def test_the_page_is_told_the_overview_and_nothing_where_it_knows_it(served: Served) -> None:
    status, text = await served.get("data?known=")
    told = msgspec.json.decode(text)
    assert status == 200
    assert msgspec.convert(told["overview"], Overview) == seen().overview
    assert (told["trouble"], told["whatIf"]) == ("", True)
    assert await served.get(f"data?known={told['number']}") == (204, "")


async def test_what_goes_wrong_later_is_told_beside_the_last_reading() -> None:
    answers: list[Any] = [seen(), errors.UnreachableError("gone", maybe_applied=False)]

    async def read() -> Seen:
        if not answers:
            await asyncio.Event().wait()
        if isinstance(found := answers.pop(0), Exception):
            raise found
        return found

    reader = Reader(read, no_events, 0.0)
    await reader.start()
    reading = asyncio.create_task(reader.run())
    async with asyncio.timeout(60):
        while (body := reader.news("1")) is None:  # noqa: ASYNC110 - a page asks again and again, too
            await asyncio.sleep(0)
    reading.cancel()
    told = msgspec.json.decode(body)
    assert told["trouble"] == "the API server does not answer: gone"
    assert msgspec.convert(told["overview"], Overview) == reader.seen.overview


def test_a_history_keeps_shares_over_time_and_is_thinned_out() -> None:
    history, first = History(), seen().overview
    for minute in range(MOST * 3):
        history.add(replace(first, taken=TAKEN + timedelta(minutes=minute)))
    found = history.of("night", "cpu")
    times = found["times"]
    assert MOST / 2 <= len(times) <= MOST
    assert {later - earlier for earlier, later in pairwise(times)} == {timedelta(minutes=4)}
    assert times[0] == TAKEN
    assert set(found["used"]) == {6.0}
    assert set(history.of("lab", "")["waiting"]) == {1.0}
    assert set(history.of(ALL, "cpu")["used"]) == {6.0}
    assert set(history.of("nobody", "cpu")["used"]) == {0.0}


def test_a_queue_that_comes_and_goes_has_nothing_before_and_after() -> None:
    history, with_night = History(), seen().overview
    without = replace(with_night, queues=tuple(each for each in with_night.queues if each.name != "night"))
    for each in (without, with_night, without):
        history.add(each)
    assert history.of("night", "cpu")["used"] == [0.0, 6.0, 0.0]


async def test_the_history_of_a_queue_is_told(served: Served) -> None:
    told = msgspec.json.decode((await served.get("history?queue=night&resource=cpu"))[1])
    assert (told["used"], told["waiting"]) == ([6.0], [0.0])


async def test_a_group_that_is_gone_is_told_of_in_a_sentence(served: Served) -> None:
    assert await served.get("group?namespace=team&name=gone") == (
        404,
        "there is no PodGroup team/gone, or not any more\n",
    )


def test_a_life_is_what_conditions_events_and_pods_say_in_the_order_of_time() -> None:
    objects = gang("g", [1, 1], "lab", "n")
    objects[0]["status"] |= {
        "lastPhaseTransitionTime": "2026-01-01T11:20:00Z",
        "conditions": [{"type": "Scheduled", "status": "True", "lastTransitionTime": "2026-01-01T11:15:00Z"}],
    }
    for minute, each in zip((16, 18), objects[1:], strict=True):
        each["status"]["startTime"] = f"2026-01-01T11:{minute}:00Z"
    told = Event(reason="Preempted", message="for hi", count=3, last_timestamp=datetime(2026, 1, 1, 11, 30, tzinfo=UTC))
    now = state([*OBJECTS, *objects])
    group = group_life.find(now, "team", "g")
    assert group is not None
    life = group_life.of(now, group, [told])
    assert [(each.when.minute, each.kind, each.what) for each in life.moments] == [
        (0, "created", "created"),
        (15, "condition", "Scheduled"),
        (16, "pods", "first pod on a node"),
        (18, "pods", "all of its pods on nodes: 2"),
        (20, "phase", "Running"),
        (30, "event", "Preempted"),
    ]
    assert life.moments[-1].times == 3
    assert [(each.name, each.node, each.placed is not None) for each in life.pods] == [
        ("g-0", "n", True),
        ("g-1", "n", True),
    ]


async def test_events_of_a_group_are_read_with_the_person_s_permissions(furnished: Any) -> None:
    server = furnished("busy.yaml")
    for name in ("train", "huge"):
        about = {"kind": "PodGroup", "name": name, "namespace": "team-a"}
        body = {"metadata": {"name": f"{name}.1", "namespace": "team-a", "uid": name}, "involvedObject": about}
        body |= {"apiVersion": "v1", "kind": "Event", "reason": "Told", "type": "Normal", "message": name}
        server.store.put((kinds.EVENTS.group, kinds.EVENTS.plural), body)
    client = Client(InProcessTransport(server))
    assert [each.message for each in await overviews.events_of(client, "team-a", "train")] == ["train"]


async def test_a_tenant_is_told_that_what_if_needs_more(furnished: Any) -> None:
    server = furnished("busy.yaml")
    client = Client(Restricted(InProcessTransport(server), "team-a"))
    question = Question("team-a", None, None, ("muster",), "text", None, None)
    reader = Reader(lambda: overviews.read(client, question), no_events, 3600)
    await reader.start()
    body = reader.news("")
    assert body is not None
    told = msgspec.json.decode(body)
    assert told["whatIf"] is False
    assert {each["namespace"] for each in told["overview"]["groups"]} == {"team-a"}
    with pytest.raises(ValueError, match=r"^what if needs the whole cluster"):
        await Suppositions(reader, ["muster"]).answer(b'{"drain": ["node-1"]}')


async def test_what_cannot_be_supposed_is_said_in_a_line(served: Served) -> None:
    assert await served.post("what-if", {"drain": ["x"]}) == (400, "drain: there is no node 'x'; there are m, n\n")
    status, text = await served.post("what-if", {"drian": ["n"]})
    assert (status, text.count("\n")) == (400, 1)
    status, text = await served.post("what-if", {"drain": ["n"]})
    assert (status, msgspec.json.decode(text)["displaced"][0]["pods"]) == (200, 2)


class Recorded:
    """Passes requests on, and keeps their methods."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self.methods: list[str] = []

    async def request(self, request: Request, *, within: float) -> Response:
        self.methods.append(request.method)
        response: Response = await self._inner.request(request, within=within)
        return response


async def test_the_cluster_is_only_read_whatever_is_asked_of_the_page(furnished: Any) -> None:
    transport = Recorded(InProcessTransport(furnished("busy.yaml")))
    client, question = Client(transport), Question("team-a", None, None, ("muster",), "text", None, None)
    reader = Reader(lambda: overviews.read(client, question), lambda *group: overviews.events_of(client, *group), 3600)
    await reader.start()
    server = UiServer(reader, Suppositions(reader, ["muster"]).answer)
    await server.start()
    async with aiohttp.ClientSession() as session:
        page = Served(server, reader, session)
        for path in ("", "data", "history?queue=default&resource=cpu", "group?namespace=team-a&name=train"):
            assert (await page.get(path))[0] == 200
        for path in ("what-if", "read"):
            assert (await page.post(path, {"drain": ["node-1"]}))[0] in {200, 204}
        for method in ("PUT", "PATCH", "DELETE"):
            assert (await page.ask(method, f"{page.url}group?namespace=team-a&name=train", {"Origin": page.origin}))[
                0
            ] == 405
    await server.stop()
    assert set(transport.methods) == {"GET"}


@pytest.mark.processes
async def test_expected_starts_are_played_beside_the_page_from_what_people_state() -> None:
    objects = [node("n", {"cpu": "4"}), queue("lab"), *gang("runs", [4], "lab", "n"), *gang("waits", [4], "lab")]
    for each in objects:
        if each["kind"] == "Pod":
            each["metadata"]["annotations"] |= {names.EXPECTED_DURATION: "90m"}
            each["status"]["startTime"] = "2026-01-01T11:00:00Z"
    now = seen(objects)
    found = await expected_starts.Forecasts(["muster"]).play(now)
    assert found.missing == ""
    told = found.groups["team/waits"]
    assert told.at is not None
    assert abs(told.at - datetime(2026, 1, 1, 12, 30, tzinfo=UTC)) < timedelta(minutes=2)
    assert told.text.startswith("about 12:3")

    async def read() -> Seen:
        return now

    reader = Reader(read, no_events, 3600)
    await reader.start()
    assert reader.news("1") is None
    reader.tell_starts(found)
    body = reader.news("1")
    assert body is not None
    start = msgspec.json.decode(body)["starts"]["groups"]["team/waits"]
    assert start.keys() == {"text", "brief", "at", "from", "to", "after", "arrivals"}
    assert start["arrivals"] is False


@pytest.mark.processes
async def test_a_future_that_takes_too_long_to_play_is_not_waited_for() -> None:
    found = await expected_starts.Forecasts(["muster"]).play(seen(), limit=0.0)
    assert found.missing == "no expected starts: this cluster's future isn't played within 0 seconds"
    assert expected_starts.pause(found) > expected_starts.INTERVAL


# ── the command ──────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.processes
async def test_the_command_prints_the_address_and_ends_at_ctrl_c(furnished: Callable[[str], Any]) -> None:
    furnished("busy.yaml")
    program = str(Path(sys.executable).with_name("muster"))
    process = await asyncio.create_subprocess_exec(program, "ui", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    url = (await process.stdout.readline()).decode().strip()
    async with aiohttp.ClientSession() as session, session.get(f"{url}data") as answer:
        told = await answer.json()
    assert {each["name"] for each in told["overview"]["groups"]} >= {"train", "later"}
    process.send_signal(signal.SIGINT)
    _, complaints = await process.communicate()
    assert (process.returncode, complaints) == (0, b"")


def test_the_page_is_opened_without_the_token_in_the_words_of_a_command(monkeypatch: pytest.MonkeyPatch) -> None:
    launched: list[Path] = []

    def launch(word: str) -> int:
        launched.append(Path(word))
        assert "secret" not in word
        assert "url=http://127.0.0.1:1/secret/" in Path(word).read_text()
        assert Path(word).parent.stat().st_mode & 0o077 == 0
        return 0

    monkeypatch.setattr(command.click, "launch", launch)
    with command._opened("http://127.0.0.1:1/secret/"):
        assert launched[0].exists()
    assert not launched[0].exists()
