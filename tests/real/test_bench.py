"""`evenkeel bench` and `vllm bench serve` see the same server alike, and where not, by definition.

Both load one vLLM at the same time, one request each: what a client costs the machine that it shares with the server
then falls on both. (In turns, the server under the Python client was a fifth slower on two cores.) The medians are
told. In a calm run they agreed within two percent; in others the Python client's own time came on top of its figures
and the server sent many tokens at once, so the bars are wide below and narrow above: a figure of ours that is longer
than that tool's would be our fault. Definitions that keep them apart: vLLM's tool takes the first event with a choice
for the first token, even if its text is empty, as it is whenever the tiny model has written a part of a character;
Evenkeel takes the first with output, so its TTFT may be later by tokens. Throughput of a closed loop is also the
client's: what it does between an answer and the next request is in it, and weighs most on a short request.
"""

import json
import os
import signal
import statistics
import subprocess
import time

import pytest

from engines import HOME, MODEL
from proxy import binary

REQUESTS = 60
OUTPUT_TOKENS = 64
# Evenkeel's prompts are counted in words, which are about four of the tiny model's tokens each.
WORDS = 25
PROMPT_TOKENS = 94
OFFLINE = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1"}


@pytest.fixture(scope="module")
def files(engines, folder):
    """Evenkeel's result and lines, and vLLM's result, of loads at the same time."""
    engine = engines[0]
    ours = start_evenkeel(engine, folder)
    try:
        theirs = run_vllm(engine, folder)
    finally:
        ours.send_signal(signal.SIGINT)
        said, _ = ours.communicate(timeout=30)
    assert ours.returncode == 130, said
    lines = [json.loads(line) for line in (folder / "evenkeel.jsonl").read_text().splitlines()]
    return json.loads((folder / "evenkeel.json").read_text()), lines, theirs


def load(engine):
    return [
        *("--base-url", engine.url, "--backend", "openai", "--max-concurrency", 1, "--ignore-eos"),
        *("--random-output-len", OUTPUT_TOKENS, "--save-detailed"),
    ]


def start_evenkeel(engine, folder):
    command = [binary(), "bench", *load(engine), "--model", MODEL, "--random-input-len", WORDS, "--duration", 400]
    command += ["--save-result", folder / "evenkeel.json", "--requests-jsonl", folder / "evenkeel.jsonl"]
    words = [str(word) for word in command]
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def run_vllm(engine, folder):
    command = [HOME / "vllm/bin/python", HOME / "vllm/bin/vllm", "bench", "serve", *load(engine)]
    command += ["--model", HOME / "model", "--served-model-name", MODEL, "--dataset-name", "random"]
    command += ["--num-prompts", REQUESTS, "--random-input-len", PROMPT_TOKENS, "--disable-tqdm"]
    command += ["--percentile-metrics", "ttft,tpot,itl,e2el", "--metric-percentiles", "50,90,95,99"]
    command += ["--save-result", "--result-dir", folder, "--result-filename", "vllm.json"]
    words = [str(word) for word in command]
    done = subprocess.run(words, capture_output=True, text=True, timeout=280, env=os.environ | OFFLINE)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads((folder / "vllm.json").read_text())


@pytest.fixture(scope="module")
def both(files):
    """Medians by figure, Evenkeel's and vLLM's, of requests that lie in the time of vLLM's load."""
    _, lines, theirs = files
    # Python's performance counter is Linux's monotonic clock: its distance from wall time is the same everywhere.
    wall_s = time.time() - time.perf_counter()
    begin_s = min(theirs["start_times"]) + wall_s
    end_s = max(s + e for s, e in zip(theirs["start_times"], theirs["latencies"])) + wall_s
    inside = [
        line
        for line in lines
        if line["metadata"]["request_start_ns"] / 1e9 >= begin_s and line["metadata"]["request_end_ns"] / 1e9 <= end_s
    ]
    at_once = [line["metrics"] for line in inside]
    starts_s = [line["metadata"]["request_start_ns"] / 1e9 for line in inside]
    latencies_s = [one["request_latency"]["value"] / 1e3 for one in at_once]
    assert len(at_once) >= REQUESTS / 2, f"{len(at_once)} requests in {end_s - begin_s} s"

    def ours(tag):
        return statistics.median(one[tag]["value"] for one in at_once)

    def share(starts_s, latencies_s):
        """Of the time between the first start and the last end, that with the request open."""
        ends_s = [start_s + latency_s for start_s, latency_s in zip(starts_s, latencies_s)]
        return sum(latencies_s) / (max(ends_s) - min(starts_s))

    return {
        "ttft_ms": (ours("time_to_first_token"), theirs["median_ttft_ms"]),
        "tpot_ms": (ours("time_per_output_token"), theirs["median_tpot_ms"]),
        "e2el_ms": (ours("request_latency"), theirs["median_e2el_ms"]),
        "requests_per_s": (len(at_once) / (end_s - begin_s), theirs["request_throughput"]),
        "busy_share": (share(starts_s, latencies_s), share(theirs["start_times"], theirs["latencies"])),
        "prompt_tokens": (ours("input_sequence_length"), statistics.median(theirs["input_lens"])),
        "output_tokens": (ours("output_sequence_length"), statistics.median(theirs["output_lens"])),
    }


def test_both_asked_for_the_same_work(both):
    assert both["output_tokens"] == (OUTPUT_TOKENS, OUTPUT_TOKENS)
    ours, theirs = both["prompt_tokens"]
    assert ours == pytest.approx(theirs, rel=0.10)


@pytest.mark.parametrize("figure", ["ttft_ms", "tpot_ms", "e2el_ms"])
def test_medians_agree(both, figures, figure):
    ours, theirs = both[figure]
    figures[f"bench: {figure}, evenkeel / vllm"] = f"{ours:.3g} / {theirs:.3g}"
    # Three tokens: empty ones before the first with text, or those that came at once.
    tokens_ms = 3 * max(both["tpot_ms"])
    slack_ms = tokens_ms if figure != "tpot_ms" else 1
    assert theirs / 3 - slack_ms <= ours <= theirs * 3 + slack_ms


def test_a_place_is_filled_again_at_once(both, figures):
    figures["bench: requests_per_s, evenkeel / vllm"] = "{:.3g} / {:.3g}".format(*both["requests_per_s"])
    figures["bench: share of time with its request open, evenkeel / vllm"] = "{:.3f} / {:.3f}".format(*both["busy_share"])
    ours, theirs = both["busy_share"]
    assert ours >= theirs - 0.2


def test_our_keys_are_those_of_vllms_own_file(files):
    result, _, theirs = files
    # What only that tool does: token counts of speculative decoding and the like.
    apart = ("spec_decode", "diffusion", "probe")
    missing = {key for key in theirs if key not in result and not key.startswith(apart)}
    assert not missing, missing
