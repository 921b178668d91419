"""Chromium, as Debian has it: found, or installed; and one without a screen, driven over its DevTools protocol.

As a program it installs the browser where it is missing, for which it has to be root; exit status: 0 it is there, 1 it isn't.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

PACKAGES = ("chromium", "fonts-dejavu-core")
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--hide-scrollbars", "--remote-debugging-port=0",
)  # fmt: skip
MISSING = "there is no chromium here: run python3 tests/support/chromium.py as root, which installs Debian's"
_ENOUGH = 60.0  # seconds, of a machine that is busy


def find() -> str | None:
    """Return the path of the browser."""
    return shutil.which("chromium")


def main() -> int:
    """Install what is missing."""
    if find():
        return 0
    install = ["apt-get", "-q", "-y", "-o", "APT::Sandbox::User=root", "install", "--no-install-recommends", *PACKAGES]
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    for update in (False, True):
        # A machine that has never asked knows no packages, and one that asked long ago knows those that are gone.
        if update:
            subprocess.run(["apt-get", "-q", "update"], stdout=sys.stderr, check=False)
        if not subprocess.run(install, env=environment, stdout=sys.stderr, check=False).returncode:
            break
    if find() is None:
        sys.stderr.write("chromium: its package can't be installed\n")
        return 1
    return 0


class Page:
    """A page of a browser. `errors` has what its console and its scripts complained of."""

    def __init__(self, socket: Any) -> None:
        self._socket = socket
        self._number = 0
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self.errors: list[str] = []

    async def listen(self) -> None:
        """Take in what the browser says, until it says no more."""
        async for message in self._socket:
            found = message.json()
            if "id" in found:
                self._answers.pop(found["id"]).set_result(found)
            elif found["method"] == "Runtime.exceptionThrown":
                details = found["params"]["exceptionDetails"]
                self.errors.append(str(details.get("exception", {}).get("description") or details["text"]))
            elif found["method"] == "Log.entryAdded" and found["params"]["entry"]["level"] == "error":
                self.errors.append(str(found["params"]["entry"]["text"]))

    async def send(self, method: str, **params: Any) -> dict[str, Any]:
        """Call a method of the protocol; return its result."""
        self._number += 1
        answer = self._answers[self._number] = asyncio.get_running_loop().create_future()
        await self._socket.send_json({"id": self._number, "method": method, "params": params})
        found = await asyncio.wait_for(answer, _ENOUGH)
        if "error" in found:
            raise RuntimeError(f"{method}: {found['error']}")
        result: dict[str, Any] = found["result"]
        return result

    async def open(self, url: str) -> None:
        """Go to an address; don't wait for it."""
        await self.send("Page.navigate", url=url)

    async def run(self, script: str) -> Any:
        """Return what an expression comes to; a promise is waited for."""
        found = await self.send("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in found:
            raise RuntimeError(found["exceptionDetails"].get("exception", {}).get("description", script))
        return found["result"].get("value")

    async def until(self, script: str) -> Any:
        """Wait until an expression is true; return it."""
        value = None
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_ENOUGH):
                while not value:
                    value = await self.run(script)
                    await asyncio.sleep(0 if value else 0.05)
        assert value, f"never true: {script}; the page: {await self.run('document.body.innerText')}; {self.errors}"
        return value

    async def press(self, key: str) -> None:
        """Press a key, and let it go."""
        text = key if len(key) == 1 else "\r" if key == "Enter" else ""
        down = {"text": text} if text else {}
        await self.send("Input.dispatchKeyEvent", type="keyDown", key=key, **down)
        await self.send("Input.dispatchKeyEvent", type="keyUp", key=key)

    async def type(self, text: str) -> None:
        """Type into what has the focus."""
        await self.send("Input.insertText", text=text)

    async def scheme(self, name: str) -> None:
        """Prefer ``light`` or ``dark``."""
        await self.send("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": name}])

    async def size(self, width: int, height: int, scale: float = 1) -> None:
        """Be as large as this, in CSS pixels."""
        await self.send("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale, mobile=False)  # fmt: skip

    async def screenshot(self) -> bytes:
        """Return what is seen, as PNG."""
        found = await self.send("Page.captureScreenshot", format="png", optimizeForSpeed=False)
        return base64.b64decode(found["data"])


@asynccontextmanager
async def browser() -> AsyncIterator[Page]:
    """Run a browser with one empty page, and nothing of anybody's own."""
    import aiohttp

    program = find()
    assert program is not None, MISSING
    with tempfile.TemporaryDirectory(prefix="muster-chromium-", ignore_cleanup_errors=True) as folder:
        process = await asyncio.create_subprocess_exec(
            program, *FLAGS, f"--user-data-dir={folder}", "about:blank",
            stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL, env=os.environ | {"HOME": folder},
        )  # fmt: skip
        try:
            port = await _port(Path(folder) / "DevToolsActivePort")
            async with aiohttp.ClientSession(trust_env=False) as session:
                async with session.get(f"http://127.0.0.1:{port}/json/list") as answer:
                    (target,) = [each for each in await answer.json() if each["type"] == "page"]
                async with session.ws_connect(target["webSocketDebuggerUrl"], max_msg_size=0) as socket:
                    page = Page(socket)
                    listening = asyncio.create_task(page.listen())
                    for domain in ("Page", "Runtime", "Log", "Network"):
                        await page.send(f"{domain}.enable")
                    yield page
                    listening.cancel()
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.terminate()
            await process.wait()


async def _port(file: Path) -> str:
    """Return the port that the browser chose, once it has written it down."""
    async with asyncio.timeout(_ENOUGH):
        while not (said := _read(file)):  # noqa: ASYNC110 - another program writes it
            await asyncio.sleep(0.05)
    return said[0]


def _read(file: Path) -> list[str]:
    """Return the lines of a file; none where it isn't there, or its first isn't whole."""
    text = file.read_text() if file.exists() else ""
    return text.splitlines() if "\n" in text else []


if __name__ == "__main__":
    sys.exit(main())
