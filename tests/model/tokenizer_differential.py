#!/usr/bin/env python3
"""Compares vitrine's tokenizers with the libraries they come from, on seeded random text.

    tokenizer_differential.py KIND FILE [--stream PROGRAM] [--bytes N] [--seconds T] [--seed S]
                              [--first_piece P]

KIND says what FILE is and what it is compared with (packages of PyPI):
    json           tokenizer.json          tokenizers
    sentencepiece  tokenizer.model         sentencepiece
    tiktoken       ranks of Qwen's         tiktoken; converted to tokenizer.json for vitrine
    tekken         tekken.json             tiktoken; converted likewise
    llama.cpp      ggml-vocab-X.gguf       X.gguf.inp and X.gguf.out beside it; no random text

PROGRAM is build/tests/model/tokenize_stream. The text comes in pieces of a megabyte, each drawn from S
and its own number alone, so that memory stays bounded and a long comparison can go on where another
ended. Bytes that are no UTF-8 must be refused. Reports on stderr after every 16th piece and ends with
one line; exit code 1 at the first difference, which is printed with the text cut down to where the ids
part. Not part of ctest: it needs vocabularies that the repository does not hold.
"""
import argparse
import array
import base64
import itertools
import json
import os
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


SCRIPTS = [[c for c in map(chr, range(low, high + 1)) if unicodedata.category(c) != "Cn"] for low, high in (
    (0x61, 0x7A), (0x41, 0x5A), (0xC0, 0x17F), (0x386, 0x3CE), (0x400, 0x45F), (0x531, 0x586), (0x5D0, 0x5EA),
    (0x620, 0x64A), (0x904, 0x939), (0x985, 0x9B9), (0xB85, 0xBB9), (0xE01, 0xE3A), (0xE81, 0xEB0), (0xF40, 0xF6C),
    (0x10A0, 0x10FF), (0x1200, 0x1248), (0x13A0, 0x13F4), (0x1780, 0x17B3), (0x1820, 0x1878), (0x1E00, 0x1EF9),
    (0x3041, 0x3096), (0x30A1, 0x30FA), (0x4E00, 0x9FFF), (0xAC00, 0xD7A3), (0xFF21, 0xFF5A), (0x10400, 0x1044F),
    (0x1D400, 0x1D4FF), (0x20000, 0x2A6DF))]
DIGITS = ["0123456789", "٠١٢٣٤٥٦٧٨٩", "०१२३४५६७८९", "０１２３４５６７８９", "²³¹⁰", "½¾⅓", "ⅠⅣⅫ", "①⑳", "𝟎𝟗"]
SPACES = [" ", "  ", "\t", "\n", "\r", "\r\n", "\v", "\f", "\x1c", "\x1f", "\x85", "\u00a0", "\u1680", "\u2000",
          "\u2009", "\u200a", "\u2028", "\u2029", "\u202f", "\u205f", "\u3000"]
CONTROLS = [chr(c) for c in (*range(0x20), *range(0x7F, 0xA0), 0xAD, 0x200B, 0x200C, 0x200D, 0x200E, 0x202A, 0x202E,
                             0x2060, 0x2066, 0xFE00, 0xFE0F, 0xFEFF, 0xFFF9, 0xFFFC, 0xFFFD, 0xE0001, 0xE0020)]
MARKS = [chr(c) for c in (*range(0x300, 0x370), 0x5B0, 0x64E, 0x94D, 0xE48, 0x20E3, 0x3099)]
EMOJI = [chr(c) for c in (*range(0x1F300, 0x1F650), *range(0x1F680, 0x1F6C6), *range(0x1F900, 0x1F9FF), 0x2764, 0x2708)]
JOINED = ["\u200d", "\ufe0f\u200d", "\U0001f3fb\u200d", "\U0001f3ff", "\ufe0f", "\ufe0e", ""]
FLAGS = [chr(c) for c in range(0x1F1E6, 0x1F200)]
PUNCTUATION = [chr(c) for c in range(0x21, 0x7F) if not chr(c).isalnum()] + list("…—–“”‘’«»、。！？·•€£¥°§±×÷→∑√")
LOOK_ALIKES = ["<|im_start|>", "<|im_end|>", "<|endoftext|>", "<s>", "</s>", "<unk>", "<pad>", "[INST]", "[/INST]",
               "<0x0A>", "<0xFF>", "<|eot_id|>", "<start_of_turn>", "<｜User｜>", "<think>", "</tool_call>", "▁", "Ġ",
               "Ċ", "ĠĠ"]


def broken(rng, token):
    """The text of a control token, whole or nearly."""
    i = rng.randrange(len(token) + 1)
    return rng.choice((token, token, token[:i], token[i:], token[:i] + " " + token[i:], token.upper(), token * 2,
                       token[:i] + "\u200b" + token[i:], " " + token, token + " ", token + "\n"))


def part(rng, look_alikes):
    """A few characters of one kind."""
    kind = rng.random()
    if kind < 0.30:
        return rng.choice(WORDS) + rng.choice((" ", " ", " ", "", ", ", "\n"))
    if kind < 0.45:
        script = rng.choice(SCRIPTS)
        return "".join(rng.choice(script) for _ in range(rng.randrange(1, 9))) + rng.choice((" ", "", "'s", "."))
    if kind < 0.55:
        return rng.choice(PIECES) * rng.choice((1, 1, 1, 1, 2, 5))
    if kind < 0.62:
        return "".join(rng.choice(rng.choice(DIGITS)) for _ in range(rng.randrange(1, 12)))
    if kind < 0.70:
        return "".join(rng.choice(SPACES) * rng.choice((1, 1, 2, 7)) for _ in range(rng.randrange(1, 5)))
    if kind < 0.75:
        return "".join(rng.choice(CONTROLS) for _ in range(rng.randrange(1, 4)))
    if kind < 0.80:
        return rng.choice("aeouAGyа") + "".join(rng.choice(MARKS) for _ in range(rng.randrange(1, 4)))
    if kind < 0.86:
        if rng.random() < 0.2:
            return "".join(rng.choice(FLAGS) for _ in range(rng.randrange(1, 5)))
        return "".join(rng.choice(EMOJI) + rng.choice(JOINED) for _ in range(rng.randrange(1, 5)))
    if kind < 0.92:
        return "".join(rng.choice(PUNCTUATION) for _ in range(rng.randrange(1, 6)))
    if kind < 0.95:
        return broken(rng, rng.choice(look_alikes))
    if kind < 0.995:
        return "".join(rng.choice(ASSIGNED) for _ in range(rng.randrange(1, 6)))
    return rng.choice(PIECES) * rng.randrange(1, 200)


def piece_texts(seed, number, look_alikes, left_out, size=1_000_000):
    """The texts of a piece, of about `size` bytes together. Its parts meet in ever new neighbourhoods."""
    rng = random.Random(f"{seed}/{number}")
    pool = [part(rng, look_alikes).translate(left_out) for _ in range(20_000)]
    done = 0
    while done < size:
        text = "".join(rng.choices(pool, k=rng.choice((1, 1, 3, 3, 10, 30, 100, 1000, 3000))))
        done += len(text.encode())
        yield text


def not_utf8(rng):
    """Bytes that Python does not decode."""
    while True:
        data = bytearray(rng.choice(WORDS).encode() * rng.randrange(1, 4))
        for _ in range(rng.randrange(1, 3)):
            byte = rng.choice((0x80, 0xBF, 0xC0, 0xC1, 0xE0, 0xED, 0xF4, 0xF5, 0xFF))
            data.insert(rng.randrange(len(data) + 1), byte)
        if rng.random() < 0.3:
            data += rng.choice((b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xc0\xaf", b"\xe0\x80\xaf", b"\xf0\x9f"))
        try:
            data.decode()
        except UnicodeDecodeError:
            return bytes(data)


class Stream:
    """vitrine's tokenizer in a process of its own."""

    def __init__(self, program, path):
        self.process = subprocess.Popen([program, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def ask(self, data, parse_special):
        self.process.stdin.write(f"{len(data)} {int(parse_special)}\n".encode() + data)
        self.process.stdin.flush()
        line = self.process.stdout.readline().decode()
        return line or sys.exit("tokenize_stream ended")

    def encode(self, text, parse_special=False):
        line = self.ask(text.encode(), parse_special)
        if line.startswith("error: "):
            sys.exit(f"tokenize_stream: {line.strip()}")
        ids = array.array("i")
        ids.frombytes(self.process.stdout.read(int(line) * ids.itemsize))
        return ids

    def refuses(self, data):
        return self.ask(data, False).startswith("error: the text is not UTF-8")


def as_array(encode):
    """The function with its ids in an array, which compares many times faster than a list."""
    return encode and (lambda text: array.array("i", encode(text)))


class Pair:
    """vitrine's tokenizer and the library's: functions from a text to an array of ids."""

    def __init__(self, stream, theirs, parsing=None, look_alikes=(), left_out=()):
        self.stream = stream
        self.ours = stream.encode
        self.theirs = as_array(theirs)
        # Where the library can do so: with the texts of control tokens becoming those.
        self.ours_parsing = lambda text: stream.encode(text, parse_special=True)
        self.theirs_parsing = as_array(parsing)
        self.look_alikes = LOOK_ALIKES + [text for text in look_alikes if text]
        self.left_out = {ord(c): None for c in left_out}


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


def unknown_marks():
    """Characters that the library normalises as unassigned: its tables are those of an older Unicode."""
    from tokenizers.normalizers import NFC
    probes = {c: "\u0345" + c + "\u0334" for c in ASSIGNED}
    return [c for c, text in probes.items() if NFC().normalize_str(text) != unicodedata.normalize("NFC", text)]


def open_json(file, program):
    import tokenizers

    def load(encodes_special):
        library = tokenizers.Tokenizer.from_file(file)
        library.encode_special_tokens = encodes_special
        library.no_truncation()
        library.no_padding()
        return library

    plain, parsing = load(True), load(False)
    return Pair(Stream(program, file), lambda text: plain.encode_batch_fast([text])[0].ids,
                lambda text: parsing.encode_batch_fast([text])[0].ids,
                [str(token) for token in plain.get_added_tokens_decoder().values()][:200], unknown_marks())


def open_pair(kind, file, program, folder):
    if kind == "json":
        return open_json(file, program)
    if kind == "sentencepiece":
        import sentencepiece
        library = sentencepiece.SentencePieceProcessor(model_file=file)
        begin = [library.bos_id()] if library.bos_id() >= 0 else []
        # A NUL ends a text for the library's normaliser.
        return Pair(Stream(program, file), lambda text: begin + library.encode(text), left_out="\x00")
    path = f"{folder}/tokenizer.json"
    if kind == "tiktoken":
        lines = pathlib.Path(file).read_bytes().splitlines()
        ranks = {base64.b64decode(t): int(r) for t, r in (line.split() for line in lines if line)}
        ranks_to_json(ranks, 0, QWEN_PATTERN, {"type": "NFC"}, path)
        return Pair(Stream(program, path), tiktoken_reference(ranks, 0, QWEN_PATTERN, True))
    tekken = json.loads(pathlib.Path(file).read_text())
    config = tekken["config"]
    specials = config["default_num_special_tokens"]
    vocabulary = tekken["vocab"][:config["default_vocab_size"] - specials]
    ranks = {base64.b64decode(t["token_bytes"]): t["rank"] for t in vocabulary}
    ranks_to_json(ranks, specials, config["pattern"], None, path)
    return Pair(Stream(program, path), tiktoken_reference(ranks, specials, config["pattern"], False))


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
        ids = ours(text).tolist()
        # The expected ids have no begin token.
        if ids != expected and ids[1:] != expected:
            print(f"{file}: {text!r}\n  ours   {ids}\n  theirs {expected}")
            return 1
    print(f"{pathlib.Path(file).name}: {len(texts)} texts, all equal")
    return 0


def compare(file, ours, theirs, text):
    if ours(text) == theirs(text):
        return
    text = cut_down(text, ours, theirs)
    print(f"{file}: {text!r} {text.encode().hex()}\n  ours   {ours(text).tolist()}\n"
          f"  theirs {theirs(text).tolist()}")
    sys.exit(1)


def compare_pieces(args, pair):
    name = pathlib.Path(args.file).name
    start = time.monotonic()
    texts = done = parsed = refused = 0

    def report():
        return (f"{name}: {texts} texts, {done} bytes, {parsed} of them with control tokens, and {refused} texts that "
                f"are not UTF-8, seed {args.seed}, pieces {args.first_piece} to {number}, all equal")

    for number in itertools.count(args.first_piece):
        rng = random.Random(f"{args.seed}/{number}/modes")
        for text in piece_texts(args.seed, number, pair.look_alikes, pair.left_out):
            if pair.theirs_parsing and rng.random() < 0.3:
                # A begin token in front would be ours too, and twice the library's.
                text = "x" + text
                compare(args.file, pair.ours_parsing, pair.theirs_parsing, text)
                parsed += len(text.encode())
            else:
                compare(args.file, pair.ours, pair.theirs, text)
            done += len(text.encode())
            texts += 1
        for _ in range(20):
            data = not_utf8(rng)
            if not pair.stream.refuses(data):
                sys.exit(f"{args.file}: {data!r} is not UTF-8 and was not refused")
            refused += 1
        seconds = time.monotonic() - start
        if done >= args.bytes or (args.seconds and seconds >= args.seconds):
            print(report())
            return
        if (number - args.first_piece) % 16 == 15:
            print(f"{report()} so far ({seconds:.0f} s)", file=sys.stderr, flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=("json", "sentencepiece", "tiktoken", "tekken", "llama.cpp"))
    parser.add_argument("file")
    parser.add_argument("--stream", default="build/tests/model/tokenize_stream")
    parser.add_argument("--bytes", type=int, default=10_000_000)
    parser.add_argument("--seconds", type=float, default=0, help="ends after this time, too")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first_piece", type=int, default=0)
    args = parser.parse_args()
    if args.kind == "llama.cpp":
        sys.exit(compare_llama_cpp(args.file, args.stream))
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    with tempfile.TemporaryDirectory() as folder:
        compare_pieces(args, open_pair(args.kind, args.file, args.stream, folder))


if __name__ == "__main__":
    main()
