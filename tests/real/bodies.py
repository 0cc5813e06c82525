"""Request bodies that the tests share."""

import json

from engines import HOME, MODEL

# Exactly `max_tokens` tokens come: random weights would else end anywhere.
FULL_LENGTH = {"ignore_eos": True}
GREEDY = {"temperature": 0.0, "seed": 7}
TOOL = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "Weather of a city",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}


def messages(text="How deep is the fjord?"):
    return [{"role": "user", "content": text}]


def letter_ids():
    """Token ids of a to z. A random model's bytes are often half a character, which the engine holds back; with
    letters only, every token shows at once, so that the first token and the first output chunk are one."""
    vocabulary = json.loads((HOME / "model/tokenizer.json").read_text())["model"]["vocab"]
    return sorted(vocabulary[letter] for letter in "abcdefghijklmnopqrstuvwxyz")


def chat(max_tokens=16, stream=True, usage=False, text="How deep is the fjord?", **more):
    """A chat request of exactly `max_tokens` output tokens."""
    body = {"model": MODEL, "messages": messages(text), "max_tokens": max_tokens, "stream": stream}
    if stream and usage:
        body["stream_options"] = {"include_usage": True}
    return body | FULL_LENGTH | more
