"""An engine without a model: it answers every request with a given number of chat chunks, a given time apart.

As a program it listens on a port that the kernel chose and prints it. Every chunk is one write, so one packet.
"""

import asyncio
import re
import socket
import sys
from pathlib import Path

from processes import Group

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n"


def event(content, finish):
    """A chunk of about 250 bytes, as vLLM writes it."""
    return (
        'data: {"id":"chatcmpl-abca642d8f12c1400123456789abcdef","object":"chat.completion.chunk",'
        '"created":1796189129,"model":"meta-llama/Llama-3.1-8B","choices":[{"index":0,"delta":'
        f'{{"content":"{content}"}},"logprobs":null,"finish_reason":{finish},"token_ids":null}}]}}\n\n'
    ).encode()


def chunked(data):
    return b"%x\r\n%b\r\n" % (len(data), data)


OUTPUT = chunked(event(" tide", "null"))
END = chunked(event("", '"stop"')) + chunked(b"data: [DONE]\n\n") + chunked(b"")


async def answer(reader, writer, events, gap_s):
    """Serves one connection. The times are a plan made at the request, so that a late write delays no later one."""
    writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    loop = asyncio.get_running_loop()
    try:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            await reader.readexactly(int(re.search(rb"(?i)content-length: *(\d+)", head)[1]))
            begin = loop.time()
            writer.write(HEAD)
            for index in range(1, events + 1):
                await asyncio.sleep(begin + index * gap_s - loop.time())
                writer.write(OUTPUT)
            writer.write(END)
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()


async def serve(events, gap_s):
    server = await asyncio.start_server(
        lambda reader, writer: answer(reader, writer, events, gap_s), "127.0.0.1", 0, backlog=1024
    )
    print(f"port {server.sockets[0].getsockname()[1]}", flush=True)
    await server.serve_forever()


class PacedEngine:
    """The program above, started."""

    def __init__(self, folder, events, gap_s, name="paced"):
        self.name, self.events, self.gap_s = name, events, gap_s
        self.group = Group([sys.executable, __file__, events, gap_s], Path(folder) / f"{name}-engine.log")
        self.port = int(self.group.wait_for(r"^port (\d+)$", 20, "the paced engine prints its port")[1])
        self.url = f"http://127.0.0.1:{self.port}"

    def stop(self):
        self.group.stop()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1]), float(sys.argv[2])))
