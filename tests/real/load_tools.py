"""Three load generators on one engine, one after the other, and their requests told by one definition.

A turn is one tool's closed load. Of each request its own file of the tool is read: when it was sent, when its first
and last output came, and the gaps between. What the engine says of the turn is taken from its counters before and
after.
"""

import json
import os
import statistics
import subprocess
from contextlib import contextmanager
from dataclasses import dataclass, field

from engines import HOME, MODEL
from proxy import binary

PLACES = 4
REQUESTS = 48
OUTPUT_TOKENS = 96
# Evenkeel's prompts are counted in words, which are about four of the tiny model's tokens each.
WORDS = 25
PROMPT_TOKENS = 94
PATIENCE_S = 180
# Local files only: aiperf refuses a folder as its tokenizer where the usual offline switch is set, so its hub is a
# port where nobody listens.
OFFLINE = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1"}
NO_HUB = {"HF_ENDPOINT": "http://127.0.0.1:9", "DO_NOT_TRACK": "1"}


@dataclass
class Request:
    """Times in seconds; first and last output since `start_s`."""

    start_s: float
    first_s: float
    last_s: float
    tokens: int
    gaps_s: list

    def tpot_s(self):
        return (self.last_s - self.first_s) / (self.tokens - 1)


@dataclass
class Turn:
    """A tool's requests in the order of their start, its own medians, and what the engine counted meanwhile."""

    tool: str
    requests: list
    own: dict
    keys: set = field(default_factory=set)
    lines: list = field(default_factory=list)
    engine: dict = field(default_factory=dict)

    def kept(self):
        """Without the beginning, when all places are filled at once and connections are made, and without the end."""
        return self.requests[2 * PLACES : -PLACES]

    def figures(self):
        """By one definition: medians of the times from sent to output, of TPOT over N - 1, and requests in the time
        from the first sent to the last answered."""
        kept = self.kept()
        ends_s = [one.start_s + one.last_s for one in self.requests]
        return {
            "ttft_ms": 1e3 * statistics.median(one.first_s for one in kept),
            "tpot_ms": 1e3 * statistics.median(one.tpot_s() for one in kept),
            "e2el_ms": 1e3 * statistics.median(one.last_s for one in kept),
            "requests_per_s": len(self.requests) / (max(ends_s) - self.requests[0].start_s),
        }

    def means(self):
        """Of all requests, in milliseconds, as the engine's sums are of all."""
        return {
            "ttft_ms": 1e3 * statistics.fmean(one.first_s for one in self.requests),
            "decode_ms": 1e3 * statistics.fmean(one.last_s - one.first_s for one in self.requests),
            "e2el_ms": 1e3 * statistics.fmean(one.last_s for one in self.requests),
        }

    def read_at_once(self):
        """Share of output that came with the output before it in one read of the client, or as good as."""
        close_s = 0.1 * self.engine["decode_ms"] / 1e3 / (OUTPUT_TOKENS - 1)
        gaps = [gap for one in self.kept() for gap in one.gaps_s]
        missing = sum(one.tokens - 1 - len(one.gaps_s) for one in self.kept())
        return (missing + sum(gap < close_s for gap in gaps)) / (missing + len(gaps))


def letters():
    """Tokens that are a letter each: every one is text, so that no tool waits for the rest of a character."""
    vocabulary = json.loads((HOME / "model/tokenizer.json").read_text())["model"]["vocab"]
    return [number for text, number in vocabulary.items() if len(text) == 1 and text.isascii() and text.isalpha()]


def body():
    return {"temperature": 0, "allowed_token_ids": letters()}


@contextmanager
def apart(engine):
    """The engine on one half of the cores, the tools on the other: none takes the time of what it measures.

    Yields the cores for the tools, or None where there is only one.
    """
    before = os.sched_getaffinity(0)
    cores = sorted(before)
    half = len(cores) // 2
    if half == 0:
        yield None
        return
    pin(engine, cores[:half])
    try:
        yield set(cores[half:])
    finally:
        pin(engine, before)


def pin(engine, cores):
    for pid in (engine.group.pid, *engine.group.descendants()):
        for thread in os.listdir(f"/proc/{pid}/task"):
            os.sched_setaffinity(int(thread), cores)


def run(command, env, cores):
    words = [str(word) for word in command]
    place = (lambda: os.sched_setaffinity(0, cores)) if cores else None
    done = subprocess.run(
        words, capture_output=True, text=True, timeout=PATIENCE_S, env=os.environ | env, preexec_fn=place
    )
    assert done.returncode == 0, f"{words[:4]} ended with {done.returncode}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"


def load(engine):
    """Options that `evenkeel bench` and `vllm bench serve` share."""
    return [
        *("--base-url", engine.url, "--backend", "openai", "--max-concurrency", PLACES, "--num-prompts", REQUESTS),
        *("--dataset-name", "random", "--random-output-len", OUTPUT_TOKENS, "--ignore-eos", "--save-detailed"),
        *("--extra-body", json.dumps(body())),
    ]


def evenkeel(engine, folder, seed, cores):
    result, lines = folder / f"evenkeel-{seed}.json", folder / f"evenkeel-{seed}.jsonl"
    command = [binary(), "bench", *load(engine), "--model", MODEL, "--random-input-len", WORDS, "--seed", seed]
    command += ["--trim-s", 0, "--save-result", result, "--requests-jsonl", lines]
    run(command, {}, cores)
    said = json.loads(result.read_text())
    rows = by_start(json.loads(line) for line in lines.read_text().splitlines())
    return Turn("evenkeel", [of_line(row) for row in rows], own_of_vllm(said), set(said), rows)


def vllm(engine, folder, seed, cores):
    command = [HOME / "vllm/bin/python", HOME / "vllm/bin/vllm", "bench", "serve", *load(engine)]
    command += ["--model", HOME / "model", "--served-model-name", MODEL, "--seed", seed]
    command += ["--random-input-len", PROMPT_TOKENS, "--disable-tqdm", "--percentile-metrics", "ttft,tpot,itl,e2el"]
    command += ["--save-result", "--result-dir", folder, "--result-filename", f"vllm-{seed}.json"]
    run(command, OFFLINE, cores)
    said = json.loads((folder / f"vllm-{seed}.json").read_text())
    columns = zip(said["start_times"], said["ttfts"], said["latencies"], said["output_lens"], said["itls"])
    requests = sorted((Request(*row) for row in columns), key=lambda one: one.start_s)
    return Turn("vllm bench serve", requests, own_of_vllm(said), set(said))


def aiperf(engine, folder, seed, cores):
    art = folder / f"aiperf-{seed}"
    command = [HOME / "aiperf/bin/python", HOME / "aiperf/bin/aiperf", "profile", "--model", MODEL, "--url", engine.url]
    command += ["--endpoint-type", "completions", "--streaming", "--tokenizer", HOME / "model", "--ui-type", "none"]
    command += ["--concurrency", PLACES, "--request-count", REQUESTS, "--isl", PROMPT_TOKENS, "--osl", OUTPUT_TOKENS]
    command += ["--random-seed", seed, "--extra-inputs", json.dumps(body() | {"ignore_eos": True})]
    command += ["--use-server-token-count", "--no-server-metrics", "--no-gpu-telemetry", "--artifact-dir", art]
    # More processes than cores would wait for each other.
    command += ["--workers-max", 1, "--record-processors", 1]
    run(command, NO_HUB, cores)
    rows = by_start(json.loads(line) for line in (art / "profile_export.jsonl").read_text().splitlines())
    said = json.loads((art / "profile_export_aiperf.json").read_text())
    own = {
        "ttft_ms": said["time_to_first_token"]["p50"],
        "tpot_ms": said["inter_token_latency"]["p50"],
        "e2el_ms": said["request_latency"]["p50"],
        "requests_per_s": said["request_throughput"]["avg"],
    }
    return Turn("aiperf", [of_line(row) for row in rows], own)


TOOLS = (evenkeel, vllm, aiperf)


def own_of_vllm(said):
    figures = {key: said[f"median_{key}"] for key in ("ttft_ms", "tpot_ms", "e2el_ms")}
    return figures | {"requests_per_s": said["request_throughput"]}


def by_start(rows):
    return sorted(rows, key=lambda row: row["metadata"]["request_start_ns"])


def of_line(row):
    """A request of a line of aiperf's shape, which Evenkeel's lines have too. Its last output is the first and all
    gaps, in both: Evenkeel's `request_latency` goes on to the last byte."""
    assert row.get("error") is None, row
    metrics = {tag: figure["value"] for tag, figure in row["metrics"].items()}
    gaps_s = [gap / 1e3 for gap in metrics["inter_chunk_latency"]]
    first_s = metrics["time_to_first_token"] / 1e3
    start_s = row["metadata"]["request_start_ns"] / 1e9
    return Request(start_s, first_s, first_s + sum(gaps_s), metrics["output_sequence_length"], gaps_s)


def take_turn(tool, engine, folder, seed, cores):
    """One tool's load, with what the engine counted of it."""
    before = counts(engine)
    turn = tool(engine, folder, seed, cores)
    after = counts(engine)
    grown = {name: after[name] - before[name] for name in after}
    requests = grown["requests"]
    turn.engine = {name: grown[name] for name in ("requests", "prompt_tokens", "output_tokens")}
    turn.engine |= {f"{name}_ms": 1e3 * grown[name] / requests for name in ("ttft", "decode", "e2el")}
    return turn


def counts(engine):
    metrics = {
        "requests": "vllm:e2e_request_latency_seconds_count",
        "prompt_tokens": "vllm:prompt_tokens_total",
        "output_tokens": "vllm:generation_tokens_total",
        "ttft": "vllm:time_to_first_token_seconds_sum",
        "decode": "vllm:request_decode_time_seconds_sum",
        "e2el": "vllm:e2e_request_latency_seconds_sum",
    }
    return {name: engine.gauge(metric) for name, metric in metrics.items()}
