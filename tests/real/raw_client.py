"""A client on bare sockets: it stamps each read itself, so that no library stands between the wire and the clock.

One thread drives all streams through a selector, so a stamp waits for no other thread.
"""

import json
import selectors
import socket
import time
import uuid
from collections import deque

PATIENCE_S = 300


def http_request(path, body, request_id=None, method="POST"):
    """The bytes of one HTTP/1.1 request with a JSON body."""
    payload = json.dumps(body).encode() if body is not None else b""
    head = f"{method} {path} HTTP/1.1\r\nhost: evenkeel.test\r\ncontent-type: application/json\r\n"
    head += f"x-request-id: {request_id or uuid.uuid4()}\r\ncontent-length: {len(payload)}\r\n\r\n"
    return head.encode() + payload


class Dechunker:
    """Takes the chunked coding off, whatever the reads' borders."""

    def __init__(self):
        self.pending = b""
        self.done = False

    def feed(self, data):
        self.pending += data
        out = []
        while not self.done:
            line_end = self.pending.find(b"\r\n")
            if line_end < 0:
                break
            size = int(self.pending[:line_end].split(b";")[0], 16)
            whole = line_end + 2 + size + 2
            if len(self.pending) < whole:
                break
            out.append(self.pending[line_end + 2 : whole - 2])
            self.pending = self.pending[whole:]
            self.done = size == 0
        return b"".join(out)


class Answer:
    """One exchange: what was sent, what came back and when."""

    def __init__(self, request, request_id=None):
        self.request_id = request_id
        self.request = request
        self.sent_ns = self.first_output_ns = self.end_ns = None
        self.status, self.headers = None, {}
        self.body = b""
        self.complete = False
        self._head = b""
        self._dechunker = None
        self._scanned = 0

    @property
    def ttft_ms(self):
        """First byte sent to the read that completed the first output chunk."""
        return None if self.first_output_ns is None else (self.first_output_ns - self.sent_ns) / 1e6

    def events(self):
        """The data of every complete event."""
        blocks = self.body.split(b"\n\n")[:-1]
        return [block.split(b"data: ", 1)[1] for block in blocks if b"data: " in block]

    def chunks(self):
        """The events as JSON, the end marker left out."""
        return [json.loads(event) for event in self.events() if event != b"[DONE]"]

    def usage(self):
        """The last usage the stream carried, or None."""
        found = [chunk["usage"] for chunk in self.chunks() if chunk.get("usage")]
        return found[-1] if found else None

    def take(self, data, now_ns):
        """Takes one read, stamped `now_ns`."""
        if self.status is None:
            self._head += data
            head, separator, data = self._head.partition(b"\r\n\r\n")
            if not separator:
                return
            self._read_head(head)
        self.body += self._dechunker.feed(data) if self._dechunker else data
        if self.first_output_ns is None:
            self._look_for_output(now_ns)
        length = self.headers.get("content-length")
        self.complete = self._dechunker.done if self._dechunker else length is not None and len(self.body) >= int(length)
        if self.complete:
            self.end_ns = now_ns

    def _read_head(self, head):
        status_line, *lines = head.decode("latin-1").split("\r\n")
        self.status = int(status_line.split()[1])
        for line in lines:
            name, _, value = line.partition(":")
            self.headers[name.strip().lower()] = value.strip()
        if "chunked" in self.headers.get("transfer-encoding", ""):
            self._dechunker = Dechunker()

    def _look_for_output(self, now_ns):
        end = self.body.rfind(b"\n\n") + 2
        if end < 2 or end <= self._scanned:
            return
        fresh, self._scanned = self.body[self._scanned : end], end
        for block in fresh.split(b"\n\n"):
            if block.startswith(b"data: {") and has_output(json.loads(block[6:])):
                self.first_output_ns = now_ns
                return


def has_output(chunk):
    """Whether a chat or completions chunk carries visible output."""
    choices = chunk.get("choices") or []
    return any(choice.get("text") or (choice.get("delta") or {}).get("content") for choice in choices)


def connect(address):
    sock = socket.create_connection(address, timeout=PATIENCE_S)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


def exchange(address, path, body, request_id=None, method="POST"):
    """One request on a connection of its own, read to its end."""
    request_id = request_id or str(uuid.uuid4())
    return run(address, [Answer(http_request(path, body, request_id, method), request_id)], 1)[0]


def run(address, answers, concurrency):
    """Performs all exchanges, at most `concurrency` at a time, each on a new connection; returns them when all ended."""
    waiting, selector = deque(answers), selectors.DefaultSelector()
    open_count, deadline = 0, time.monotonic() + PATIENCE_S
    try:
        while waiting or open_count:
            while waiting and open_count < concurrency:
                _start(address, waiting.popleft(), selector)
                open_count += 1
            ready = selector.select(timeout=1)
            assert time.monotonic() < deadline, f"{open_count} streams open after {PATIENCE_S} s"
            for key, _ in ready:
                if not _read(key.fileobj, key.data):
                    selector.unregister(key.fileobj)
                    key.fileobj.close()
                    open_count -= 1
    finally:
        for key in list(selector.get_map().values()):
            key.fileobj.close()
        selector.close()
    return answers


def _start(address, answer, selector):
    sock = connect(address)
    answer.sent_ns = time.perf_counter_ns()
    sock.sendall(answer.request)
    selector.register(sock, selectors.EVENT_READ, answer)


def _read(sock, answer):
    """Reads what is there; False once the exchange has ended."""
    try:
        data = sock.recv(65536)
    except ConnectionResetError:
        data = b""
    now_ns = time.perf_counter_ns()
    if data:
        answer.take(data, now_ns)
    return bool(data) and not answer.complete


class OpenStream:
    """A stream that a test reads by hand, to leave it or to see it end."""

    def __init__(self, address, path, body):
        self.request_id = str(uuid.uuid4())
        self.answer = Answer(http_request(path, body, self.request_id), self.request_id)
        self.sock = connect(address)
        self.answer.sent_ns = time.perf_counter_ns()
        self.sock.sendall(self.answer.request)

    def read_until(self, condition):
        """Reads until `condition(answer)` holds or the stream ends."""
        while not condition(self.answer) and _read(self.sock, self.answer):
            pass
        return self.answer

    def read_to_end(self):
        return self.read_until(lambda answer: False)

    def leave(self):
        self.sock.close()
