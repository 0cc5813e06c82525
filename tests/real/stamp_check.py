"""Evenkeel's stamps against a packet capture: one paced run, and how far stamp and packet are apart.

The chunk file counts from the last byte of the request at the instance, so the capture's times are counted from the
packet with that byte: no clocks are compared. Where a request came and went is compared by the wall clock.
"""

import selectors
import time
import uuid
from collections import deque

from packets import Capture, exchanges
from paced_engine import PacedEngine
from proxy import Proxy
from raw_client import PATIENCE_S, connect, http_request

KINDS = ["request came", "request went", "arrival", "hand-over", "server TTFT", "client TTFT"]
LAST_BYTES = b"\r\n0\r\n\r\n"


def run(folder, streams, events, gap_s, arrival="read"):
    """Sends paced streams through a proxy of its own under capture; returns the differences in us, by kind of stamp.
    `arrival` is what stamps arrivals at the proxy."""
    engine = PacedEngine(folder, events, gap_s)
    started = [engine]
    try:
        proxy = Proxy("proxy", [engine], folder, records='chunks = "all"', measure=f'arrival = "{arrival}"')
        started.append(proxy)
        ids = [str(uuid.uuid4()) for _ in range(streams)]
        drain(proxy.server, [http_request(PATH, BODY) for _ in range(2)], 0)  # connections, code
        capture = Capture(folder, [proxy.server[1], engine.port])
        started.append(capture)
        drain(proxy.server, [http_request(PATH, BODY, one) for one in ids], gap_s / streams)
        capture.stop()
        records, chunks = proxy.records_of(ids), proxy.chunks_of(ids)
        packets = list(capture.packets())
    finally:
        for one in reversed(started):
            one.group.stop()
    upstream, client = (side(packets, port) for port in (engine.port, proxy.server[1]))
    return differences(records, chunks, upstream, client, events)


def run_bare(folder, streams, events, gap_s):
    """The same without a proxy: how late a bare reader is on this machine, us."""
    engine = PacedEngine(folder, events, gap_s)
    started = [engine]
    try:
        capture = Capture(folder, [engine.port])
        started.append(capture)
        ids = [str(uuid.uuid4()) for _ in range(streams)]
        stamps = drain(("127.0.0.1", engine.port), [http_request(PATH, BODY, one) for one in ids], gap_s / streams)
        capture.stop()
        sent = side(list(capture.packets()), engine.port)
    finally:
        for one in reversed(started):
            one.group.stop()
    pairs = [pair for one, read_s in zip(ids, stamps) for pair in zip(read_s, sent[one].output_s)]
    return {"bare reader": [(read_s - sent_s) * 1e6 for read_s, sent_s in pairs]}


PATH = "/v1/chat/completions"
BODY = {"model": "any", "stream": True, "messages": [{"role": "user", "content": "Which way is the tide?"}]}


def side(packets, port):
    """Exchanges with the server at `port`."""
    streams = {packet.stream for packet in packets if packet.source == port}
    return exchanges((packet for packet in packets if packet.stream in streams), port)


def drain(address, requests, apart_s):
    """Sends the requests on connections of their own, a time apart, and reads every answer to its end. Returns for
    each answer the wall time after the read that brought an event, for every event."""
    waiting, selector, stamps = deque(requests), selectors.DefaultSelector(), []
    begin, deadline, ended = time.monotonic(), time.monotonic() + PATIENCE_S, 0
    while ended < len(requests):
        assert time.monotonic() < deadline, f"{len(requests) - ended} streams left after {PATIENCE_S} s"
        sent = len(requests) - len(waiting)
        if waiting and time.monotonic() >= begin + sent * apart_s:
            sock = connect(address)
            sock.sendall(waiting.popleft())
            sock.setblocking(False)
            stamps.append([])
            selector.register(sock, selectors.EVENT_READ, (bytearray(), stamps[-1]))
            continue
        wait_s = begin + sent * apart_s - time.monotonic() if waiting else 1
        for key, _ in selector.select(max(wait_s, 0)):
            data, now_s = key.fileobj.recv(65536), time.time()
            tail, read_s = key.data
            read_s += [now_s] * ((tail[-1:] + data).count(b"\n\n"))
            tail[:] = (tail + data)[-len(LAST_BYTES) :]
            if not data or tail == LAST_BYTES:
                assert data, "a stream was cut"
                selector.unregister(key.fileobj)
                key.fileobj.close()
                ended += 1
    return stamps


BEFORE_SENT = ("client_send_ms", "queue_ms", "retry_ms", "choose_ms", "connect_ms", "upstream_send_ms")


def differences(records, chunks, upstream, client, events):
    """Stamp less packet, us, by kind of stamp. Positive where the stamp is the later one."""
    found = {name: [] for name in KINDS}
    for record, line in zip(records, chunks):
        request_id = line["request_id"]
        at_instance, at_client = upstream[request_id], client[request_id]
        assert len(line["chunks"]) == len(at_instance.output_s) == len(at_client.output_s) == events, (
            f"{request_id}: {len(line['chunks'])} chunks logged, {len(at_instance.output_s)} sent by the engine, "
            f"{len(at_client.output_s)} sent to the client, {events} expected"
        )
        # these two by the wall clock, which the record's start and the capture share
        sent_s = record["start_s"] + sum(record["stages"][stage] for stage in BEFORE_SENT) / 1e3
        found["request came"].append((record["start_s"] - at_client.request_first_s) * 1e6)
        found["request went"].append((sent_s - at_instance.request_last_s) * 1e6)
        # all others from the request's own packets
        zero_s = at_instance.request_last_s
        for (arrival_us, _, _, handed_us), came_s, went_s in zip(
            line["chunks"], at_instance.output_s, at_client.output_s
        ):
            found["arrival"].append(arrival_us - (came_s - zero_s) * 1e6)
            if handed_us is not None:
                found["hand-over"].append(handed_us - (went_s - zero_s) * 1e6)
            server_us = (at_instance.output_s[0] - zero_s) * 1e6
        client_us = (at_client.output_s[0] - at_client.request_first_s) * 1e6
        found["server TTFT"].append(record["server_ttft_ms"] * 1e3 - server_us)
        found["client TTFT"].append(record["client_ttft_ms"] * 1e3 - client_us)
    return found


def quantile(values, share):
    """By the nearest rank."""
    ordered = sorted(values)
    return ordered[min(int(share * len(ordered)), len(ordered) - 1)]


def table(found):
    """The differences' sizes, and their median with its sign."""
    lines = [f"{'stamp':<14} {'n':>7} {'P50':>8} {'P90':>8} {'P99':>8} {'P99.9':>8} {'max':>8} {'signed P50':>11}  us"]
    for name, values in found.items():
        sizes = [abs(value) for value in values]
        columns = [quantile(sizes, share) for share in (0.5, 0.9, 0.99, 0.999, 1)] + [quantile(values, 0.5)]
        widths = (8, 8, 8, 8, 8, 11)
        lines.append(
            f"{name:<14} {len(values):>7} "
            + " ".join(f"{value:>{width}.1f}" for value, width in zip(columns, widths))
        )
    return "\n".join(lines)
