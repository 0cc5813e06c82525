"""`evenkeel bench`, `vllm bench serve` and `aiperf` see the same server alike.

They load one vLLM in turns, never at once: engine and tools on cores of their own, the same closed load, several rounds.
Every answer is letters, so that each token is text: what counts as the first output (an event, or text) is then the same
for all. The figures are recomputed from each tool's own file of single requests by one definition, and told beside
the tool's own and the engine's.

What fails here is only what a busy machine cannot break. Turns see the machine at different times, and the engine may
be half as fast in one as in the next; but its own histograms tell how fast it was in that turn, so each tool is held
against the engine of its turn, and then the tools against each other by what lies *between* them and the engine. A
client that got no time to read shows in its own turn and is told, not failed.
"""

import statistics
import time

import pytest

from load_tools import OUTPUT_TOKENS, PLACES, REQUESTS, TOOLS, apart, take_turn

ROUNDS = 3
# Bands, in milliseconds of a mean over a turn's requests, medians of the rounds.
#
# Between the engine's clock and a client's lie the reading of the request by the server, its hand-over of the first and
# of the last token, and the client's read: 3 to 7 ms here. With another program on every core each of these may wait for
# a slice of the scheduler, some milliseconds.
HOPS_MS = 25
# Ours against the least late of the others, which wait for the same slices on the same core and need more of them.
LATER_MS = 5
# Of the decoding alone both ends wait alike, so little is left but what changes meanwhile.
DECODE_SHARE = 0.05


@pytest.fixture(scope="module")
def turns(engines, folder, figures):
    """By tool, its turns in the order of the rounds."""
    started_s = time.monotonic()
    with apart(engines[0]) as cores:
        # What the engine does for the first time, it does not do in the first tool's turn.
        take_turn(TOOLS[0], engines[0], folder, 1000, cores)
        rounds = [[take_turn(tool, engines[0], folder, seed, cores) for tool in TOOLS] for seed in range(1, ROUNDS + 1)]
    by_tool = {mine[0].tool: mine for mine in zip(*rounds)}
    tell(by_tool, figures)
    figures["bench: turns"] = f"{ROUNDS} rounds in {time.monotonic() - started_s:.0f} s, tools on cores {cores or 'of the engine'}"
    return by_tool


def tell(by_tool, figures):
    for tool, mine in by_tool.items():
        same = {key: statistics.median(turn.figures()[key] for turn in mine) for key in mine[0].figures()}
        own = {key: statistics.median(turn.own[key] for turn in mine) for key in mine[0].own}
        said = ", ".join(f"{key} {same[key]:.3g} ({own[key]:.3g})" for key in same)
        figures[f"bench: {tool}, by one definition (its own)"] = said
        figures[f"bench: {tool} after the engine's own"] = ", ".join(f"{key} {beyond(mine, key):.3g}" for key in SEEN)
        at_once = f"{at_once_share(mine):.1%}" + (": starved, not held to agree" if starved(mine) else "")
        figures[f"bench: {tool}, output that it read together with what came before"] = at_once


def at_once_share(mine):
    return statistics.median(turn.read_at_once() for turn in mine)


def starved(mine):
    """The engine writes a token at a time: who reads a quarter of them with others was not there to read them."""
    return at_once_share(mine) > 0.25


SEEN = ("ttft_ms", "decode_ms", "e2el_ms")


def beyond(mine, key):
    """How much later than the engine's own clocks a tool's are: mean of a turn, median of the rounds."""
    return statistics.median(turn.means()[key] - turn.engine[key] for turn in mine)


def test_all_asked_for_the_same_work(turns):
    every = [turn for mine in turns.values() for turn in mine]
    for turn in every:
        assert len(turn.requests) == REQUESTS, turn.tool
        assert all(one.tokens == OUTPUT_TOKENS for one in turn.requests), turn.tool
        assert turn.engine["requests"] == REQUESTS, turn.tool
        assert turn.engine["output_tokens"] == REQUESTS * OUTPUT_TOKENS, turn.tool
    prompts = [turn.engine["prompt_tokens"] for turn in every]
    assert max(prompts) <= 1.05 * min(prompts), prompts


def test_no_tool_had_more_places_than_it_was_given(turns):
    for mine in turns.values():
        for turn in mine:
            starts = sorted((one.start_s, 1) for one in turn.requests)
            ends = sorted((one.start_s + one.last_s, -1) for one in turn.requests)
            open_now, most = 0, 0
            for _, step in sorted(starts + ends):
                open_now += step
                most = max(most, open_now)
            assert most <= PLACES, turn.tool


def test_our_figures_add_up(turns):
    """Of every line, and from the lines to the medians of the result."""
    for turn in turns["evenkeel"]:
        for line, one in zip(turn.lines, turn.requests):
            ms = {tag: figure["value"] for tag, figure in line["metrics"].items()}
            gaps = OUTPUT_TOKENS - 1
            # Gaps are kept in microseconds.
            assert ms["time_to_first_token"] + ms["time_per_output_token"] * gaps == pytest.approx(
                1e3 * one.last_s, abs=len(one.gaps_s) * 1e-3
            )
            assert ms["time_to_first_token"] + ms["inter_token_latency"] * gaps == pytest.approx(ms["request_latency"])
            assert 1e3 * one.last_s <= ms["request_latency"] + len(one.gaps_s) * 1e-3
        lines = [line["metrics"] for line in turn.lines]
        for key, tag in (
            ("ttft_ms", "time_to_first_token"),
            ("tpot_ms", "time_per_output_token"),
            ("e2el_ms", "request_latency"),
        ):
            assert turn.own[key] == pytest.approx(statistics.median(one[tag]["value"] for one in lines), rel=0.001)


@pytest.mark.parametrize("key", ["ttft_ms", "e2el_ms"])
def test_we_see_what_the_engine_saw(turns, key):
    """A client sends before the engine has a request and reads after it made a token, however busy the machine is; and
    not much earlier or later."""
    for turn in turns["evenkeel"]:
        assert turn.means()[key] >= turn.engine[key]
    assert beyond(turns["evenkeel"], key) <= HOPS_MS


def test_we_see_tokens_as_fast_as_the_engine_made_them(turns):
    ours = statistics.median(turn.means()["decode_ms"] / turn.engine["decode_ms"] for turn in turns["evenkeel"])
    assert ours == pytest.approx(1, abs=DECODE_SHARE)


@pytest.mark.parametrize("key", SEEN)
def test_we_see_it_no_later_than_the_others(turns, key):
    others = [beyond(mine, key) for tool, mine in turns.items() if tool != "evenkeel"]
    assert beyond(turns["evenkeel"], key) <= min(others) + LATER_MS


def test_answers_last_as_long_for_all(turns):
    """By the engine's time for a request in that turn: within a tenth, both ways unless the other tool was starved."""

    def ratio(mine):
        return statistics.median(turn.means()["e2el_ms"] / turn.engine["e2el_ms"] for turn in mine)

    ours = ratio(turns["evenkeel"])
    for tool, mine in turns.items():
        theirs = ratio(mine)
        assert ours <= 1.1 * theirs, (tool, ours, theirs)
        if not starved(mine):
            assert theirs <= 1.1 * ours, (tool, ours, theirs)


def test_a_place_is_filled_again_at_once(turns, figures):
    """Throughput by the engine's time for a request: the share of the places that it had filled."""

    def filled(turn):
        return turn.figures()["requests_per_s"] * turn.engine["e2el_ms"] / 1e3 / PLACES

    shares = {tool: statistics.median(filled(turn) for turn in mine) for tool, mine in turns.items()}
    figures["bench: share of places filled at the engine"] = ", ".join(f"{tool} {share:.3f}" for tool, share in shares.items())
    ours = shares.pop("evenkeel")
    assert ours >= max(shares.values()) - 0.1


def test_our_keys_are_those_of_vllms_own_file(turns):
    ours, theirs = turns["evenkeel"][0], turns["vllm bench serve"][0]
    # What only that tool does: token counts of speculative decoding and the like.
    apart_keys = ("spec_decode", "diffusion", "probe")
    missing = {key for key in theirs.keys if key not in ours.keys and not key.startswith(apart_keys)}
    assert not missing, missing
