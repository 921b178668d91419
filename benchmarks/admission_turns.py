"""What a review costs in this checkout and in another, in turns: processor time, by ratio.

    python benchmarks/admission_turns.py OTHER [--pairs 20] [--reviews 2000]

OTHER is a checkout with a `.venv` of its own and a `benchmarks/admission.py`, whose cases and server are used. Each turn is
a process of its own: reviews in process first, then over TLS, 16 connections that stay open, of which the server's time is
counted alone. The order of the two changes with each pair. Printed: the median of the ratios, and the least and the greatest.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import json
import multiprocessing
import os
import ssl
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

CONNECTIONS: Final = 16
_HERE: Final = Path(__file__).parents[1]


class _CapturedError(Exception):
    """The server that a benchmark has made."""


def _captured(*arguments: Any) -> Any:
    raise _CapturedError(arguments[0])


async def _made(admission: Any) -> Any:
    """Return the `Admission` that the checkout's benchmark serves."""
    server, admission.WebhookServer = admission.WebhookServer, _captured
    certificate, admission.LiveCertificate = admission.LiveCertificate, lambda _: None
    try:
        await admission.serve(Path(), None)
    except _CapturedError as captured:
        return captured.args[0]
    finally:
        admission.WebhookServer, admission.LiveCertificate = server, certificate
    raise AssertionError("the benchmark made no server")


def named_cases(admission: Any) -> Mapping[str, tuple[str, bytes]]:
    """Return the checkout's cases, with a name and a uid for each object that is validated: an API server gives them before."""
    named = {}
    for title, (path, body) in admission.cases().items():
        review = json.loads(body)
        if path.startswith("/validate/"):
            review["request"]["object"]["metadata"] |= {"name": "gang", "uid": "6a0e"}
        named[title] = path, json.dumps(review).encode()
    return named


async def _in_process(admission: Any, reviews: int) -> dict[str, float]:
    made, spent = await _made(admission), {}
    for title, (path, body) in named_cases(admission).items():
        for count in (reviews // 10, reviews):  # the first of them to get warm
            began = time.process_time()
            for _ in range(count):
                status, _, answer = await made.handle(path, {"timeout": "5s"}, body)
                assert status == 200
                assert b'"allowed":true' in answer, answer
            spent[f"{title}, in process"] = (time.process_time() - began) / count
    return spent


async def call(port: int, path: str, body: bytes, reviews: int) -> list[float]:
    """Send reviews over connections that stay open; return the seconds until each answer."""
    taken: list[float] = []
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    head = f"POST {path}?timeout=5s HTTP/1.1\r\nHost: webhooks\r\nContent-Type: application/json\r\n"
    request = f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body

    async def one() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
        for _ in range(reviews // CONNECTIONS):
            began = time.perf_counter()
            writer.write(request)
            answer = await reader.readuntil(b"\r\n\r\n")
            assert answer.startswith(b"HTTP/1.1 200"), answer
            length = next(line for line in answer.lower().split(b"\r\n") if line.startswith(b"content-length"))
            await reader.readexactly(int(length.split(b":")[1]))
            taken.append(time.perf_counter() - began)
        writer.close()

    await asyncio.gather(*(one() for _ in range(CONNECTIONS)))
    return taken


def nanoseconds(pid: int) -> int:
    """Return the processor time of a process with one thread."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0])


def _over_tls(admission: Any, reviews: int) -> dict[str, float]:
    spent = {}
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
            port, pid = receiver.recv(), server.pid
            assert pid is not None
            for title, (path, body) in named_cases(admission).items():
                asyncio.run(call(port, path, body, reviews // 10))
                began = nanoseconds(pid)
                asyncio.run(call(port, path, body, reviews))
                spent[f"{title}, TLS"] = (nanoseconds(pid) - began) / 1e9 / (reviews // CONNECTIONS * CONNECTIONS)
        finally:
            server.terminate()
            server.join(10)
    return spent


def _measure(reviews: int) -> None:
    sys.path.insert(0, str(Path.cwd() / "benchmarks"))
    admission = importlib.import_module("admission")  # of the checkout that is measured

    print(json.dumps(asyncio.run(_in_process(admission, reviews)) | _over_tls(admission, reviews)))


def _turn(checkout: Path, reviews: int) -> Mapping[str, float]:
    command = [
        str(checkout / ".venv/bin/python"),
        str(Path(__file__).resolve()),
        "--measure",
        "--reviews",
        str(reviews),
    ]
    environment = {**os.environ, "PYTHONPATH": str(checkout)}
    done = subprocess.run(command, cwd=checkout, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{checkout}: {done.stderr[-2000:]}")
    found: dict[str, float] = json.loads(done.stdout)
    return found


def _show(pairs: list[tuple[Mapping[str, float], Mapping[str, float]]]) -> None:
    for title in pairs[0][0]:
        ratios = [this[title] / other[title] for other, this in pairs]
        before, after = (1e6 * statistics.median(pair[which][title] for pair in pairs) for which in (0, 1))
        print(
            f"{title:42} {statistics.median(ratios):.3f} ({min(ratios):.2f} to {max(ratios):.2f})"
            f"   {before:6.1f} and {after:6.1f} us"
        )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("other", type=Path, nargs="?")
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--reviews", type=int, default=2000)
    parser.add_argument("--measure", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        _measure(arguments.reviews)
        return
    pairs: list[tuple[Mapping[str, float], Mapping[str, float]]] = []
    for number in range(arguments.pairs):
        order = [arguments.other.resolve(), _HERE]
        first, second = [_turn(checkout, arguments.reviews) for checkout in (order[::-1] if number % 2 else order)]
        pairs.append((second, first) if number % 2 else (first, second))
    print(f"{len(pairs)} pairs: this checkout to {arguments.other}, median (least to greatest), and the medians")
    _show(pairs)


if __name__ == "__main__":
    main()
