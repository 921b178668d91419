"""What callers cost the webhook server that send bodies without an end, and texts that are hard to read.

    python benchmarks/hostile_calls.py [CHECKOUT]

CHECKOUT is another checkout with a `.venv` of its own, to compare with. Printed: the memory of the server before, while 50
connections hold bodies that lack one byte, with ``timeout=999999s`` in the URL, and 20 seconds later; how many connections
are open then, and of 50 that have sent nothing; and how long reading a waiting time of 200,000 digits takes.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import multiprocessing
import os
import ssl
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import calibration

CONNECTIONS: Final = 50
BODY: Final = 8 * 1024 * 1024
LATER: Final = 20.0
DIGITS: Final = 200_000


def resident(pid: int) -> float:
    """Return a process' memory in MiB."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:")) / 1024


async def hold(port: int, pid: int) -> None:
    """Open the connections, and tell what they do to the server."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    before = resident(pid)
    head = f"POST /validate/pods?timeout=999999s HTTP/1.1\r\nHost: w\r\nContent-Length: {BODY}\r\n\r\n".encode()
    streams = []

    async def one(first: bytes, size: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
        streams.append((reader, writer))
        try:
            writer.write(first + b"x" * size)
            await writer.drain()
        except ConnectionError:
            return

    await asyncio.wait_for(asyncio.gather(*(one(head, BODY - 1) for _ in range(CONNECTIONS))), 60)
    await asyncio.sleep(2)
    print(f"{CONNECTIONS} unfinished bodies: {before:.0f} MiB before, {resident(pid):.0f} MiB with them", end="")
    bodies, streams = streams, []
    await asyncio.gather(*(one(b"", 0) for _ in range(CONNECTIONS)))
    await asyncio.sleep(LATER)
    still = [sum([await is_open(reader) for reader, _ in group]) for group in (bodies, streams)]
    print(
        f", {resident(pid):.0f} MiB {LATER:.0f} s later; open then: {still[0]} of them, {still[1]} of {CONNECTIONS} idle"
    )
    for _, writer in bodies + streams:
        writer.transport.abort()


async def is_open(reader: asyncio.StreamReader) -> bool:
    """Whether the server has not closed a connection."""
    try:
        async with asyncio.timeout(0.05):
            while await reader.read(65536):
                pass
    except TimeoutError:
        return True
    except OSError:
        return False
    return False


def waiting_time() -> None:
    """Tell how long it takes to read a waiting time that is all digits; no longer than half a minute."""
    durations = next(module for name in ("muster.model.durations", "scheduler.durations") if (module := found(name)))
    read = durations.seconds if hasattr(durations, "seconds") else durations.duration
    for count in (DIGITS // 16, DIGITS // 4, DIGITS):
        began = time.process_time()
        with contextlib.suppress(ValueError):
            read("1" * count)
        spent = time.process_time() - began
        print(f"a waiting time of {count} digits: {spent:.4f} s")
        if spent > 30:
            return


def found(name: str) -> Any:
    """Return a module, or None where there is none."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError:
        return None


def main() -> None:
    if len(sys.argv) > 1:
        checkout, this = Path(sys.argv[1]).resolve(), str(Path(__file__).resolve())
        os.chdir(checkout)
        environment = {**os.environ, "PYTHONPATH": str(checkout)}
        python = str(checkout / ".venv/bin/python")
        os.execve(python, [python, this], environment)
    sys.path.insert(0, str(Path.cwd() / "benchmarks"))
    admission = importlib.import_module("admission")
    calibration.tell()
    waiting_time()
    with tempfile.TemporaryDirectory() as name:
        folder, now = Path(name), datetime.fromtimestamp(int(Path(name).stat().st_mtime), UTC)
        pair = admission.authority.issue(admission.authority.new_ca(now), ("127.0.0.1",), now)
        (folder / "tls.crt").write_bytes(pair.certificate)
        (folder / "tls.key").write_bytes(pair.key)
        receiver, sender = multiprocessing.Pipe(duplex=False)
        server = multiprocessing.Process(target=admission.run_server, args=(folder, "uvloop", sender))
        server.start()
        try:
            assert receiver.poll(60)
            assert server.pid is not None
            asyncio.run(hold(receiver.recv(), server.pid))
        finally:
            server.terminate()
            server.join(10)


if __name__ == "__main__":
    main()
