"""An engine that answers every request at once with more than sockets hold, as fast as it is taken.

As a program it listens on a port that the kernel chose and prints it.
"""

import asyncio
import sys
from pathlib import Path

from processes import Group

PIECE, PIECES = b"x" * 16_384, 256
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: %d\r\n\r\n" % (len(PIECE) * PIECES)


async def answer(reader, writer):
    """Serves one connection; a request has no body."""
    try:
        while True:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(HEAD)
            for _ in range(PIECES):
                writer.write(PIECE)
                await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()


async def serve():
    server = await asyncio.start_server(answer, "127.0.0.1", 0, backlog=1024)
    print(f"port {server.sockets[0].getsockname()[1]}", flush=True)
    await server.serve_forever()


class FloodEngine:
    """The program above, started."""

    def __init__(self, folder):
        self.group = Group([sys.executable, __file__], Path(folder) / "flood-engine.log")
        port = self.group.wait_for(r"^port (\d+)$", 20, "the flooding engine prints its port")[1]
        self.url = f"http://127.0.0.1:{port}"

    def stop(self):
        self.group.stop()


if __name__ == "__main__":
    asyncio.run(serve())
