"""The page of `muster ui` in a real browser: what it shows, its keys, and that texts of tenants are texts."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import chromium
import pytest
import showcase
from asked import asked, gang, node, queue, quota
from chromium import Page

from muster.cli import expected_starts
from muster.cli.overviews import Seen
from muster.cli.ui.reader import Reader
from muster.cli.ui.server import UiServer
from muster.cli.ui.suppositions import Suppositions
from muster.model.objects import Event
from muster.whatif.overview import overview

pytestmark = [
    pytest.mark.processes,
    pytest.mark.skipif(chromium.find() is None, reason=chromium.MISSING),
    pytest.mark.xdist_group("chromium"),
]

HOSTILE = '<img src=x onerror="window.hostile=1"><script>window.hostile=1</script>'
OBJECTS = [
    node("n", {"cpu": "8"}),
    node("m", {"cpu": "8"}),
    queue("lab", weight=1, guarantee={"resource": {"cpu": "1"}}),
    queue("vision", parent="lab"),
    queue("night", weight=3),
    *gang("runs", [4, 2], "night", "n"),
    *gang("waits", [6, 6], "vision"),
    quota("limits", cpu="10"),
]
OBJECTS[-1]["metadata"]["namespace"] = "others"


def hostile() -> list[Any]:
    """Return objects whose names and texts are markup, as an API server that doesn't check would send them."""
    objects = [
        *OBJECTS,
        queue(f"q{HOSTILE}", weight=1),
        *gang(f"g{HOSTILE}", [9, 9], f"q{HOSTILE}"),
        quota(HOSTILE, cpu="1"),
    ]
    group = next(each for each in objects if each["metadata"]["name"] == f"g{HOSTILE}")
    told = {
        "type": "Unschedulable",
        "status": "True",
        "reason": "Not",
        "message": HOSTILE,
        "lastTransitionTime": "2026-01-01T11:30:00Z",
    }
    group["status"]["conditions"] = [told]
    return objects


async def no_events(_: str, __: str) -> Sequence[Event]:
    return ()


@pytest.fixture
async def page() -> AsyncIterator[Page]:
    async with chromium.browser() as found:
        await found.size(1440, 860)
        yield found


@pytest.fixture
async def opened(page: Page) -> AsyncIterator[Callable[..., Any]]:
    """Opens the page of a cluster with some objects."""
    servers: list[UiServer] = []

    async def show(objects: Sequence[Any] = OBJECTS, fragment: str = "") -> UiServer:
        cluster = asked(objects)
        seen = Seen(overview(cluster.state, [], cluster.decide()), cluster.state, (), cluster.policy)

        async def read() -> Seen:
            return seen

        reader = Reader(read, no_events, 3600)
        await reader.start()
        server = UiServer(reader, Suppositions(reader, ["muster"]).answer)
        await server.start()
        servers.append(server)
        await page.open(server.url + fragment)
        await page.until("document.readyState === 'complete' && document.querySelectorAll('#tree .row').length > 0")
        return server

    yield show
    for each in servers:
        await each.stop()
    assert page.errors == []


SHOWN = "[...document.querySelectorAll('{} .row')].filter(each => !each.hidden).sort((a, b) => a.row.at - b.row.at).map(each => each.innerText)"


async def rows(page: Page, box: str) -> list[str]:
    await page.run("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
    found: list[str] = await page.run(SHOWN.format(box))
    return [" ".join(each.split()) for each in found]


async def test_queues_stand_below_their_parents_with_their_amounts(page: Page, opened: Any) -> None:
    await opened()
    found = await rows(page, "#tree")
    assert [each.removeprefix("▾ ").split()[0] for each in found] == ["All", "lab", "vision", "night"]
    said = await page.run(
        "[...document.querySelectorAll('#tree .bar')].map(each => each.getAttribute('aria-label')).join('\\n')"
    )
    assert "cpu: uses 6, deserves" in said
    await page.until("document.querySelector('#summary').innerText.includes('1 wait')")


async def test_the_line_says_who_waits_and_why_first(page: Page, opened: Any) -> None:
    await opened()
    first, second = await rows(page, "#groups")
    assert "W team/waits" in first
    assert "enqueue: 2 pods need 12 cpu" in first
    assert "R team/runs" in second


async def test_with_keys_alone_one_goes_through_queues_groups_and_a_life(page: Page, opened: Any) -> None:
    await opened()
    for key in ("q", "j", "ArrowDown", "ArrowDown", "Enter"):
        await page.press(key)
    await page.until("document.querySelector('#line-title').innerText === 'night'")
    assert len(await rows(page, "#groups")) == 1
    for key in ("g", "ArrowDown", "Enter"):
        await page.press(key)
    await page.until("!document.querySelector('#life').hidden")
    said = await page.run("document.querySelector('#life').innerText")
    assert "team/runs: Running in queue night" in said
    assert "C created" in said
    await page.press("Escape")
    await page.until("document.querySelector('#life').hidden")
    for key in ("q", "Home", "j", "ArrowLeft"):
        await page.press(key)
    assert [each.split()[:2] for each in await rows(page, "#tree")][1:3] == [["▸", "lab"], ["night", "6"]]


async def test_a_filter_is_typed_after_a_slash_and_ends_with_escape(page: Page, opened: Any) -> None:
    await opened()
    await page.press("/")
    await page.type("runs")
    await page.until("document.querySelectorAll('#groups .row:not([hidden])').length === 1")
    await page.press("Escape")
    await page.until("document.querySelectorAll('#groups .row:not([hidden])').length === 2")


async def test_a_drain_is_asked_about_on_the_page(page: Page, opened: Any) -> None:
    await opened()
    await page.press("5")
    await page.run("document.querySelector('#drain').focus()")
    await page.type("n")
    await page.press("Enter")
    await page.until("document.querySelector('#effects').innerText.includes('Have pods on drained nodes: 1 group')")
    assert "nothing makes these pods again" in await page.run("document.querySelector('#effects').innerText")
    await page.type("x")
    await page.press("Enter")
    await page.until("document.querySelector('#effects').innerText.includes(\"there is no node 'nx'; there are m, n\")")
    # The refused question is in the browser's log as well.
    assert all("400" in each for each in page.errors)
    page.errors.clear()


async def test_more_nodes_and_another_weight_are_asked_about_on_the_page(page: Page, opened: Any) -> None:
    await opened()
    await page.press("5")
    effects = "document.querySelector('#effects').innerText"
    await page.run("document.querySelector('#add-count').value = '1'; document.querySelector('#add-like').focus()")
    await page.press("Enter")
    await page.until(f"{effects}.includes('Groups that wait: 0 with the changes, 1 without.')")
    said = await page.run(effects)
    assert "Start with the changes, and not without: 1 group" in said
    assert "team/waits" in said
    await page.run(
        "document.querySelector('#add-count').value = '0'; document.querySelector('#weight-queue').value = 'vision'"
    )
    await page.run("document.querySelector('#weight').value = '9'; document.querySelector('#weight').focus()")
    await page.press("Enter")
    await page.until(f"{effects}.includes('Groups that wait: 1 with the changes, 1 without.')")
    said = await page.run(effects)
    assert "Shares of queues, without the changes → with them" in said
    assert "6 → 3.75" in said


async def test_what_was_chosen_is_there_again_when_the_page_is_loaded_again(page: Page, opened: Any) -> None:
    await opened(OBJECTS, "#queue=night&tab=quotas")
    assert (await rows(page, "#quota-rows"))[0].startswith("others/limits cpu")
    assert await page.run("document.querySelector('#tree .chosen').innerText.includes('night')")


async def expecting(page: Page, start: str) -> None:
    """Have the page be told of an expected start."""
    await page.run(
        "window.fetch = (ask => async (path, options) => { const answer = await ask(path.startsWith('data') ? 'data?known=' : path, options);"
        " if (!path.startsWith('data')) return answer; const told = await answer.json();"
        f" told.starts = {{groups: {{'team/waits': {start}}}, missing: ''}};"
        " return new Response(JSON.stringify(told)); })(window.fetch)"
    )


async def test_what_starts_later_than_was_played_is_drawn_from_there_on(page: Page, opened: Any) -> None:
    await page.send("Emulation.setTimezoneOverride", timezoneId="UTC")
    await opened()
    await expecting(page, "{at: null, from: null, to: null, after: '2026-01-01T12:20:00Z', text: 'after 12:20 UTC'}")
    await page.until("!document.querySelector('#legend-start').hidden")
    first = "[...document.querySelectorAll('#groups .row')].find(each => each.innerText.includes('waits'))"
    assert "expected to start after 12:20 UTC" in await page.run(f"{first}.querySelector('.bar').ariaLabel")
    assert ">12:20" in await page.run(f"{first}.innerText")
    assert await page.run(f"getComputedStyle({first}.querySelector('.at')).display") == "none"
    assert 0 < await page.run(f"parseFloat({first}.querySelector('.start').style.left)") < 100


async def test_an_expected_start_is_drawn_with_its_interval_where_there_is_one(page: Page, opened: Any) -> None:
    await page.send("Emulation.setTimezoneOverride", timezoneId="UTC")
    await opened()
    assert await page.run("document.querySelector('#legend-start').hidden")
    await expecting(
        page,
        "{at: '2026-01-01T12:20:00Z', from: '2026-01-01T12:05:00Z', to: '2026-01-01T13:10:00Z', text: 'about 12:20 UTC', arrivals: true}",
    )
    await page.until("!document.querySelector('#legend-start').hidden")
    first = "[...document.querySelectorAll('#groups .row')].find(each => each.innerText.includes('waits'))"
    said = await page.until(f"{first}.querySelector('.bar').getAttribute('aria-label')")
    assert "expected to start about 12:20 UTC" in said
    assert "~12:20" in await page.run(f"{first}.innerText")
    now, begin, median = [await page.run(f"parseFloat({first}.querySelector('{part}').style.left)") for part in (".now", ".start", ".at")]  # fmt: skip
    assert now < begin < median < 100


async def test_what_has_no_time_says_why_in_a_few_characters_that_have_room(page: Page, opened: Any) -> None:
    await opened()
    first = "[...document.querySelectorAll('#groups .row')].find(each => each.innerText.includes('waits'))"
    text = "no time can be told: it does not start within two weeks as the cluster is"
    await expecting(page, f"{{brief: 'not in 2 weeks', text: '{text}'}}")
    await page.until(f"{first}.innerText.includes('not in 2 weeks')")
    assert (await page.run(f"{first}.querySelector('.bar').ariaLabel")).endswith(f", {text}")
    assert await page.run(f"{first}.querySelector('.when').getBoundingClientRect().width <= 84")
    assert await page.run("document.querySelector('#legend-start').hidden")


async def test_who_stops_the_command_is_told_so_on_the_page(page: Page, opened: Any) -> None:
    server = await opened()
    await server.stop()
    await page.until("document.querySelector('#trouble').innerText.includes('is it still running?')")
    page.errors.clear()


async def test_markup_in_names_and_reasons_is_shown_and_never_runs(page: Page, opened: Any) -> None:
    await opened(hostile())
    assert any(HOSTILE in each for each in await rows(page, "#tree"))
    assert any(HOSTILE in each for each in await rows(page, "#groups"))
    await page.run(
        "[...document.querySelectorAll('#groups .row')].find(each => each.innerText.includes('<img')).click()"
    )
    await page.until("document.querySelector('#life').innerText.includes('<img')")
    await page.press("3")
    assert any(HOSTILE in each for each in await rows(page, "#quota-rows"))
    await page.press("2")
    await page.press("5")
    assert await page.run("document.images.length") == 0
    assert await page.run("document.scripts.length") == 1
    assert await page.run("window.hostile") is None


async def test_a_script_that_got_into_the_page_would_not_run_nor_reach_another_host(page: Page, opened: Any) -> None:
    await opened()
    assert "TrustedHTML" in await page.run(
        "try { document.body.innerHTML = '<b>x</b>' } catch (error) { error.message }"
    )
    for script in (
        "fetch('http://127.0.0.1:9/').then(() => 'sent', () => 'not sent')",
        "new Promise(done => { const made = new Image(); made.onload = () => done('sent'); made.onerror = () => done('not sent'); made.src = 'http://127.0.0.1:9/x.png' })",
    ):
        assert await page.run(script) == "not sent"
    assert all(
        "Content Security Policy" in each or "TrustedHTML" in each or "Trusted" in each for each in page.errors
    ), page.errors
    page.errors.clear()


async def test_another_site_in_the_same_browser_learns_nothing_and_is_not_answered(
    page: Page, opened: Any, tmp_path: Path
) -> None:
    server = await opened()
    (tmp_path / "evil.html").write_text("<title>evil</title>")
    await page.open(f"file://{tmp_path}/evil.html")
    await page.until("document.title === 'evil'")
    post = f"fetch('{server.url}what-if', {{method: 'POST', mode: 'no-cors', body: '{{}}'}}).then(answer => answer.type, () => 'refused')"
    assert await page.run(post) in {"opaque", "refused"}
    read = f"fetch('{server.url}data').then(answer => answer.text(), () => 'refused')"
    assert await page.run(read) == "refused"
    framed = f"new Promise(done => {{ const made = document.createElement('iframe'); made.onload = () => done(made.contentDocument); made.src = '{server.url}'; document.body.append(made) }})"
    assert await page.run(framed) is None
    page.errors.clear()


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_texts_can_be_read_on_their_paper(page: Page, opened: Any, scheme: str) -> None:
    await page.scheme(scheme)
    await opened()
    channels = "(text => text.match(/\\d+(\\.\\d+)?/g).slice(0, 3).map(Number))"
    luminance = f"(text => {channels}(text).map(each => (each /= 255) <= 0.03928 ? each / 12.92 : ((each + 0.055) / 1.055) ** 2.4).reduce((sum, each, at) => sum + each * [0.2126, 0.7152, 0.0722][at], 0))"
    for selector in ("body", "#summary", "#groups .reason", "#groups .when", ".badge.waits", ".row.head"):
        one, other = [await page.run(f"{luminance}(getComputedStyle(document.querySelector('{where}')).{what})") for where, what in ((selector, "color"), ("body", "backgroundColor"))]  # fmt: skip
        assert (max(one, other) + 0.05) / (min(one, other) + 0.05) >= 4.5, selector


@pytest.mark.parametrize("together", [("used", "borrowed", "unused"), ("waits", "runs", "start"), ("used", "full")])
async def test_parts_of_a_bar_differ_without_colours(page: Page, opened: Any, together: tuple[str, ...]) -> None:
    await opened()
    found = set()
    for kind in together:
        await page.run(
            f"document.querySelector('.bar').append(Object.assign(document.createElement('i'), {{className: '{kind}', id: '{kind}'}}))"
        )
        drawn = await page.run(
            f"(style => style.backgroundImage + ' ' + style.borderTopStyle)(getComputedStyle(document.querySelector('#{kind}')))"
        )
        found.add(re.sub(r"\w+\([\d., /]+\)", "a colour", drawn))
    assert all("rgb" not in each for each in found)
    assert len(found) == len(together), found


def pictures(folder: Path) -> set[str]:
    return {each.name for each in folder.glob("ui-*.png")}


async def test_the_pictures_of_the_docs_can_be_drawn_anew(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    docs = pictures(showcase.IMAGES)
    monkeypatch.setattr(showcase, "IMAGES", tmp_path)
    monkeypatch.setattr(expected_starts, "SECONDS", 1.0)
    await showcase.draw()
    assert pictures(tmp_path) == docs


async def test_ten_thousand_groups_are_a_few_rows_on_the_page(page: Page, opened: Any) -> None:
    groups = [each for number in range(10_000) for each in gang(f"g{number:05}", [9], "lab")[:1]]
    await opened([*OBJECTS, *groups])
    assert await page.run("document.querySelectorAll('#groups .row').length") < 60
    await page.press("g")
    await page.press("End")
    assert "team/runs" in (await rows(page, "#groups"))[-1]
    assert await page.run("document.querySelectorAll('#groups .row').length") < 60
