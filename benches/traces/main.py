"""Replays each trace against a server that answers at once, and holds what came against the file. See `run`.

Lengths are those that the server read off the requests; times are those at which `evenkeel bench` says that it
issued them. The files are read by `sources.py`, not by Evenkeel."""

import argparse
import asyncio
import json
import math
import os
import re
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import sources

# Bounds. Times: relative, what lateness may add. Draws of n: three standard errors of their number, and
# Kolmogorov's 1.63/sqrt(n) for every share of lengths. A sample's CV of heavy tails strays: a quarter.
RATE, GAP_CV, DRAWN_CV = 0.01, 0.05, 0.25
KOLMOGOROV = 1.63
SHARES = (0.5, 0.9, 0.99)
# Requests to draw of ServeGen's rates, and the rate of lengths that have no times.
DRAWN, UNTIMED_RATE = 10_000, 1000.0

ANSWER = b'data: {"choices":[{"index":0,"text":"a","finish_reason":"length"}]}\n\ndata: [DONE]\n\n'
REPLY = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: %d\r\n\r\n" % len(ANSWER)
) + ANSWER
LENGTH = re.compile(rb"content-length: (\d+)", re.IGNORECASE)
MAX_TOKENS = re.compile(rb'"max_tokens":(\d+)')
PROMPT = re.compile(rb'"prompt":"([^"]*)"')


class NullServer(asyncio.Protocol):
    """Answers every request with one token and notes its lengths in words and tokens."""

    got = []

    def connection_made(self, transport):
        self.transport, self.parts, self.wanted = transport, [], None

    def data_received(self, data):
        self.parts.append(data)
        if self.wanted is None:
            self.begin()
        if self.wanted is not None:
            self.wanted -= len(data)
            if self.wanted <= 0:
                self.answer()

    def begin(self):
        head, blank, body = b"".join(self.parts).partition(b"\r\n\r\n")
        if blank:
            # what came of the body is taken off twice, here and by the caller
            last = len(self.parts[-1])
            self.wanted = int(LENGTH.search(head).group(1)) - len(body) + last

    def answer(self):
        body = b"".join(self.parts).partition(b"\r\n\r\n")[2]
        self.parts, self.wanted = [], None
        prompt = PROMPT.search(body).group(1)
        words = prompt.count(b" ") + 1 if prompt.strip() == prompt else len(prompt.split())
        NullServer.got.append((words, int(MAX_TOKENS.search(body).group(1))))
        self.transport.write(REPLY)


def serve():
    """The port of a null server in a thread of its own."""
    loop = asyncio.new_event_loop()
    server = loop.run_until_complete(loop.create_server(NullServer, "127.0.0.1", 0, backlog=4096))
    threading.Thread(target=loop.run_forever, daemon=True).start()
    return server.sockets[0].getsockname()[1]


def plan(folder):
    """What to replay: name, file, source and options."""
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.name.startswith("azure") and path.suffix == ".csv":
            yield name, path, sources.azure(path), []
        elif path.name.startswith("mooncake"):
            source = sources.mooncake(path)
            coarse = len(set(source.times_s)) < source.rows / 2
            yield name + (", as stamped" if coarse else ""), path, source, ["--keep-ticks"]
            if coarse:
                yield name + ", ticks spread", path, source, []
        elif path.name.startswith("lengths"):
            source = sources.lengths(path)
            source.options = ["--request-rate", str(UNTIMED_RATE), "--num-prompts", str(source.rows)]
            yield name, path, source, []
        elif path.suffix == ".json" and "otel" in path.parts:
            yield name, path, sources.spans(path), []
        elif path.name.endswith("_trace.csv"):
            yield from servegen(name, path)


def servegen(name, path):
    """All windows, and the busiest; a client without lengths takes those of another of its model."""
    own = path.with_name(path.name.replace("_trace.csv", "_dataset.json"))
    model = path.name.split("_client")[0]
    others = sorted(path.parent.glob(f"{model}_client*_dataset.json"))
    lengths = own if own.exists() else others[0]
    borrowed = "" if own.exists() else f" (lengths of {lengths.name})"
    for busiest, part in ((False, "all windows"), (True, "busiest window")):
        yield f"{name}, {part}{borrowed}", path, sources.servegen(path, str(lengths), DRAWN, busiest), []


def quantile(ascending, share):
    """The least value that `share` of all are not above."""
    return ascending[min(max(math.ceil(len(ascending) * share) - 1, 0), len(ascending) - 1)]


def share_quantile(shares, share):
    up_to = 0.0
    for length, part in shares.items():
        up_to += part
        if up_to >= share - 1e-12:
            return length
    return length


def rate_and_cv(times_s):
    gaps = [after - before for before, after in zip(times_s, times_s[1:])]
    mean = sum(gaps) / len(gaps)
    deviation = math.sqrt(sum((gap - mean) ** 2 for gap in gaps) / len(gaps))
    return 1 / mean, deviation / mean


class Judged:
    """Figures of the file beside those of the run, and what is out of bounds."""

    def __init__(self):
        self.wrong = []

    def near(self, what, source, realised, bound):
        if abs(realised - source) > bound:
            self.wrong.append(f"{what} {realised:.4g} for {source:.4g}")


def replay(port, path, source, more, seconds, folder):
    """One run: its result, and the times of issue in seconds, ascending."""
    options = list(source.options) + more
    span_s = source.span_s or (source.times_s and max(source.times_s) - min(source.times_s))
    scale = min(1.0, seconds / span_s) if span_s else 1.0
    if span_s:
        options += ["--time-scale", repr(scale)]
    result, lines = folder / "r.json", folder / "r.jsonl"
    command = [os.environ["EVENKEEL_BIN"], "bench", "--base-url", f"http://127.0.0.1:{port}", "--model", "m"]
    command += ["--trace", str(path), "--save-result", str(result), "--requests-jsonl", str(lines)]
    NullServer.got.clear()
    done = subprocess.run(command + [str(option) for option in options], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}\n{done.stdout}{done.stderr}")
    stamps = [json.loads(line)["metadata"]["request_start_ns"] for line in lines.read_text().splitlines()]
    first = min(stamps)
    return json.loads(result.read_text()), [(at - first) / 1e9 for at in sorted(stamps)], scale


def row(name, source, result, times_s, scale):
    """A line of the table."""
    judged, ours = Judged(), result["evenkeel"]
    sent, trace = len(NullServer.got), ours["trace"]
    rate, cv = rate_and_cv(times_s)
    spread = trace["tick_s"]
    if source.expected:
        wanted_rate, wanted_cv = source.expected / (source.span_s * scale), source.cv
        judged.near("requests", source.expected, sent, 3 * source.number_error)
        rate = sent / (source.span_s * scale)
        if wanted_cv:
            judged.near("CV", wanted_cv, cv, wanted_cv * DRAWN_CV)
    elif source.times_s:
        times = sorted(source.times_s)
        wanted_rate, wanted_cv = rate_and_cv(times)
        wanted_rate /= scale
        tick = spread / (times[-1] - times[0]) if spread else 0.0
        judged.near("rate", wanted_rate, rate, wanted_rate * (RATE + tick))
        if not spread:
            judged.near("CV", wanted_cv, cv, max(wanted_cv, 1.0) * GAP_CV)
        judged.near("requests", source.rows, sent, 0)
    else:
        wanted_rate, wanted_cv = UNTIMED_RATE, 1.0
        judged.near("rate", wanted_rate, rate, wanted_rate * 3 / math.sqrt(sent))
        judged.near("CV", wanted_cv, cv, GAP_CV)
        judged.near("requests", source.rows, sent, 0)
    cells = [name, f"{trace['rows']:,} ({trace['malformed']['count']})", f"{sent:,}"]
    cells.append(f"{wanted_rate:.4g} / {rate:.4g}")
    cells.append(f"{'-' if wanted_cv is None else format(wanted_cv, '.3g')} / {cv:.3g}")
    prompts, outputs = zip(*NullServer.got)
    cells.append(lengths(judged, "prompt", source.prompts, source.prompt_shares, prompts))
    cells.append(lengths(judged, "output", source.outputs, source.output_shares, outputs))
    lag = (ours["generator"]["lag"] or {}).get("p99_ms")
    cells.append(f"{lag:.2g}")
    if result["failed"]:
        judged.wrong.append(f"{result['failed']} failed")
    judged.wrong += ours["sent"]["differences"] if not source.expected else []
    cells.append("; ".join(judged.wrong) or "yes")
    return "| " + " | ".join(cells) + " |"


def lengths(judged, what, values, shares, got):
    """Quantiles of the file and of what came; "same" where they are equal."""
    got = sorted(got)
    if shares is None:
        wanted = [quantile(sorted(values), share) for share in SHARES]
        if sorted(values) != got:
            judged.wrong.append(f"{what} lengths are others")
    else:
        wanted = [share_quantile(shares, share) for share in SHARES]
        stray = KOLMOGOROV / math.sqrt(len(got))
        up_to, index = 0.0, 0
        for length, part in shares.items():
            up_to += part
            while index < len(got) and got[index] <= length:
                index += 1
            if abs(index / len(got) - up_to) > stray:
                judged.wrong.append(f"{what}s to {length}: {index / len(got):.3f} for {up_to:.3f}")
                break
    realised = [quantile(got, share) for share in SHARES]
    text = " ".join(f"{value:,}" for value in wanted)
    return f"{text} / " + ("same" if wanted == realised else " ".join(f"{value:,}" for value in realised))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seconds", type=float, default=15.0)
    parser.add_argument("--only", action="append", help="a word in the names to replay")
    args = parser.parse_args()
    port = serve()
    print("| file | rows (malformed) | sent | req/s | CV of gaps | prompt P50 P90 P99 | output P50 P90 P99 | lag P99, ms | within bounds |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    for name, path, source, more in plan(args.folder):
        if args.only and not any(word in name for word in args.only):
            continue
        with tempfile.TemporaryDirectory() as folder:
            result, times_s, scale = replay(port, path, source, more, args.seconds, Path(folder))
        print(row(name, source, result, times_s, scale), flush=True)


main()
