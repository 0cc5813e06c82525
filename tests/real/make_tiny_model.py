"""Writes a tiny llama model directory that vLLM serves with `--load-format dummy`.

Two layers, 256 dimensions and a byte-level tokenizer of 267 entries: nothing is downloaded, and the weights are made
by the engine itself at start.

    make_tiny_model.py DIRECTORY
"""

import json
import sys
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
MERGES = [("t", "h"), ("th", "e"), ("a", "n"), ("i", "n"), ("e", "r"), ("o", "n"), ("Ġ", "t"), ("Ġ", "a")]
CHAT_TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def tokenizer():
    """A byte-level BPE tokenizer: every byte is a token, a few pairs are merged."""
    vocabulary = {symbol: index for index, symbol in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    for left, right in MERGES:
        vocabulary[left + right] = len(vocabulary)
    made = Tokenizer(models.BPE(vocab=vocabulary, merges=MERGES))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens([AddedToken(name, special=True) for name in SPECIAL])
    return made


def main(directory):
    directory.mkdir(parents=True, exist_ok=True)
    tokens = tokenizer()
    tokens.save(str(directory / "tokenizer.json"))
    begin, _, end = (tokens.token_to_id(name) for name in SPECIAL)
    special_names = {"bos_token": SPECIAL[0], "eos_token": SPECIAL[2], "pad_token": SPECIAL[0]}
    special_ids = {"bos_token_id": begin, "eos_token_id": end}
    files = {
        "tokenizer_config.json": special_names
        | {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "model_max_length": 4096,
            "chat_template": CHAT_TEMPLATE,
            "clean_up_tokenization_spaces": False,
        },
        "special_tokens_map.json": special_names,
        "generation_config.json": special_ids,
        "config.json": special_ids
        | {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "hidden_size": 256,
            "intermediate_size": 512,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "num_key_value_heads": 4,
            "head_dim": 64,
            "hidden_act": "silu",
            "max_position_embeddings": 4096,
            "rms_norm_eps": 1e-5,
            "rope_theta": 10000.0,
            "vocab_size": tokens.get_vocab_size(),
            "tie_word_embeddings": False,
            "torch_dtype": "bfloat16",
        },
    }
    for name, content in files.items():
        (directory / name).write_text(json.dumps(content, indent=1))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
