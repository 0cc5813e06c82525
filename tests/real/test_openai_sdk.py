"""The OpenAI Python SDK through Evenkeel: every API it has, streamed and not, and the record of each request."""

import uuid

import openai
import pytest

from bodies import FULL_LENGTH, GREEDY, TOOL, messages
from conftest import assert_no_load
from engines import MODEL

USAGE = {"include_usage": True}


@pytest.fixture(scope="module")
def client(proxy, openai_at):
    return openai_at(proxy.url)


@pytest.fixture(scope="module")
def direct(engines, openai_at):
    return openai_at(engines[0].url)


@pytest.fixture
def named():
    """A fresh request id, as the argument that sends it."""
    request_id = str(uuid.uuid4())
    return request_id, {"x-request-id": request_id}


def text_of(chunks, choice=0):
    parts = [one.delta.content for chunk in chunks for one in chunk.choices if one.index == choice]
    return "".join(part or "" for part in parts)


def has_text(chunk):
    return any(choice.delta.content for choice in chunk.choices)


def assert_streamed(record, usage_tokens):
    assert record["outcome"] == "ok"
    assert record["status"] == 200
    # The SDK closes once it has read [DONE], so the proxy may not have seen the body's proper end: `transport_clean`
    # may be either. For a client that reads to the end it is held true in test_measures.py.
    assert record["complete"] is True and record["done_marker"] is True
    assert record["output_tokens"] == usage_tokens
    assert 0 < record["server_ttft_ms"] <= record["client_ttft_ms"] <= record["e2e_ms"]


def assert_not_streamed(record, prompt_tokens, output_tokens):
    assert record["outcome"] == "ok"
    assert record["status"] == 200
    assert (record["prompt_tokens"], record["output_tokens"]) == (prompt_tokens, output_tokens)
    assert record.get("client_ttft_ms") is None and record.get("server_ttft_ms") is None


def test_chat(client, direct, proxy, named):
    request_id, headers = named
    request = {"model": MODEL, "messages": messages(), "max_tokens": 12, **GREEDY, "extra_body": FULL_LENGTH}
    through = client.chat.completions.create(**request, extra_headers=headers)
    assert through.usage.completion_tokens == 12
    assert through.choices[0].message.content == direct.chat.completions.create(**request).choices[0].message.content
    assert_not_streamed(proxy.record(request_id), through.usage.prompt_tokens, 12)


def test_chat_streamed(client, direct, proxy, named):
    request_id, headers = named
    request = {"model": MODEL, "messages": messages(), "max_tokens": 24, **GREEDY, "extra_body": FULL_LENGTH}
    request |= {"stream": True, "stream_options": USAGE}
    chunks = list(client.chat.completions.create(**request, extra_headers=headers))
    assert text_of(chunks) == text_of(direct.chat.completions.create(**request))
    assert chunks[-1].usage.completion_tokens == 24
    record = proxy.record(request_id)
    assert_streamed(record, 24)
    assert record["finish"] == ["length"]
    assert record["events"] == len(chunks) + 1, "the chunks and [DONE]"
    assert record["content_chunks"] == sum(map(has_text, chunks))
    assert record["first_output_event"] == [has_text(chunk) for chunk in chunks].index(True)


def test_chat_with_two_choices(client, proxy, named):
    request_id, headers = named
    request = {"model": MODEL, "messages": messages(), "max_tokens": 10, "n": 2, "seed": 3, "extra_body": FULL_LENGTH}
    answer = client.chat.completions.create(**request, extra_headers=headers)
    assert [choice.index for choice in answer.choices] == [0, 1]
    assert_not_streamed(proxy.record(request_id), answer.usage.prompt_tokens, 20)


def test_chat_with_two_choices_streamed(client, proxy, named):
    request_id, headers = named
    request = {"model": MODEL, "messages": messages(), "max_tokens": 10, "n": 2, "seed": 3, "extra_body": FULL_LENGTH}
    chunks = list(
        client.chat.completions.create(**request, stream=True, stream_options=USAGE, extra_headers=headers)
    )
    assert {choice.index for chunk in chunks for choice in chunk.choices} == {0, 1}
    record = proxy.record(request_id)
    assert_streamed(record, 20)
    assert record["finish"] == ["length", "length"]
    assert record.get("tpot_ms") is None, "one time per token of two interleaved choices means nothing"


def test_completions(client, direct, proxy, named):
    request_id, headers = named
    request = {"model": MODEL, "prompt": "The fjord", "max_tokens": 12, **GREEDY, "extra_body": FULL_LENGTH}
    through = client.completions.create(**request, extra_headers=headers)
    assert through.choices[0].text == direct.completions.create(**request).choices[0].text
    assert_not_streamed(proxy.record(request_id), through.usage.prompt_tokens, 12)


def test_completions_streamed(client, proxy, named):
    request_id, headers = named
    request = {"model": MODEL, "prompt": "The fjord", "max_tokens": 24, **GREEDY, "extra_body": FULL_LENGTH}
    whole = client.completions.create(**request).choices[0].text
    chunks = list(client.completions.create(**request, stream=True, stream_options=USAGE, extra_headers=headers))
    assert "".join(choice.text for chunk in chunks for choice in chunk.choices) == whole
    record = proxy.record(request_id)
    assert_streamed(record, 24)
    assert record["content_chunks"] == sum(any(choice.text for choice in chunk.choices) for chunk in chunks)


def test_responses(client, direct, proxy, named):
    request_id, headers = named
    request = {"model": MODEL, "input": "How deep is the fjord?", "max_output_tokens": 16, "temperature": 0}
    through = client.responses.create(**request, extra_headers=headers)
    assert through.output_text == direct.responses.create(**request).output_text
    assert_not_streamed(proxy.record(request_id), through.usage.input_tokens, through.usage.output_tokens)


def test_responses_streamed(client, proxy, named):
    request_id, headers = named
    request = {"model": MODEL, "input": "How deep is the fjord?", "max_output_tokens": 16, "temperature": 0}
    events = list(client.responses.create(**request, stream=True, extra_headers=headers))
    assert events[-1].type in ("response.completed", "response.incomplete")
    deltas = [event.delta for event in events if event.type == "response.output_text.delta" and event.delta]
    record = proxy.record(request_id)
    assert_streamed(record, events[-1].response.usage.output_tokens)
    assert record["events"] == len(events)
    assert record["content_chunks"] == len(deltas)


def test_tools_refused_by_the_engine_are_refused_alike(only_a, openai_at, direct, named):
    request_id, headers = named
    request = {"model": MODEL, "messages": messages(), "max_tokens": 8, "tools": [TOOL]}
    with pytest.raises(openai.BadRequestError) as through:
        openai_at(only_a.url).chat.completions.create(**request, extra_headers=headers)
    with pytest.raises(openai.BadRequestError) as straight:
        direct.chat.completions.create(**request)
    assert through.value.body == straight.value.body
    assert only_a.record(request_id)["outcome"] == "client_error"


def test_a_tool_call_is_output(only_b, openai_at, named):
    request_id, headers = named
    forced = {"type": "function", "function": {"name": TOOL["function"]["name"]}}
    request = {"model": MODEL, "messages": messages(), "max_tokens": 64, **GREEDY, "tools": [TOOL]}
    chunks = list(
        openai_at(only_b.url).chat.completions.create(
            **request, tool_choice=forced, stream=True, stream_options=USAGE, extra_headers=headers
        )
    )
    calls = [call for chunk in chunks for one in chunk.choices for call in one.delta.tool_calls or []]
    assert [call.function.name for call in calls if call.function.name] == ["weather"]
    assert not text_of(chunks), "the answer is a call and nothing else"
    record = only_b.record(request_id)
    assert_streamed(record, chunks[-1].usage.completion_tokens)
    assert record["content_chunks"] == sum(bool(call.function.name or call.function.arguments) for call in calls)


def test_models_of_both_engines_are_listed_once(client):
    assert [model.id for model in client.models.list()] == [MODEL]


def test_unknown_model_is_the_engines_404(client, direct, proxy, named):
    request_id, headers = named
    request = {"model": "nope", "messages": messages()}
    with pytest.raises(openai.NotFoundError) as through:
        client.chat.completions.create(**request, extra_headers=headers)
    with pytest.raises(openai.NotFoundError) as straight:
        direct.chat.completions.create(**request)
    assert through.value.body == straight.value.body
    assert proxy.record(request_id)["outcome"] == "client_error"


def test_unknown_model_is_evenkeels_404_where_the_models_are_configured(engines, start_proxy, openai_at, named):
    request_id, headers = named
    strict = start_proxy("strict", engines[:1], pool=f'models = ["{MODEL}"]')
    with pytest.raises(openai.NotFoundError) as refused:
        openai_at(strict.url).chat.completions.create(model="nope", messages=messages(), extra_headers=headers)
    assert refused.value.code == "model_not_found"
    assert strict.record(request_id)["outcome"] == "rejected"
    assert openai_at(strict.url).chat.completions.create(model=MODEL, messages=messages(), max_tokens=2).choices


def test_too_many_tokens_is_the_engines_400_even_for_a_stream(client, direct, proxy, named):
    request_id, headers = named
    request = {"model": MODEL, "messages": messages(), "max_tokens": 99_999, "stream": True}
    with pytest.raises(openai.BadRequestError) as through:
        client.chat.completions.create(**request, extra_headers=headers)
    with pytest.raises(openai.BadRequestError) as straight:
        direct.chat.completions.create(**request)
    assert through.value.body == straight.value.body
    assert through.value.param == "max_tokens"
    record = proxy.record(request_id)
    assert (record["outcome"], record["status"]) == ("client_error", 400)
    assert record.get("client_ttft_ms") is None


def test_embeddings_error_passes(client, direct):
    with pytest.raises(openai.NotFoundError) as through:
        client.embeddings.create(model=MODEL, input="fjord")
    with pytest.raises(openai.NotFoundError) as straight:
        direct.embeddings.create(model=MODEL, input="fjord")
    assert through.value.response.content == straight.value.response.content


def test_no_load_is_left(client, proxy):
    assert_no_load(proxy)
