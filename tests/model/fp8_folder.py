"""Model folders whose matrices are 8-bit floats, for family_differential.py."""

import json
import math
import re

import safetensors.torch
import torch


def fp8_scheme(rng):
    """quantization_config, rows and columns that share a scale (None: all), and the scales' name."""
    method = rng.choice(["fp8", "fp8", "compressed-tensors", "compressed-tensors", "fbgemm_fp8"])
    if method == "fbgemm_fp8":
        return {"quant_method": method, "activation_scale_ub": 1200.0,
                "modules_to_not_convert": ["lm_head"]}, (1, None), "_scale"
    if method == "fp8":
        block = rng.choice([None, [16, 32], [128, 128]])
        config = {"quant_method": method, "activation_scheme": rng.choice(["dynamic", "static"]),
                  "weight_block_size": block, "fmt": rng.choice(["e4m3", "e5m2"]),
                  "scale_fmt": rng.choice(["float", "float", "ue8m0"])}
        return config, block or (None, None), "_scale_inv"
    strategy = rng.choice(["tensor", "channel", "block"])
    weights = {"num_bits": 8, "type": "float", "strategy": strategy, "symmetric": True,
               "dynamic": False, "group_size": None, "actorder": None, "observer": "minmax"}
    if strategy == "block":
        weights["block_structure"] = [16, 32]
    inputs = {"num_bits": 8, "type": "float", "strategy": "token", "symmetric": True,
              "dynamic": True}
    config = {"quant_method": method, "format": "float-quantized", "ignore": ["lm_head"],
              "quantization_status": "compressed", "kv_cache_scheme": None,
              "sparsity_config": {}, "transform_config": {},
              "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights,
                                            "input_activations": inputs,
                                            "output_activations": None}}}
    return config, {"tensor": (None, None), "channel": (1, None), "block": (16, 32)}[strategy], \
        "_scale"


@torch.no_grad()
def to_fp8(folder, model, rng):
    """Stores the matrices of the layers as 8-bit floats; `model` gets what they then are."""
    quantization, block, suffix = fp8_scheme(rng)
    path = folder / "model.safetensors"
    tensors = safetensors.torch.load_file(path)
    parameters = dict(model.named_parameters())
    dtype = torch.float8_e5m2 if quantization.get("fmt") == "e5m2" else torch.float8_e4m3fn
    scale_dtype = rng.choice([torch.float32, torch.bfloat16])
    if quantization.get("scale_fmt") == "ue8m0":
        scale_dtype = torch.float8_e8m0fnu
    for name in list(tensors):
        if not re.search(r"layers\.\d+\..*(proj|dense|fc\d|c_fc|c_proj)\.weight$", name):
            continue
        if name not in parameters:  # Experts, which are one parameter in the model.
            continue
        rows, columns = tensors[name].shape
        high, wide = block[0] or rows, block[1] or columns
        grid = torch.empty(math.ceil(rows / high), math.ceil(columns / wide))
        codes = torch.empty(rows, columns, dtype=dtype)
        for i in range(grid.shape[0]):
            for j in range(grid.shape[1]):
                part = (slice(i * high, (i + 1) * high), slice(j * wide, (j + 1) * wide))
                scale = tensors[name][part].abs().max() / torch.finfo(dtype).max
                grid[i, j] = scale.to(scale_dtype).float()
                codes[part] = (tensors[name][part] / grid[i, j]).to(dtype)
                parameters[name][part] = codes[part].float() * grid[i, j]
        tensors[name] = codes
        if block == (None, None):
            grid = grid.reshape(rng.choice([[], [1], [1, 1]]))
        tensors[name + suffix] = grid.to(scale_dtype)
        if quantization.get("activation_scheme") == "static":
            tensors[name.removesuffix("weight") + "activation_scale"] = torch.tensor(0.5)
    safetensors.torch.save_file(tensors, path, {"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    config["quantization_config"] = quantization
    (folder / "config.json").write_text(json.dumps(config, indent=2))
