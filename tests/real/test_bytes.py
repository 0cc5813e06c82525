"""What the engine says reaches the client byte for byte; only ids and dates differ between two requests."""

import re

import pytest

from bodies import FULL_LENGTH, GREEDY, chat, messages
from engines import MODEL
from raw_client import exchange

ADDED_HEADERS = {"x-request-id", "x-evenkeel-instance", "server-timing"}
# The same of two requests only by chance, or about one connection only.
NOT_COMPARED = {"date", "connection", "keep-alive"}

CASES = {
    "chat": ("/v1/chat/completions", chat(24, stream=False, **GREEDY)),
    "chat streamed": ("/v1/chat/completions", chat(48, **GREEDY)),
    "chat streamed with usage": ("/v1/chat/completions", chat(48, usage=True, **GREEDY)),
    "completions streamed": (
        "/v1/completions",
        {"model": MODEL, "prompt": "The fjord", "max_tokens": 48, "stream": True} | GREEDY | FULL_LENGTH,
    ),
    "messages streamed": (
        "/v1/messages",
        {"model": MODEL, "messages": messages(), "max_tokens": 24, "stream": True, "temperature": 0},
    ),
    "responses streamed": (
        "/v1/responses",
        {"model": MODEL, "input": "The fjord", "max_output_tokens": 8, "stream": True, "temperature": 0},
    ),
    "unknown model": ("/v1/chat/completions", chat() | {"model": "nope"}),
    "too many tokens": ("/v1/chat/completions", chat(99_999)),
    "wrong type": ("/v1/chat/completions", chat() | {"temperature": "warm"}),
    "no such api here": ("/v1/embeddings", {"model": MODEL, "input": "fjord"}),
    "tokenize": ("/tokenize", {"model": MODEL, "prompt": "The fjord"}),
}


def without_ids(body):
    """The body with every id and time of making replaced by one word."""
    body = re.sub(rb'"(id|item_id|request_id)":\s*"[^"]*"', rb'"\1":"ID"', body)
    return re.sub(rb'"(created|created_at|completed_at)":\s*[\d.]+', rb'"\1":TIME', body)


def compared(headers):
    return {name: value for name, value in headers.items() if name not in ADDED_HEADERS | NOT_COMPARED}


def pair(engine, proxy, path, body, tries=8):
    """The answers of the engine itself and through the proxy. A busy engine now and then puts two tokens into one
    chunk, which is no fault of anyone: a pair that differs is asked for again, and the last one is returned."""
    for _ in range(tries):
        straight, through = exchange(engine.address, path, body), exchange(proxy.server, path, body)
        if without_ids(through.body) == without_ids(straight.body):
            break
    return straight, through


@pytest.mark.parametrize("name", CASES)
def test_bytes_are_the_engines(name, engines, only_a):
    straight, through = pair(engines[0], only_a, *CASES[name])
    assert through.status == straight.status
    assert without_ids(through.body) == without_ids(straight.body)
    assert through.complete and straight.complete
    if "content-length" in straight.headers:
        straight.headers["content-length"] = through.headers["content-length"] = "compared as the body"
    assert compared(through.headers) == compared(straight.headers)


def test_the_clients_request_id_goes_on(only_a):
    answer = exchange(only_a.server, "/v1/chat/completions", chat(4, stream=False), request_id="fjord-1")
    assert b'"id":"chatcmpl-fjord-1"' in answer.body
    assert answer.headers["x-request-id"] == "fjord-1"


def test_a_body_that_is_no_json_is_the_engines_to_refuse(engines, only_a):
    straight = exchange(engines[0].address, "/v1/chat/completions", "no object")
    through = exchange(only_a.server, "/v1/chat/completions", "no object")
    assert (through.status, through.body) == (straight.status, straight.body)
    assert through.status == 400
