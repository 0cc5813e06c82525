"""Traces as this script reads them, apart from Evenkeel's own readers: times in seconds, lengths in tokens."""

import ast
import csv
import datetime
import json
import math
from dataclasses import dataclass, field


@dataclass
class Source:
    """What a file has. Of ServeGen's rates, what is to be expected of a draw."""

    rows: int
    times_s: list = None
    prompts: list = field(default_factory=list)
    outputs: list = field(default_factory=list)
    # ServeGen: requests to be expected, the CV of their gaps, and the shares of lengths
    expected: float = None
    cv: float = None
    # standard error of the number of requests: each window's is its gaps' CV times the root of its requests
    number_error: float = None
    span_s: float = None
    prompt_shares: dict = None
    output_shares: dict = None
    # other options that the replay needs
    options: list = field(default_factory=list)


def clock_s(text):
    """Seconds of a wall time. Seven digits of a second are more than datetime takes."""
    whole, _, fraction = text.partition(".")
    fraction = fraction.split("+")[0]
    return datetime.datetime.fromisoformat(whole).timestamp() + float(f"0.{fraction or 0}")


def azure(path):
    with open(path, newline="") as file:
        rows = list(csv.DictReader(file))
    return Source(
        rows=len(rows),
        times_s=[clock_s(row["TIMESTAMP"]) for row in rows],
        prompts=[int(row["ContextTokens"]) for row in rows],
        outputs=[int(row["GeneratedTokens"]) for row in rows],
    )


def mooncake(path):
    with open(path) as file:
        rows = [json.loads(line) for line in file]
    return Source(
        rows=len(rows),
        times_s=[row["timestamp"] / 1e3 for row in rows],
        prompts=[row["input_length"] for row in rows],
        outputs=[row["output_length"] for row in rows],
    )


def lengths(path):
    with open(path, newline="") as file:
        rows = list(csv.DictReader(file))
    return Source(
        rows=len(rows),
        prompts=[int(row["num_prefill_tokens"]) for row in rows],
        outputs=[int(row["num_decode_tokens"]) for row in rows],
    )


def spans(path):
    """Calls of a model; where tokens were not counted, four characters are taken for one."""
    with open(path) as file:
        rows = json.load(file)["spans"]

    def tokens(row, counts, texts):
        of = row["attributes"]
        counted = next((of[f"gen_ai.usage.{name}"] for name in counts if f"gen_ai.usage.{name}" in of), None)
        return counted or math.ceil(len(next(of[text] for text in texts if text in of)) / 4)

    return Source(
        rows=len(rows),
        times_s=[clock_s(row["start_time"]) for row in rows],
        prompts=[tokens(row, ("input_tokens", "prompt_tokens"), ("gen_ai.input.messages",)) for row in rows],
        outputs=[
            tokens(row, ("output_tokens", "completion_tokens"), ("gen_ai.output.messages", "gen_ai.output.text"))
            for row in rows
        ],
    )


@dataclass
class Window:
    start_s: float
    rate: float
    cv: float


def windows(path):
    """ServeGen's rates: start, rate, CV of the distribution that was fitted to the gaps."""
    with open(path, newline="") as file:
        rows = list(csv.reader(file))
    return [Window(float(start), float(rate), cv(family, float(shape or 0))) for start, rate, _, family, shape, _ in rows]


def cv(family, shape):
    if family == "Gamma":
        return 1 / math.sqrt(shape)
    if family == "Weibull":
        log_ratio = math.lgamma(1 + 2 / shape) - 2 * math.lgamma(1 + 1 / shape)
        return math.sqrt(math.exp(log_ratio) - 1)
    return 0.0


STEP_S = 600.0


def servegen(rates_path, lengths_path, wanted, busiest):
    """About so many requests of all windows, or of the busiest one."""
    all_windows = windows(rates_path)
    taken = [max(all_windows, key=lambda window: window.rate)] if busiest else all_windows
    in_file = sum(window.rate * STEP_S for window in taken)
    scale = min(1.0, wanted / in_file)
    with open(lengths_path) as file:
        by_start = sorted((float(start), window) for start, window in json.load(file).items())
    begin_s, end_s = taken[0].start_s, taken[-1].start_s + STEP_S
    part = ["--trace-from-s", str(begin_s), "--trace-until-s", str(end_s)]
    return Source(
        rows=len(all_windows) + len(by_start),
        expected=in_file * scale,
        span_s=end_s - begin_s,
        cv=taken[0].cv if busiest else None,
        number_error=math.sqrt(sum(window.rate * STEP_S * scale * window.cv**2 for window in taken)),
        prompt_shares=mixed(taken, by_start, "input_tokens"),
        output_shares=mixed(taken, by_start, "output_tokens"),
        options=["--trace-lengths", lengths_path, "--trace-rate-scale", repr(scale), *part],
    )


def mixed(taken, by_start, key):
    """Lengths of all windows, each with the weight of its requests."""
    filled = [(start, ast.literal_eval(window[key])) for start, window in by_start]
    filled = [(start, shares) for start, shares in filled if shares]
    mix = {}
    for window in taken:
        before = [shares for start, shares in filled if start <= window.start_s]
        shares = before[-1] if before else filled[0][1]
        whole = sum(shares.values())
        for length, share in shares.items():
            mix[length] = mix.get(length, 0.0) + window.rate * share / whole
    whole = sum(mix.values())
    return {length: share / whole for length, share in sorted(mix.items())}
