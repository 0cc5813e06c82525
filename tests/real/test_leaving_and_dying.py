"""Clients that leave and engines that die in mid-stream: the record tells, and no load is left behind."""

import os
import signal
import time

import pytest

from bodies import chat
from conftest import assert_no_load
from processes import wait_until
from raw_client import OpenStream, exchange

LONG = chat(1_500)
STREAMS = 3


def open_streams(proxy):
    """Streams that are under way: each has its first output."""
    opened = [OpenStream(proxy.server, "/v1/chat/completions", LONG) for _ in range(STREAMS)]
    for stream in opened:
        stream.read_until(lambda answer: answer.first_output_ns is not None)
        assert stream.answer.status == 200
    return opened


def seconds_until_idle(engine, left_at):
    wait_until(lambda: engine.running() == 0, 5, f"vLLM {engine.name} runs nothing")
    return time.monotonic() - left_at


@pytest.mark.parametrize("moment", ["before the first output", "mid-stream"])
def test_a_client_that_leaves_frees_the_engine(moment, engines, only_a, figures):
    engine = engines[0]
    if moment == "mid-stream":
        opened = open_streams(only_a)
    else:
        opened = [OpenStream(only_a.server, "/v1/chat/completions", LONG) for _ in range(STREAMS)]
    wait_until(lambda: engine.running() == STREAMS, 5, "the engine runs the streams")
    left_at = time.monotonic()
    for stream in opened:
        stream.leave()
    took_s = seconds_until_idle(engine, left_at)
    figures[f"engine idle after clients left {moment}"] = f"{took_s:.3f} s ({STREAMS} streams)"
    assert took_s < 0.5
    for record in only_a.records_of(stream.request_id for stream in opened):
        assert record["outcome"] == "client_cancelled"
        assert not record["complete"]
    assert_no_load(only_a)


def test_an_sdk_that_closes_its_stream_is_a_client_that_left(engines, only_a, openai_at):
    headers = {"x-request-id": "sdk-leaves"}
    stream = openai_at(only_a.url).chat.completions.create(
        model=LONG["model"],
        messages=LONG["messages"],
        max_tokens=1_500,
        stream=True,
        extra_body={"ignore_eos": True},
        extra_headers=headers,
    )
    next(iter(stream))
    left_at = time.monotonic()
    stream.close()
    assert seconds_until_idle(engines[0], left_at) < 0.5
    assert only_a.record("sdk-leaves")["outcome"] == "client_cancelled"


def test_a_client_that_leaves_after_the_end_marker_was_served(only_a):
    stream = OpenStream(only_a.server, "/v1/chat/completions", chat(8))
    stream.read_until(lambda answer: answer.body.endswith(b"data: [DONE]\n\n"))
    stream.leave()
    assert only_a.record(stream.request_id)["outcome"] == "ok"


@pytest.mark.last
def test_sigterm_in_mid_stream_is_an_engine_error(engines, only_a):
    """vLLM does not drain: it ends its streams at once with finish reason `abort`, cleanly and with status 200.

    The signal goes to the engine core. An API server that gets it kills its core at the same time, and where the kill
    is faster the streams fall silent for good: that is the silence limit's to end, and no test's to wait for."""
    opened = open_streams(only_a)
    os.kill(engines[0].core_pid(), signal.SIGTERM)
    for stream in opened:
        answer = stream.read_to_end()
        assert answer.complete, "the engine ends the body cleanly, and so must the proxy"
        assert answer.chunks()[-1]["choices"][0]["finish_reason"] == "abort"
    for record in only_a.records_of(stream.request_id for stream in opened):
        assert (record["status"], record["outcome"]) == (200, "engine_error")
        assert record["finish"] == ["abort"]
    assert_no_load(only_a)


@pytest.mark.last
def test_kill_9_of_the_engine_core_in_mid_stream_is_an_engine_error(engines, only_b):
    """vLLM's API server then sends an error event and `[DONE]`, under the status 200 it gave before."""
    opened = open_streams(only_b)
    os.kill(engines[1].core_pid(), signal.SIGKILL)
    for stream in opened:
        answer = stream.read_to_end()
        assert any("error" in chunk for chunk in answer.chunks()), answer.body[-300:]
    for record in only_b.records_of(stream.request_id for stream in opened):
        assert (record["status"], record["outcome"]) == (200, "engine_error")
        assert not record["complete"]
        assert record["content_chunks"] > 0, "what came before the error is kept"
    assert_no_load(only_b)


@pytest.mark.last
def test_a_dead_engine_is_an_engine_error_and_no_hang(engines, only_b):
    wait_until(lambda: not engines[1].group.running(), 30, "the API server of the killed core ends")
    answer = exchange(only_b.server, "/v1/chat/completions", chat(8))
    assert answer.status in (502, 503)
    assert b'"error"' in answer.body
    record = only_b.record(answer.request_id)
    assert record["outcome"] in ("engine_error", "shed"), record
    assert_no_load(only_b)
