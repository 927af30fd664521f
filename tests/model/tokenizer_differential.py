#!/usr/bin/env python3
"""Compares vitrine's tokenizers with the libraries they come from, on seeded random text.

    tokenizer_differential.py KIND FILE [--stream PROGRAM] [--bytes N] [--seed S]

KIND says what FILE is and what it is compared with (packages of PyPI):
    json           tokenizer.json          tokenizers
    sentencepiece  tokenizer.model         sentencepiece
    tiktoken       ranks of Qwen's         tiktoken; converted to tokenizer.json for vitrine
    tekken         tekken.json             tiktoken; converted likewise
    llama.cpp      ggml-vocab-X.gguf       X.gguf.inp and X.gguf.out beside it; no random text

PROGRAM is build/tests/model/tokenize_stream. Prints one line; exit code 1 at the first difference,
which is printed with the text cut down to where the ids part. Not part of ctest: it needs vocabularies
that the repository does not hold.
"""
import argparse
import base64
import json
import pathlib
import random
import subprocess
import sys
import tempfile
import time
import unicodedata

QWEN_PATTERN = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|"
                r"\s*[\r\n]+|\s+(?!\S)|\s+")

# Characters whose properties the libraries agree about: assigned in the Unicode version of Python.
ASSIGNED = [chr(c) for c in range(0x110000)
            if not 0xD800 <= c < 0xE000 and unicodedata.category(chr(c)) not in ("Cn", "Co")]
WORDS = ("the of and to in that for is was with model attention I'm you're WE'LL it's can't 'S 'ſ don'T "
         "HelloWorld camelCase snake_case XMLHttpRequest naïve café Kantō lǜshi Straße ΑΘΗΝΑ привет мир "
         "こんにちは 世界 안녕하세요 مرحبا שלום नमस्ते สวัสดี 你好，世界。 🦙 👩‍👩‍👧‍👦 🇩🇪 1️⃣ ½ ﬁ Ａ é ǅ").split()
PIECES = WORDS + [" ", "  ", "   ", "\n", "\n\n", "\r\n", "\t", " \n ", "\u00a0", "\u00a0\u00a0", "\u3000",
                  "\u2028", "\u200b", "\u0301", ".", ",", "!", "?", "...", "/", "//", "://", "$", "+=", "<|im_end|>",
                  "<s>", "_", "-", "'", '"', "(", ")", "0", "7", "12", "345", "67890", "3.14159", "#", "\x00", "▁", "▁▁"]


def random_text(rng, size):
    """Text of about `size` bytes."""
    parts, length = [], 0
    while length < size:
        kind = rng.random()
        if kind < 0.55:
            part = rng.choice(WORDS) + rng.choice((" ", " ", " ", "", ", ", "\n"))
        elif kind < 0.9:
            part = rng.choice(PIECES) * rng.choice((1, 1, 1, 1, 2, 5))
        elif kind < 0.99:
            part = "".join(rng.choice(ASSIGNED) for _ in range(rng.randrange(1, 6)))
        else:
            part = rng.choice(PIECES) * rng.randrange(1, 200)
        parts.append(part)
        length += len(part.encode())
    return "".join(parts)


class Stream:
    """vitrine's tokenizer in a process of its own."""

    def __init__(self, program, path):
        self.process = subprocess.Popen([program, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def encode(self, text, parse_special=False):
        data = text.encode()
        self.process.stdin.write(f"{len(data)} {int(parse_special)}\n".encode() + data)
        self.process.stdin.flush()
        line = self.process.stdout.readline().decode()
        if not line or line.startswith("error: "):
            sys.exit(f"tokenize_stream: {line.strip() or 'ended'}")
        return [int(i) for i in line.split()]


def byte_alphabet():
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [b for b in range(256) if b not in printable]
    return {**{b: chr(b) for b in printable}, **{b: chr(256 + i) for i, b in enumerate(others)}}


def split_by_ranks(ranks, token):
    """The two parts that are merged last when `token` is built by merges of lower rank."""
    parts, limit = [bytes([b]) for b in token], ranks[token]
    while len(parts) > 2:
        pairs = [(ranks.get(parts[i] + parts[i + 1], limit), i) for i in range(len(parts) - 1)]
        rank, i = min(pairs)
        if rank >= limit:
            return None
        parts[i:i + 2] = [parts[i] + parts[i + 1]]
    return parts if len(parts) == 2 else None


def ranks_to_json(ranks, offset, pattern, normalizer, path):
    """A tokenizer.json that encodes as tiktoken does with `ranks`; ids begin at `offset`."""
    alphabet = byte_alphabet()
    write = lambda token: "".join(alphabet[b] for b in token)
    merges = []
    for token in sorted(ranks, key=ranks.get):
        if len(token) > 1 and (parts := split_by_ranks(ranks, token)):
            merges.append([write(p) for p in parts])
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    split = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
    pathlib.Path(path).write_text(json.dumps({
        "version": "1.0", "added_tokens": [], "normalizer": normalizer,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [split, level]},
        "post_processor": None, "decoder": level,
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "fuse_unk": False, "byte_fallback": False,
                  "ignore_merges": True, "vocab": {write(t): r + offset for t, r in ranks.items()},
                  "merges": merges}}))


def tiktoken_reference(ranks, offset, pattern, normalize):
    import tiktoken
    library = tiktoken.Encoding("differential", pat_str=pattern, mergeable_ranks=ranks, special_tokens={})
    if normalize:
        return lambda text: library.encode_ordinary(unicodedata.normalize("NFC", text))
    return lambda text: [i + offset for i in library.encode_ordinary(text)]


def open_pair(kind, file, program, folder):
    """vitrine's encoder of a text and the library's."""
    if kind == "json":
        import tokenizers
        library = tokenizers.Tokenizer.from_file(file)
        library.encode_special_tokens = True
        library.no_truncation()
        library.no_padding()
        return Stream(program, file).encode, lambda text: library.encode(text).ids
    if kind == "sentencepiece":
        import sentencepiece
        library = sentencepiece.SentencePieceProcessor(model_file=file)
        begin = [library.bos_id()] if library.bos_id() >= 0 else []
        return Stream(program, file).encode, lambda text: begin + library.encode(text)
    path = f"{folder}/tokenizer.json"
    if kind == "tiktoken":
        lines = pathlib.Path(file).read_bytes().splitlines()
        ranks = {base64.b64decode(t): int(r) for t, r in (line.split() for line in lines if line)}
        ranks_to_json(ranks, 0, QWEN_PATTERN, {"type": "NFC"}, path)
        return Stream(program, path).encode, tiktoken_reference(ranks, 0, QWEN_PATTERN, True)
    tekken = json.loads(pathlib.Path(file).read_text())
    config = tekken["config"]
    specials = config["default_num_special_tokens"]
    vocabulary = tekken["vocab"][:config["default_vocab_size"] - specials]
    ranks = {base64.b64decode(t["token_bytes"]): t["rank"] for t in vocabulary}
    ranks_to_json(ranks, specials, config["pattern"], None, path)
    return Stream(program, path).encode, tiktoken_reference(ranks, specials, config["pattern"], False)


def cut_down(text, ours, theirs):
    """The shortest prefix, then suffix of it, that still makes a difference."""
    low, high = 0, len(text)
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if ours(text[:middle]) != theirs(text[:middle]) else (middle + 1, high)
    text = text[:high]
    for begin in range(len(text) - 1, -1, -1):
        if ours(text[begin:]) != theirs(text[begin:]):
            return text[begin:]
    return text


def compare_llama_cpp(file, program):
    ours = Stream(program, file).encode
    texts = pathlib.Path(f"{file}.inp").read_text(encoding="utf-8").split("\n__ggml_vocab_test__\n")
    lines = pathlib.Path(f"{file}.out").read_text(encoding="utf-8").split("\n")
    for text, line in zip(texts, lines):
        expected = [int(i) for i in line.split()]
        ids = ours(text)
        # The expected ids have no begin token.
        if ids != expected and ids[1:] != expected:
            print(f"{file}: {text!r}\n  ours   {ids}\n  theirs {expected}")
            return 1
    print(f"{pathlib.Path(file).name}: {len(texts)} texts, all equal")
    return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=("json", "sentencepiece", "tiktoken", "tekken", "llama.cpp"))
    parser.add_argument("file")
    parser.add_argument("--stream", default="build/tests/model/tokenize_stream")
    parser.add_argument("--bytes", type=int, default=10_000_000)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    if args.kind == "llama.cpp":
        sys.exit(compare_llama_cpp(args.file, args.stream))

    rng = random.Random(args.seed)
    with tempfile.TemporaryDirectory() as folder:
        ours, theirs = open_pair(args.kind, args.file, args.stream, folder)
        done = texts = 0
        start = time.monotonic()
        while done < args.bytes:
            text = random_text(rng, rng.choice((1, 5, 20, 100, 1000, 20000)))
            if args.kind == "sentencepiece":
                text = text.replace("\x00", "")  # Ends a text for the library's normaliser.
            if ours(text) != theirs(text):
                text = cut_down(text, ours, theirs)
                print(f"{args.file}: {text!r} {text.encode().hex()}\n  ours   {ours(text)}\n  theirs {theirs(text)}")
                sys.exit(1)
            done += len(text.encode())
            texts += 1
        seconds = time.monotonic() - start
        print(f"{pathlib.Path(args.file).name}: {texts} texts, {done} bytes, all equal ({seconds:.0f} s)")


if __name__ == "__main__":
    main()
