"""Compares tiny random models of every family with transformers, flags and sizes drawn at random.

    python3 tests/model/family_differential.py build/tests/model/golden_models_test OUT \
        [--seed 1] [--count 4] [--family gemma2]

Each model is a folder of OUT in the form of tests/data/models: what save_pretrained writes, some of
it in the spelling of older releases, and what transformers computes from it. The test program
must give the same logits and the same greedy tokens, or refuse the model by the name of a feature.
Prints one line per model and ends with 1 where one differs. Not part of the test suite: needs the
Python packages safetensors, torch and transformers.
"""

import argparse
import copy
import json
import math
import os
import pathlib
import random
import re
import shutil
import subprocess
import sys

import safetensors.torch
import torch
import transformers
from torch.overrides import TorchFunctionMode

from fp8_folder import to_fp8

LENGTH = 48  # Of every sequence; golden_models_test.cc has the same.
GREEDY = 24
MIN_GAP = 5e-3  # Between the two largest logits, where float32 decides as float64 does.


class InFloat64(TorchFunctionMode):
    """Code that asks for float32 by name gets float64."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        def widen(value):
            return torch.float64 if value is torch.float32 else value

        if func is torch.Tensor.float:
            func = torch.Tensor.double
        return func(*map(widen, args), **{k: widen(v) for k, v in (kwargs or {}).items()})


def base_sizes(rng, heads=(1, 2, 3, 4, 6, 8), kv=True):
    """Sizes that no two of are equal by accident."""
    num_heads = rng.choice(heads)
    sizes = {
        "vocab_size": rng.choice([200, 257, 384, 1001]),
        "hidden_size": num_heads * rng.choice([10, 16, 18, 24, 32, 40]),
        "num_hidden_layers": rng.choice([2, 3]),
        "num_attention_heads": num_heads,
        "intermediate_size": rng.choice([90, 96, 128, 160, 201]),
        "max_position_embeddings": rng.choice([64, 256]),
        "tie_word_embeddings": rng.random() < 0.5,
    }
    if kv:
        sizes["num_key_value_heads"] = rng.choice(
            [n for n in range(1, num_heads + 1) if num_heads % n == 0])
    return sizes


def flag(rng, chance=0.5):
    return rng.random() < chance


def gated_activation(rng):
    return rng.choice(["silu", "silu", "gelu", "gelu_pytorch_tanh", "relu"])


def plain_activation(rng):
    return rng.choice(["gelu", "gelu_new", "gelu_fast", "gelu_pytorch_tanh", "relu", "silu",
                       "gelu_python", "swish", "relu2"])


def rope(rng, head_dim, kinds=("default", "linear", "llama3", "yarn", "longrope"), partial=None,
         length=256):
    """rope_parameters of a random rule; `partial`: shares of a head that may rotate."""
    kind = rng.choice(kinds)
    rules = {"rope_type": kind, "rope_theta": rng.choice([10000.0, 500000.0, 1e6])}
    # Half a pair cannot rotate: transformers rounds up, which no published model needs.
    partial = [share for share in partial or () if int(head_dim * share) % 2 == 0]
    share = rng.choice(partial) if partial else 1.0
    if partial:
        rules["partial_rotary_factor"] = share
    if kind in ("linear", "llama3", "yarn"):
        rules["factor"] = rng.choice([2.0, 4.0, 8.0])
    if kind == "llama3":
        rules |= {"low_freq_factor": 1.0, "high_freq_factor": rng.choice([4.0, 2.0]),
                  "original_max_position_embeddings": 32}
    if kind == "yarn":
        rules["original_max_position_embeddings"] = 32
        if flag(rng):
            rules |= {"beta_fast": 8.0, "beta_slow": 1.0}
        if flag(rng, 0.3):
            rules["attention_factor"] = 1.25
        elif flag(rng, 0.3):
            rules |= {"mscale": 1.0, "mscale_all_dim": 0.7}
        if flag(rng, 0.3):
            rules["truncate"] = False
    if kind == "longrope":
        pairs = int(head_dim * share) // 2
        rules |= {"short_factor": [round(1 + rng.random(), 3) for _ in range(pairs)],
                  "long_factor": [round(2 + 4 * rng.random(), 3) for _ in range(pairs)],
                  "original_max_position_embeddings": rng.choice([64, length])}
    return rules


def layer_types(rng, layers):
    return [rng.choice(["sliding_attention", "full_attention"]) for _ in range(layers)]


def llama_like(rng, **kinds):
    sizes = base_sizes(rng)
    head_dim = sizes["hidden_size"] // sizes["num_attention_heads"]
    return sizes | {
        "hidden_act": gated_activation(rng),
        "rms_norm_eps": rng.choice([1e-5, 1e-6]),
        "rope_parameters": rope(rng, head_dim, length=sizes["max_position_embeddings"], **kinds),
    }


def own_head_dim(rng, config, chance=0.5):
    if flag(rng, chance):
        config["head_dim"] = rng.choice([8, 16, 22, 40, 64])
        config["rope_parameters"] = rope(rng, config["head_dim"], ("default", "linear", "yarn"))
    return config


def bloom(rng):
    heads = rng.choice([2, 3, 4, 6])
    return {"vocab_size": 257, "hidden_size": heads * 16, "n_layer": rng.choice([2, 3]),
            "n_head": heads, "layer_norm_epsilon": rng.choice([1e-5, 1e-6]),
            "apply_residual_connection_post_layernorm": flag(rng),
            "slow_but_exact": flag(rng), "tie_word_embeddings": flag(rng, 0.7)}


def falcon(rng):
    is_alibi = flag(rng, 0.3)
    heads = rng.choice([2, 4] if is_alibi else [2, 4, 6])  # Other slopes are rounded to bf16 there.
    config = {"vocab_size": 257, "hidden_size": heads * 16, "num_hidden_layers": rng.choice([2, 3]),
              "num_attention_heads": heads, "layer_norm_epsilon": 1e-5, "bias": flag(rng),
              "alibi": is_alibi, "multi_query": flag(rng), "parallel_attn": flag(rng, 0.7),
              "new_decoder_architecture": flag(rng), "tie_word_embeddings": flag(rng),
              "max_position_embeddings": 256, "activation": rng.choice(["gelu", "relu", "silu"])}
    if flag(rng, 0.3):
        config["ffn_hidden_size"] = 96
    if config["new_decoder_architecture"]:
        config["parallel_attn"] = True
        config["num_kv_heads"] = rng.choice([n for n in (1, 2) if heads % n == 0])
        config["num_ln_in_parallel_attn"] = rng.choice([1, 2, None])
    config["rope_parameters"] = rope(rng, 16, ("default", "linear"))
    return config


def gemma(rng):
    config = llama_like(rng, kinds=("default", "linear"))
    config["head_dim"] = rng.choice([14, 16, 24, 48])
    config["attention_bias"] = flag(rng, 0.3)
    config["hidden_act"] = rng.choice(["gelu_pytorch_tanh", "gelu"])
    return config


def gemma2(rng):
    config = gemma(rng)
    del config["hidden_act"]
    config["hidden_activation"] = rng.choice(["gelu_pytorch_tanh", "gelu", "silu"])
    config["query_pre_attn_scalar"] = rng.choice([16, 24, 100])
    config["sliding_window"] = rng.choice([4, 8, 4096])
    config["attn_logit_softcapping"] = rng.choice([6.0, 50.0, None])
    config["final_logit_softcapping"] = rng.choice([8.0, 30.0, None])
    if flag(rng):
        config["layer_types"] = layer_types(rng, config["num_hidden_layers"])
    return config


def gemma3(rng):
    config = gemma2(rng)
    config["attn_logit_softcapping"] = rng.choice([6.0, None, None])
    config["num_hidden_layers"] = rng.choice([3, 7])
    if "layer_types" in config:
        config["layer_types"] = layer_types(rng, config["num_hidden_layers"])
    else:
        config["sliding_window_pattern"] = rng.choice([2, 3, 6])
    config["rope_parameters"] = {
        "full_attention": rope(rng, config["head_dim"], ("default", "linear")),
        "sliding_attention": {"rope_type": "default", "rope_theta": rng.choice([10000.0, 5000.0])},
    }
    return config


def gpt2(rng):
    heads = rng.choice([2, 4])
    return {"vocab_size": 257, "n_positions": rng.choice([64, 256]), "n_embd": heads * 16,
            "n_layer": rng.choice([2, 3]), "n_head": heads, "n_inner": rng.choice([None, 96]),
            "activation_function": plain_activation(rng), "layer_norm_epsilon": 1e-5,
            "scale_attn_weights": flag(rng, 0.7), "tie_word_embeddings": flag(rng, 0.7),
            "scale_attn_by_inverse_layer_idx": flag(rng, 0.3),
            "reorder_and_upcast_attn": flag(rng, 0.3)}


def gpt_bigcode(rng):
    config = gpt2(rng) | {"multi_query": flag(rng), "attention_softmax_in_fp32": True}
    del config["scale_attn_by_inverse_layer_idx"], config["reorder_and_upcast_attn"]
    return config


def gpt_neox(rng):
    sizes = base_sizes(rng, kv=False)
    head_dim = sizes["hidden_size"] // sizes["num_attention_heads"]
    return sizes | {
        "use_parallel_residual": flag(rng), "attention_bias": flag(rng, 0.7),
        "hidden_act": plain_activation(rng), "layer_norm_eps": 1e-5,
        "rope_parameters": rope(rng, head_dim, ("default", "linear", "yarn"), (0.25, 0.5, 1.0))}


def gptj(rng):
    config = gpt2(rng)
    for key in ("scale_attn_weights", "scale_attn_by_inverse_layer_idx", "reorder_and_upcast_attn"):
        del config[key]
    config["rotary_dim"] = rng.choice([4, 8, 16])
    config["tie_word_embeddings"] = flag(rng, 0.2)
    return config


def granite(rng):
    return llama_like(rng) | {
        "attention_bias": flag(rng), "mlp_bias": flag(rng),
        "embedding_multiplier": rng.choice([1.0, 3.0]), "logits_scaling": rng.choice([1.0, 2.0]),
        "residual_multiplier": rng.choice([1.0, 0.5]),
        "attention_multiplier": rng.choice([1.0, 0.25])}


def llama(rng):
    return own_head_dim(rng, llama_like(rng) | {"attention_bias": flag(rng),
                                                "mlp_bias": flag(rng)}, 0.3)


def mistral(rng):
    return own_head_dim(rng, llama_like(rng) | {"sliding_window": rng.choice([None, 5, 8, 4096])})


def mpt(rng):
    heads = rng.choice([2, 3, 4])
    return {"vocab_size": 257, "d_model": heads * 16, "n_heads": heads,
            "n_layers": rng.choice([2, 3]), "max_seq_len": 256,
            "expansion_ratio": rng.choice([2, 4]), "tie_word_embeddings": flag(rng, 0.8),
            "layer_norm_epsilon": rng.choice([1e-5, 1e-6]),
            "attn_config": {"alibi": True, "alibi_bias_max": rng.choice([8, 8, 8, 4]),
                            "clip_qkv": rng.choice([None, None, 0.8]),
                            "softmax_scale": rng.choice([None, 0.5])}}


def olmo(rng):
    config = llama_like(rng) | {"attention_bias": flag(rng, 0.3),
                                "clip_qkv": rng.choice([None, None, 0.8])}
    del config["rms_norm_eps"]
    return config


def olmo2(rng):
    return llama_like(rng) | {"attention_bias": flag(rng, 0.3)}


def opt(rng):
    heads = rng.choice([2, 4])
    width = heads * 16
    return {"vocab_size": 257, "hidden_size": width, "num_hidden_layers": rng.choice([2, 3]),
            "ffn_dim": rng.choice([96, 128]), "num_attention_heads": heads,
            "max_position_embeddings": rng.choice([64, 128]),
            "do_layer_norm_before": flag(rng, 0.6), "enable_bias": flag(rng, 0.7),
            "word_embed_proj_dim": rng.choice([width, width, width // 2]),
            "layer_norm_elementwise_affine": flag(rng, 0.7),
            "activation_function": rng.choice(["relu", "gelu"]),
            "_remove_final_layer_norm": flag(rng, 0.2), "tie_word_embeddings": flag(rng, 0.8)}


def phi(rng):
    sizes = base_sizes(rng)
    head_dim = sizes["hidden_size"] // sizes["num_attention_heads"]
    return sizes | {
        "hidden_act": plain_activation(rng), "qk_layernorm": flag(rng, 0.3),
        "layer_norm_eps": 1e-5,
        "rope_parameters": rope(rng, head_dim, ("default", "linear"), (0.5, 0.25, 1.0))}


def phi3(rng):
    config = llama_like(rng, kinds=("default", "longrope", "longrope"), partial=(1.0, 1.0, 0.75))
    original = config["rope_parameters"].get("original_max_position_embeddings",
                                             config["max_position_embeddings"])
    return config | {"sliding_window": rng.choice([None, 8, 4096]),
                     "original_max_position_embeddings": original}


def qwen2(rng):
    config = llama_like(rng)
    layers = config["num_hidden_layers"]
    config |= {"use_sliding_window": flag(rng), "sliding_window": rng.choice([None, 6, 4096]),
               "max_window_layers": rng.choice([0, 1, layers, 28])}
    if flag(rng, 0.3):
        config["layer_types"] = layer_types(rng, layers)
        config |= {"use_sliding_window": True, "sliding_window": 6}
    return config


def qwen3(rng):
    config = qwen2(rng) | {"attention_bias": flag(rng, 0.4)}
    config["head_dim"] = rng.choice([14, 16, 24, 48])
    config["rope_parameters"] = rope(rng, config["head_dim"])
    return config


def smollm3(rng):
    config = llama_like(rng) | {"attention_bias": flag(rng, 0.3), "mlp_bias": flag(rng, 0.3)}
    layers = config["num_hidden_layers"] = rng.choice([4, 5])
    if flag(rng):
        config["no_rope_layers"] = [rng.choice([0, 1]) for _ in range(layers)]
    else:
        config["no_rope_layer_interval"] = rng.choice([2, 3, 4])
    if flag(rng, 0.4):
        config |= {"use_sliding_window": True, "sliding_window": 6}
    return config


def stablelm(rng):
    sizes = base_sizes(rng)
    head_dim = sizes["hidden_size"] // sizes["num_attention_heads"]
    return sizes | {
        "hidden_act": gated_activation(rng), "layer_norm_eps": 1e-5, "use_qkv_bias": flag(rng),
        "qk_layernorm": flag(rng, 0.3), "use_parallel_residual": flag(rng, 0.4),
        "rope_parameters": rope(rng, head_dim, ("default", "linear"), (0.25, 0.5, 1.0))}


def starcoder2(rng):
    config = llama_like(rng) | {
        "norm_epsilon": 1e-5, "use_bias": flag(rng, 0.7),
        "sliding_window": rng.choice([None, 6, 4096]), "hidden_act": plain_activation(rng)}
    del config["rms_norm_eps"]
    return config


def experts(rng):
    count = rng.choice([1, 3, 4, 8])
    return {"num_experts_per_tok": rng.randrange(1, min(count, 3) + 1)}, count


def mixtral(rng):
    chosen, count = experts(rng)
    return own_head_dim(rng, llama_like(rng) | chosen | {
        "num_local_experts": count, "sliding_window": rng.choice([None, None, 6])}, 1.0)


def qwen_moe(rng):
    config = llama_like(rng)
    layers = config["num_hidden_layers"]
    chosen, count = experts(rng)
    return config | chosen | {
        "num_experts": count, "norm_topk_prob": flag(rng),
        "moe_intermediate_size": rng.choice([32, 50, 64]),
        "decoder_sparse_step": rng.choice([1, 1, 2]),
        "mlp_only_layers": rng.choice([[], [], [0], [layers - 1]]),
        "use_sliding_window": flag(rng, 0.3), "sliding_window": rng.choice([6, 4096])}


def qwen2_moe(rng):
    return qwen_moe(rng) | {
        "shared_expert_intermediate_size": rng.choice([24, 64, 90]), "qkv_bias": flag(rng, 0.7),
        "max_window_layers": rng.choice([0, 1, 28])}


def qwen3_moe(rng):
    return own_head_dim(rng, qwen_moe(rng) | {"attention_bias": flag(rng, 0.3)})


def olmoe(rng):
    chosen, count = experts(rng)
    return llama_like(rng) | chosen | {
        "num_experts": count, "norm_topk_prob": flag(rng), "attention_bias": flag(rng, 0.3)}


FAMILIES = {
    "bloom": ("Bloom", bloom), "falcon": ("Falcon", falcon), "gemma": ("Gemma", gemma),
    "gemma2": ("Gemma2", gemma2), "gemma3_text": ("Gemma3Text", gemma3), "gpt2": ("GPT2", gpt2),
    "gpt_bigcode": ("GPTBigCode", gpt_bigcode), "gpt_neox": ("GPTNeoX", gpt_neox),
    "gptj": ("GPTJ", gptj), "granite": ("Granite", granite), "llama": ("Llama", llama),
    "mistral": ("Mistral", mistral), "mixtral": ("Mixtral", mixtral), "mpt": ("Mpt", mpt), "olmo": ("Olmo", olmo),
    "olmo2": ("Olmo2", olmo2), "olmoe": ("Olmoe", olmoe), "opt": ("OPT", opt), "phi": ("Phi", phi), "phi3": ("Phi3", phi3),
    "qwen2": ("Qwen2", qwen2), "qwen2_moe": ("Qwen2Moe", qwen2_moe), "qwen3": ("Qwen3", qwen3),
    "qwen3_moe": ("Qwen3Moe", qwen3_moe), "smollm3": ("SmolLM3", smollm3),
    "stablelm": ("StableLm", stablelm), "starcoder2": ("Starcoder2", starcoder2),
}


@torch.no_grad()
def randomise(model, generator):
    """Weights by which attention is peaked and logits are spread, so that every part shows."""
    gemma_norms = "gemma" in model.config.model_type
    transposed = {id(m.weight) for m in model.modules() if type(m).__name__ == "Conv1D"}
    for name, parameter in model.named_parameters():
        noise = torch.randn(parameter.shape, generator=generator)
        if name.endswith("bias"):
            values = 0.15 * noise
        elif parameter.dim() == 1:
            peak = 1.6 if re.search(r"[qk]_(layer)?norm", name) else 1.0
            values = peak * (1 + 0.25 * noise) - (1 if gemma_norms else 0)
        elif re.search(r"embed|wte|lm_head", name) and not re.search("position|wpe", name):
            values = noise * (1.0 if gemma_norms else 2.5) / math.sqrt(parameter.shape[1])
        elif re.search("position|wpe", name):
            values = 0.3 * noise
        else:
            inputs = parameter.shape[0 if id(parameter) in transposed else -1]
            values = 1.5 * noise / math.sqrt(inputs)
        parameter.copy_(values)


@torch.no_grad()
def logits_of(model, ids, in_float64=False):
    inputs = torch.tensor([ids])
    if not in_float64:
        return model(inputs, use_cache=False).logits[0]
    with InFloat64():
        return model(inputs, use_cache=False).logits[0]


def widened(model):
    wide = copy.deepcopy(model).double()
    with InFloat64():
        for parent in list(wide.modules()):
            for name, child in list(parent.named_children()):
                if type(child).__name__.endswith("RotaryEmbedding"):
                    setattr(parent, name, type(child)(wide.config))
                if hasattr(child, "reorder_and_upcast_attn"):
                    child.reorder_and_upcast_attn = False  # Upcasts to float32.
    return wide.eval()


def greedy_ids(model, prompt):
    """As many ids as float32 decides safely."""
    ids = list(prompt)
    while len(ids) < len(prompt) + GREEDY:
        top = torch.topk(logits_of(model, ids)[-1], 2)
        if top.values[0] - top.values[1] < MIN_GAP:
            break
        ids.append(int(top.indices[0]))
    return ids[len(prompt):]


def spell_as_before(config, rng):
    """The members of config.json by the names that releases before the fifth gave them."""
    rules = config.pop("rope_parameters", None)
    if config["model_type"] == "gemma3_text" and rules:
        config["rope_theta"] = rules["full_attention"].pop("rope_theta")
        config["rope_local_base_freq"] = rules["sliding_attention"]["rope_theta"]
        rules = rules["full_attention"]
    elif rules:
        config["rope_theta"] = rules.pop("rope_theta", 10000.0)
        share = rules.pop("partial_rotary_factor", None)
        if share is not None:
            config["partial_rotary_factor"] = share
        if config["model_type"] == "gpt_neox":
            config["rotary_emb_base"] = config.pop("rope_theta")
            config["rotary_pct"] = config.pop("partial_rotary_factor", 1.0)
    if rules and rules.get("rope_type", "default") != "default":
        if flag(rng):
            rules["type"] = rules.pop("rope_type")
        config["rope_scaling"] = rules
    config.pop("layer_types", None)
    if "_sliding_window_pattern" in config:
        config["sliding_window_pattern"] = config.pop("_sliding_window_pattern")
    if "dtype" in config:
        config["torch_dtype"] = config.pop("dtype")
    return config


def load(folder):
    """The model; Falcon's eager attention adds ALiBi twice (transformers 5.24), its other one once."""
    attention = "sdpa" if json.loads((folder / "config.json").read_text()).get("alibi") else "eager"
    return transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation=attention,
        experts_implementation="eager").eval()


def add_causal_masks(folder, names):
    """Old releases stored masks beside the weights, of types that no weight has."""
    path = folder / "model.safetensors"
    if not path.exists():
        return
    tensors = safetensors.torch.load_file(path)
    for layer in range(2):
        tensors[names[0].format(layer)] = torch.ones(1, 1, 8, 8, dtype=torch.bool).tril()
        tensors[names[1].format(layer)] = torch.tensor(-1e9)
    safetensors.torch.save_file(tensors, path, {"format": "pt"})


OLD_MASKS = {
    "gpt2": ("transformer.h.{}.attn.bias", "transformer.h.{}.attn.masked_bias"),
    "gpt_neox": ("gpt_neox.layers.{}.attention.bias", "gpt_neox.layers.{}.attention.masked_bias"),
    "gptj": ("transformer.h.{}.attn.bias", "transformer.h.{}.attn.masked_bias"),
}


def write_model(name, family, rng, folder):
    """Writes the folder; the config that was drawn."""
    kind, draw = FAMILIES[family]
    drawn = draw(rng)
    config = getattr(transformers, kind + "Config")(
        **drawn, bos_token_id=1, eos_token_id=2, pad_token_id=2)
    model = transformers.AutoModelForCausalLM.from_config(
        config, dtype=torch.float32, attn_implementation="eager")
    randomise(model, torch.Generator().manual_seed(rng.randrange(2**31)))
    dtype = rng.choice([torch.float32, torch.float32, torch.bfloat16, torch.float16])
    shutil.rmtree(folder, ignore_errors=True)
    model.to(dtype).save_pretrained(folder, max_shard_size=rng.choice(["50GB", "90KB"]))

    ids = [rng.randrange(config.vocab_size) for _ in range(LENGTH)]
    model = load(folder)
    logits = logits_of(model, ids)
    is_old = flag(rng, 0.4)
    if is_old:
        path = folder / "config.json"
        before = path.read_text()
        path.write_text(json.dumps(spell_as_before(json.loads(before), rng), indent=2))
        try:
            is_same = torch.equal(logits, logits_of(load(folder), ids))
        except Exception:  # A spelling that never was.
            is_same = False
        if not is_same:
            path.write_text(before)
            is_old = False
    is_fp8 = dtype == torch.float32 and (folder / "model.safetensors").exists() and flag(rng, 0.25)
    if is_fp8:
        to_fp8(folder, model, rng)
        logits = logits_of(model, ids)
    if family in OLD_MASKS and flag(rng):
        add_causal_masks(folder, OLD_MASKS[family])
    noise = float((logits - logits_of(widened(model), ids, True)).abs().max())
    safetensors.torch.save_file({"input_ids": torch.tensor(ids), "logits": logits.contiguous()},
                                folder / "expected.safetensors")
    (folder / "expected.json").write_text(json.dumps({
        "name": name, "prompt_length": 12, "greedy_ids": greedy_ids(model, ids[:12]),
        "tolerance_max_abs": {"logits": max(20 * noise, 1e-4)}}))
    return drawn | {"dtype": str(dtype), "old_spelling": is_old, "fp8": is_fp8,
                    "std": float(logits.std())}


def run_test(program, out, name):
    """What became of the model: "equal", "refused: ..." or "DIFFERS: ..."."""
    filter_name = name.replace("-", "_")
    result = subprocess.run(
        [program, f"--gtest_filter=All/GoldenModelsTest.*/{filter_name}_*"], text=True,
        capture_output=True, env=os.environ | {"VITRINE_GOLDEN_MODELS": str(out)}, check=False)
    if result.returncode == 0 and "4 tests." in result.stdout:
        return "equal"
    text = result.stdout + result.stderr
    refusal = re.search(r"UNIMPLEMENTED: [^\n\"]*", text)
    if refusal:
        return "refused: " + refusal[0]
    lines = [line for line in text.splitlines() if re.search(r"actual|what|rror|token \d", line)]
    return "DIFFERS: " + " | ".join(lines[:3])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=4, help="models of each family")
    parser.add_argument("--family", choices=FAMILIES, action="append")
    args = parser.parse_args()
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    torch.set_num_threads(1)
    counts = {"equal": 0, "refused": 0, "DIFFERS": 0}
    for family in args.family or FAMILIES:
        for index in range(args.count):
            name = f"{family}-{args.seed}-{index}"
            folder = args.out / name
            drawn = write_model(name, family, random.Random(name), folder)
            outcome = run_test(args.program, args.out, name)
            counts[outcome.split(":")[0]] += 1
            print(name, outcome, "" if outcome == "equal" else drawn, flush=True)
            if outcome == "equal":
                shutil.rmtree(folder)
    print(counts)
    return 1 if counts["DIFFERS"] else 0


if __name__ == "__main__":
    sys.exit(main())
