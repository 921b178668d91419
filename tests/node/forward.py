"""Forwards connections of the machine's loopback into this network namespace: `forward.py DESCRIPTOR HOST PORT`.

The socket of the descriptor was made outside, and listens there.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import sys


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
    with contextlib.suppress(OSError):
        writer.write_eof()


async def main(descriptor: int, host: str, port: int) -> None:
    """Forward until it is ended."""

    async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            to_reader, to_writer = await asyncio.open_connection(host, port)
            await asyncio.gather(_copy(reader, to_writer), _copy(to_reader, writer))
            to_writer.close()
        writer.close()

    server = await asyncio.start_server(forward, sock=socket.socket(fileno=descriptor))
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), sys.argv[2], int(sys.argv[3])))
