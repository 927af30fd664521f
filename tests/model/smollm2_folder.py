"""Writes SmolLM2 as a Hugging Face folder in BF16 and compares its greedy text with transformers.

    python3 tests/model/smollm2_folder.py SmolLM2-135M-Instruct.Q4_1.gguf OUT [--build build]

The folder is made from the GGUF file: its weights, dequantised and rounded to BF16, and its
vocabulary. With --build the server of that build serves OUT with exact numerics, and its text must
equal what transformers generates from the same folder. Not part of the test suite: needs the Python
packages gguf, safetensors, tokenizers, torch and transformers.
"""

import argparse
import json
import pathlib
import sys

import gguf
import safetensors.torch
import tokenizers
import torch
import transformers

import served_text

PROMPTS = ["The old lighthouse keeper opened the door and", "def fibonacci(n):\n", "Paris est"]
TOKENS = 48
CONTROL = 3  # tokenizer.ggml.token_type

NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def value(reader, key):
    return reader.get_field(key).contents()


def folder_name(name):
    if name == "token_embd.weight":
        return "model.embed_tokens.weight"
    if name == "output_norm.weight":
        return "model.norm.weight"
    _, layer, part, _ = name.split(".")
    return f"model.layers.{layer}.{NAMES[part]}.weight"


def split_halves(rows, heads):
    """From pairs (2i, 2i + 1), which llama.cpp rotates, to the halves that transformers rotates."""
    head_dim = rows.shape[0] // heads
    return rows.reshape(heads, head_dim // 2, 2, -1).swapaxes(1, 2).reshape(rows.shape)


def write_weights(reader, out):
    heads = {
        "attn_q": value(reader, "llama.attention.head_count"),
        "attn_k": value(reader, "llama.attention.head_count_kv"),
    }
    tensors = {}
    for tensor in reader.tensors:
        rows = gguf.dequantize(tensor.data, tensor.tensor_type)
        for part, count in heads.items():
            if f".{part}." in tensor.name:
                rows = split_halves(rows, count)
        tensors[folder_name(tensor.name)] = torch.from_numpy(rows.copy()).to(torch.bfloat16)
    safetensors.torch.save_file(tensors, out / "model.safetensors", {"format": "pt"})


def write_config(reader, out):
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "torch_dtype": "bfloat16",
        "hidden_act": "silu",
        "hidden_size": value(reader, "llama.embedding_length"),
        "intermediate_size": value(reader, "llama.feed_forward_length"),
        "num_hidden_layers": value(reader, "llama.block_count"),
        "num_attention_heads": value(reader, "llama.attention.head_count"),
        "num_key_value_heads": value(reader, "llama.attention.head_count_kv"),
        "max_position_embeddings": value(reader, "llama.context_length"),
        "rms_norm_eps": float(f"{value(reader, 'llama.attention.layer_norm_rms_epsilon'):.6g}"),
        "rope_theta": value(reader, "llama.rope.freq_base"),
        "tie_word_embeddings": True,
        "vocab_size": len(value(reader, "tokenizer.ggml.tokens")),
        "bos_token_id": value(reader, "tokenizer.ggml.bos_token_id"),
        "eos_token_id": value(reader, "tokenizer.ggml.eos_token_id"),
    }
    (out / "config.json").write_text(json.dumps(config, indent=2))


def write_tokenizer(reader, out):
    texts = value(reader, "tokenizer.ggml.tokens")
    types = value(reader, "tokenizer.ggml.token_type")
    merges = [tuple(merge.split(" ")) for merge in value(reader, "tokenizer.ggml.merges")]
    vocabulary = {text: id for id, text in reversed(list(enumerate(texts)))}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE(vocabulary, merges))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Sequence([
        tokenizers.pre_tokenizers.Digits(individual_digits=True),
        tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False),
    ])
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    tokenizer.add_special_tokens([text for text, kind in zip(texts, types) if kind == CONTROL])
    tokenizer.save(str(out / "tokenizer.json"))


def reference_texts(out):
    torch.set_num_threads(2)
    model = transformers.AutoModelForCausalLM.from_pretrained(out, dtype=torch.float32)
    tokenizer = tokenizers.Tokenizer.from_file(str(out / "tokenizer.json"))
    for prompt in PROMPTS:
        ids = torch.tensor([tokenizer.encode(prompt).ids])
        answer = model.generate(ids, max_new_tokens=TOKENS, do_sample=False, eos_token_id=None,
                                pad_token_id=0)
        yield tokenizer.decode(answer[0, ids.shape[1]:].tolist(), skip_special_tokens=False)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("gguf", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--build", type=pathlib.Path)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    reader = gguf.GGUFReader(args.gguf)
    write_config(reader, args.out)
    write_tokenizer(reader, args.out)
    write_weights(reader, args.out)
    if not args.build:
        return 0
    return served_text.count_differences(args.build, args.out,
                                         zip(PROMPTS, reference_texts(args.out)), TOKENS)


if __name__ == "__main__":
    sys.exit(main())
