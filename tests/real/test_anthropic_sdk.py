"""The Anthropic Python SDK through Evenkeel: messages, streamed and not."""

import uuid

import anthropic
import pytest

from bodies import messages
from engines import MODEL

REQUEST = {"model": MODEL, "messages": messages(), "max_tokens": 16, "extra_body": {"temperature": 0}}


@pytest.fixture(scope="module")
def client(proxy, anthropic_at):
    return anthropic_at(proxy.url)


@pytest.fixture(scope="module")
def direct(engines, anthropic_at):
    return anthropic_at(engines[0].url)


def test_messages(client, direct, proxy):
    request_id = str(uuid.uuid4())
    through = client.messages.create(**REQUEST, extra_headers={"x-request-id": request_id})
    assert through.content[0].text == direct.messages.create(**REQUEST).content[0].text
    record = proxy.record(request_id)
    assert (record["outcome"], record["status"]) == ("ok", 200)
    assert record["prompt_tokens"] == through.usage.input_tokens
    assert record["output_tokens"] == through.usage.output_tokens
    assert record.get("client_ttft_ms") is None


def test_messages_streamed(client, proxy):
    request_id = str(uuid.uuid4())
    with client.messages.stream(**REQUEST, extra_headers={"x-request-id": request_id}) as stream:
        deltas = [event.text for event in stream if event.type == "text"]
        final = stream.get_final_message()
    assert "".join(deltas) == final.content[0].text == client.messages.create(**REQUEST).content[0].text
    record = proxy.record(request_id)
    assert record["outcome"] == "ok"
    assert record["complete"] is True and record["done_marker"] is True
    assert record["output_tokens"] == final.usage.output_tokens
    assert record["prompt_tokens"] == final.usage.input_tokens
    assert record["content_chunks"] == sum(bool(delta) for delta in deltas)
    assert 0 < record["server_ttft_ms"] <= record["client_ttft_ms"]


def test_unknown_model_is_the_engines_404(client, direct):
    with pytest.raises(anthropic.NotFoundError) as through:
        client.messages.create(**REQUEST | {"model": "nope"})
    with pytest.raises(anthropic.NotFoundError) as straight:
        direct.messages.create(**REQUEST | {"model": "nope"})
    assert through.value.body == straight.value.body
