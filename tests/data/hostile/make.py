"""Hostile and odd model files and requests: `make.py OUT` generates the files; see README.md.

Each block below is one kind. A case says what the file is, and what a server must do with it.
"""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from kit import *  # noqa: E402,F403
import asks  # noqa: E402

M = Shape(layers=2, d=32, ff=32, heads=4, kv=2, merges=40, ctx=64, seed=1000)
BASE = M.gguf
P = {31: 1 << 31, 32: 1 << 32, 61: 1 << 61, 62: 1 << 62, 63: 1 << 63}
A, TOK = "llama.attention.", "tokenizer.ggml."


def g(id, kind, source, data, outcome, why, **kw):
    """One GGUF case; data may be bytes, a Gguf, or a function that edits a fresh base."""
    if callable(data):
        b = BASE()
        data = data(b) or b
    file_case("gguf/" + id, kind, source, data if isinstance(data, (bytes, dict)) else data.bytes(), outcome, why, **kw)


def refuse(id, kind, source, data, why, **kw):
    g(id, kind, source, data, "refuse", why, **kw)


def load(id, kind, source, data, why, **kw):
    g(id, kind, source, data, "load", why, **kw)


def tensor(b, name, dims=None, typ=None, data=None, offset=None, rename=None):
    t = b.t(name)
    for i, v in enumerate((rename, dims, typ, data, offset)):
        if v is not None:
            t[i] = v


# ---- bases: every other file is one of these with one change --------------------------------
load("base-f32", "base", "K", BASE(T_F32), "plain valid file")
load("base-q8_0", "base", "K", BASE(), "plain valid file, quantised")
load("base-spm", "base", "K", M.gguf_spm(), "plain valid file, SentencePiece vocabulary")

# ---- header integers, one at a time, at 0, 1, max-1, max -------------------------------------
INTS = {"tensor-count": "n_tensors", "kv-count": "n_kv", "key-len": "general.name:keylen",
        "value-type": "general.name:type", "string-len": "general.name:strlen", "array-type": TOK + "tokens:arrtype",
        "array-len": TOK + "tokens:arrlen", "item-len": TOK + "tokens:item0", "name-len": "token_embd.weight:namelen",
        "ndim": "token_embd.weight:ndim", "dim0": "token_embd.weight:dim0", "dim1": "token_embd.weight:dim1",
        "tensor-type": "token_embd.weight:ttype", "offset": "blk.0.attn_norm.weight:offset"}
b = BASE()
b.bytes()
for word, label in INTS.items():
    top = (1 << 8 * b.at[label][1]) - 1
    for n, v in (("0", 0), ("1", 1), ("max-1", top - 1), ("max", top)):
        if (word, n) != ("item-len", "1"):  # 1 is what the file says already
            refuse(f"int-{word}-{n}", "header-int", "CVE-2024-21802", b.patched(label, v), f"{word} is {v}")

# ---- counts and lengths far past the file ----------------------------------------------------
for word in ("tensor-count", "kv-count", "key-len", "string-len", "array-len", "item-len", "name-len"):
    for e in (31, 32, 63):
        refuse(f"count-{word}-2p{e}", "count", "llama.cpp#27188", b.patched(INTS[word], P[e]), f"{word} 2^{e} exceeds the file")

def lone(elem, n, body=b"", kv=1, tensors=0):
    """A few bytes: header and one array-valued key."""
    return struct.pack("<4sIQQQ1sIIQ", b"GGUF", 3, tensors, kv, 1, b"a", ARR, elem, n) + body

refuse("tiny-array-2p63", "count", "llama.cpp#27188", lone(U8, P[63]), "array length 2^63 in a 49-byte file")
refuse("tiny-array-2p62-u64", "count", "llama.cpp#27188", lone(U64, P[62]), "array length times 8 wraps")
refuse("tiny-strings-2p61", "count", "llama.cpp#19003", lone(STR, P[61]), "array length times 8 wraps")
refuse("tiny-array-bad-elem", "count", "llama.cpp#27188", lone(99, 1, b"\0" * 8), "array element type 99")

# ---- nested arrays ---------------------------------------------------------------------------
refuse("nested-2p62", "nested", "llama.cpp#27188", lone(ARR, P[62], struct.pack("<IQ", U8, P[62])), "nested array length 2^62")
refuse("nested-deep", "nested", "llama.cpp#27188", lone(ARR, 1, struct.pack("<IQ", ARR, 1) * 20000 + struct.pack("<IQB", U8, 1, 7)),
       "array nesting 20000", seconds=1)
refuse("nested-2", "nested", "llama.cpp#27188", lambda b: b.set("x.nested", ARR, (ARR, [(U8, [1, 2])])), "nested array",
       alt=["load"])

# ---- metadata of the wrong type --------------------------------------------------------------
KEYS = ["general.architecture", "llama.context_length", "llama.embedding_length", "llama.block_count",
        "llama.feed_forward_length", A + "head_count", A + "head_count_kv", A + "layer_norm_rms_epsilon",
        "llama.rope.dimension_count", "llama.rope.freq_base", TOK + "model", TOK + "tokens", TOK + "token_type", TOK + "merges",
        TOK + "bos_token_id", TOK + "eos_token_id"]
WRONG = {"string": (STR, "4"), "f32": (F32, 4.0)}
for key in KEYS:
    good = next(e for e in BASE().kv if e[0] == key)[1]
    for name, (kind, v) in WRONG.items():
        if kind != good:
            refuse(f"type-{key.split('.', 1)[1].replace('.', '_')}-{name}", "wrong-type", "llama.cpp#25596",
                   lambda b: b.set(key, kind, v), f"{key} has type {name}")
refuse("type-alignment-u64", "wrong-type", "llama.cpp#25596", lambda b: b.set("general.alignment", U64, 32), "general.alignment has type u64", alt=["load"])
load("type-context-u64", "wrong-type", "K", lambda b: b.set("llama.context_length", U64, 64), "u64 is the type the format text gives")
refuse("bool-2", "wrong-type", "K", lambda b: b.set(TOK + "add_bos_token", BOOL, 2), "bool value 2")
load("unknown-keys", "wrong-type", "K", lambda b: [b.set(f"x.k{k}", k, 1) for k in (U8, I8, U16, I16, U32, I32, F32, BOOL, U64, I64, F64)]
     and b.set("x.s", STR, "").set("x.a", ARR, (F64, [])), "unknown keys of every type are skipped")

# ---- arrays whose items are narrower than they are read --------------------------------------
refuse("narrow-token-type-i8", "narrow-array", "llama.cpp#26690", lambda b: b.set(TOK + "token_type", ARR, (I8, [1] * M.V)), "token_type items are i8")
refuse("narrow-tokens-u8", "narrow-array", "llama.cpp#26690", lambda b: b.set(TOK + "tokens", ARR, (U8, [65] * M.V)), "tokens items are u8")
refuse("narrow-merges-bool", "narrow-array", "llama.cpp#26690", lambda b: b.set(TOK + "merges", ARR, (BOOL, [1] * 40)), "merges items are bool")
refuse("narrow-scores-i8", "narrow-array", "llama.cpp#26690", M.gguf_spm().set(TOK + "scores", ARR, (I8, [0] * M.V)), "scores items are i8")
refuse("short-token-type", "narrow-array", "llama.cpp#26690", lambda b: b.set(TOK + "token_type", ARR, (I32, [1] * 10)), "token_type has 10 entries for 300 tokens")
refuse("short-scores", "narrow-array", "llama.cpp#26690", M.gguf_spm().set(TOK + "scores", ARR, (F32, [])), "scores has 0 entries for 300 tokens")

# ---- shapes ----------------------------------------------------------------------------------
NORM, EMB, LAST = "blk.0.attn_norm.weight", "token_embd.weight", "output_norm.weight"
refuse("dim-zero", "zero-dim", "llama.cpp#25596", lambda b: tensor(b, NORM, [0]), "a dimension is 0")
refuse("dim-zero-second", "zero-dim", "ggml#1517", lambda b: tensor(b, EMB, [32, 0]), "a dimension is 0")
refuse("dims-5", "zero-dim", "K", lambda b: tensor(b, EMB, [32, 300, 1, 1, 1]), "5 dimensions")
refuse("dims-0", "zero-dim", "K", lambda b: tensor(b, NORM, []), "0 dimensions for a vector")
refuse("wrap-elements", "wrap", "llama.cpp#18674", lambda b: tensor(b, EMB, [32, (1 << 59) + 300]), "the element count wraps to just the right value")
refuse("wrap-bytes", "wrap", "llama.cpp#18674", lambda b: tensor(b, EMB, [32, (1 << 57) + 300], T_F32, b.t(EMB)[3] + b"\0" * 28200),
       "elements fit, the byte count wraps to just the right value")
refuse("wrap-to-zero", "wrap", "CVE-2025-53630", lambda b: tensor(b, EMB, [65536] * 4, T_F32), "size product wraps to 0")
refuse("wrap-2p63", "wrap", "CVE-2025-53630", lambda b: tensor(b, EMB, [2, P[63]], T_F32), "size product wraps to 0")
refuse("wrap-type-size", "wrap", "CVE-2025-53630", lambda b: tensor(b, EMB, [P[62]], T_F32), "elements fit, bytes wrap")
refuse("wrap-pad", "wrap", "llama.cpp#26318", lambda b: tensor(b, EMB, [P[62] - 1], T_F32), "bytes fit, padding wraps")
refuse("wrap-last-sum", "wrap", "CVE-2025-53630", lambda b: tensor(b, LAST, [(P[62] - 64)], T_F32), "the sum wraps on the last tensor only")
refuse("row-33", "block", "K", lambda b: b.set("llama.feed_forward_length", U32, 33) and tensor(b, "blk.0.ffn_down.weight", [33, 32]), "row of 33 is not a multiple of block 32")
refuse("row-256", "block", "K", lambda b: tensor(b, "blk.0.ffn_up.weight", typ=12, data=b"\0" * 576), "row of 32 is not a multiple of block 256")

# ---- alignment -------------------------------------------------------------------------------
for v in (0, 3, 7, P[31]):
    refuse(f"align-{v}", "alignment", "antirez/gguf-tools#27", lambda b: b.set("general.alignment", U32, v), f"alignment {v}")
refuse("align-negative", "alignment", "candle#3876", lambda b: b.set("general.alignment", I32, -32), "alignment -32")

def aligned(b, n):
    b.align = n
    b.set("general.alignment", U32, n)

load("align-64", "alignment", "K", lambda b: aligned(b, 64), "alignment 64 is legal")

# ---- tensor ranges ---------------------------------------------------------------------------
b = BASE()
full = b.bytes()
refuse("range-one-past", "range", "CVE-2026-7482", full[:-1], "the last tensor ends one byte past the file")
refuse("range-offset-past", "range", "CVE-2026-7482", lambda b: tensor(b, LAST, offset=1 << 20), "tensor range past the end of the file")
refuse("range-offset-wrap", "range", "CVE-2026-27940", lambda b: tensor(b, LAST, offset=(1 << 64) - 32), "offset plus size wraps")
refuse("range-unaligned", "range", "ollama#8456", lambda b: tensor(b, LAST, offset=33), "offset 33 is not a multiple of 32")
refuse("overlap-same", "overlap", "K", lambda b: tensor(b, "blk.1.attn_norm.weight", offset=0), "two tensors share bytes")
refuse("overlap-part", "overlap", "K", lambda b: tensor(b, "blk.0.ffn_up.weight", offset=32), "two tensors share bytes")
load("tail-pad", "range", "ollama#8456", full + b"\0" * 31, "padding after the last tensor is common")

# ---- duplicates, unknown and missing names ---------------------------------------------------
refuse("dup-tensor", "duplicate", "K", lambda b: tensor(b, "blk.1.ffn_up.weight", rename="blk.0.ffn_up.weight"), "duplicate tensor name")
refuse("dup-key", "duplicate", "K", lambda b: b.kv.append(["llama.block_count", U32, 1]), "duplicate key llama.block_count")
refuse("dup-key-same", "duplicate", "K", lambda b: b.kv.append(["general.name", STR, "tiny"]), "duplicate key general.name")
refuse("missing-tensor", "names", "K", lambda b: b.tensors.pop(4) and None, "blk.0.attn_v.weight (or what follows it) is missing")
refuse("extra-tensor", "names", "K", lambda b: b.tensors.append(["blk.0.attn_q.bias", [32], T_F32, b"\0" * 128, None]), "tensor the model does not use", alt=["load"])
refuse("shape-transposed", "names", "K", lambda b: tensor(b, "blk.0.attn_k.weight", [16, 32], T_F32, b"\0" * 2048), "shape [16,32], expected [32,16]")
refuse("key-empty", "names", "llama.cpp#25596", lambda b: b.set("", U32, 1), "empty key")
refuse("key-bad-utf8", "names", "K", lambda b: b.set(b"x.\xff\xfe", U32, 1), "key is not UTF-8")
refuse("key-65536", "names", "K", lambda b: b.set("x" * 65536, U32, 1), "key longer than 65535 bytes")
load("key-65535", "names", "K", lambda b: b.set("x" * 65535, U32, 1), "longest legal key")
refuse("name-65", "names", "K", lambda b: tensor(b, LAST, rename="t" * 65), "tensor name longer than 64 bytes")

# ---- tensor types, version, magic ------------------------------------------------------------
for v in (4, 31, 36, 1000):
    refuse(f"ttype-{v}", "tensor-type", "K", lambda b: tensor(b, EMB, typ=v), f"tensor type {v} is unknown or removed")
refuse("ttype-i32", "tensor-type", "K", lambda b: tensor(b, EMB, typ=26, data=b"\0" * 38400), "integer weights are not supported")
for v in (0, 1, 4, P[31], (1 << 32) - 1, 0x03000000):
    refuse(f"version-{v}", "version", "K", b.patched("version", v), f"version {v}" + (", as in a big-endian file" if v == 0x03000000 else ""))
refuse("version-2", "version", "K", b.patched("version", 2), "version 2", alt=["load"])
refuse("magic-reversed", "magic", "K", b"FUGG" + full[4:], "bad magic")
refuse("magic-lower", "magic", "K", b"gguf" + full[4:], "bad magic")
refuse("magic-old", "magic", "K", b"tjgg" + full[4:], "bad magic")
refuse("magic-st", "magic", "K", M.hf().st.bytes(), "not a GGUF file")

# ---- truncation: named cuts, and one line for the full sweep ---------------------------------
b.bytes()
for name, k in [("magic", 3), ("version", 6), ("counts", 23), ("no-keys", 24), ("key", 30), ("tokens", b.at[TOK + "tokens:item0"][0] + 1000),
                ("infos", b.at["blk.1.attn_q.weight:dim1"][0] + 3), ("before-pad", b.at["header_end"][0]),
                ("no-data", b.at["data"][0]), ("mid-data", (b.at["data"][0] + len(full)) // 2)]:
    refuse("cut-" + name, "truncated", "CVE-2024-41130", full[:k], f"file ends at byte {k}")
file_case("gguf/cut-sweep", "truncated", "CVE-2024-41130", None, "refuse", "the file is truncated",
          input={"action": "truncate-each", "of": "gguf/base-q8_0", "from": 0, "to": len(full) - 1}, rss=64, seconds=600)

# ---- hyper-parameters ------------------------------------------------------------------------
def hyper(id, source, why, outcome="refuse", alt=None, **kv):
    def edit(b):
        for k, v in kv.items():
            key = {"heads": A + "head_count", "kv": A + "head_count_kv", "eps": A + "layer_norm_rms_epsilon", "rope": "llama.rope.dimension_count",
                   "base": "llama.rope.freq_base", "blocks": "llama.block_count", "ff": "llama.feed_forward_length",
                   "d": "llama.embedding_length", "ctx": "llama.context_length", "vocab": "llama.vocab_size", "arch": "general.architecture",
                   "scaling": "llama.rope.scaling.type"}[k]
            if v is None:
                b.drop(key)
            else:
                b.set(key, STR if isinstance(v, str) else F32 if isinstance(v, float) else U32, v)
    g(f"hyper-{id}", "hyper", source, edit, outcome, why, alt=alt)

hyper("heads-0", "1bit-MONSTER#455", "head_count 0", heads=0)
hyper("heads-3", "K", "embedding 32 is not a multiple of 3 heads", heads=3, kv=3)
hyper("heads-kv-3", "K", "4 heads are not a multiple of 3 kv heads", kv=3)
hyper("kv-0", "1bit-MONSTER#455", "head_count_kv 0", kv=0)
hyper("kv-more", "K", "more kv heads than heads", kv=8)
hyper("heads-2p32-1", "K", "head_count 4294967295", heads=(1 << 32) - 1)
hyper("rope-16", "K", "rope dimension 16 exceeds head dimension 8", rope=16)
hyper("rope-7", "K", "rope dimension is odd", rope=7)
hyper("blocks-0", "llama.cpp#25821", "block_count 0", blocks=0)
hyper("blocks-513", "llama.cpp#25821", "block_count 513, tensors for 2", blocks=513)
hyper("blocks-1e6", "llama.cpp#25821", "block_count 1000000", blocks=10**6)
hyper("blocks-2p32-1", "llama.cpp#25821", "block_count 4294967295", blocks=(1 << 32) - 1)
hyper("ff-0", "K", "feed_forward_length 0", ff=0)
hyper("d-0", "K", "embedding_length 0", d=0)
hyper("d-2p31", "K", "embedding_length does not match the tensors", d=P[31])
hyper("ctx-0", "K", "context_length 0", ctx=0)
hyper("ctx-2p32-1", "K", "a huge context is only a promise: nothing may be reserved for it", "load", ["refuse"], ctx=(1 << 32) - 1)
hyper("eps-nan", "K", "rms epsilon is not finite", eps=float("nan"))
hyper("eps-negative", "K", "rms epsilon is negative", eps=-1.0)
hyper("base-0", "K", "rope base is 0", base=0.0)
hyper("base-inf", "K", "rope base is not finite", base=float("inf"))
hyper("vocab-299", "mlx-vlm#1917", "vocab_size 299 but 300 tokens", vocab=299)
hyper("arch-unknown", "K", "architecture nosuch", arch="nosuch")
hyper("arch-missing", "K", "general.architecture is missing", arch=None)
hyper("heads-missing", "K", "head_count is missing", heads=None)
hyper("blocks-missing", "K", "block_count is missing", blocks=None)
hyper("eps-missing", "K", "rms epsilon is missing", eps=None)
hyper("scaling-unknown", "mlxcel#1355", "rope scaling type weird", scaling="weird")
hyper("rope-missing", "K", "rope dimension defaults to the head dimension", "load", rope=None)

# ---- special ids and vocabulary --------------------------------------------------------------
for name, v in (("bos-V", 300), ("eos-2p32-1", (1 << 32) - 1), ("padding-V", 300)):
    word = name.split("-")[0]
    refuse(f"special-{name}", "special-id", "llama.cpp#3634", lambda b: b.set(f"{TOK}{word}_token_id", U32, v), f"{word} id {v} of 300",
           alt=["load"] if v > P[31] else None)
load("special-absent", "special-id", "llama.cpp#25508", lambda b: b.drop(TOK + "bos_token_id", TOK + "eos_token_id"), "no special ids: nothing may be assumed")

def tiny_vocab(b, n, spm=False):
    b.set(TOK + "tokens", ARR, (STR, M.tokens[65:65 + n])).set(TOK + "token_type", ARR, (I32, [1] * n)).set("llama.vocab_size", U32, n)
    b.set(TOK + "merges", ARR, (STR, [])).drop(TOK + "bos_token_id", TOK + "eos_token_id")
    tensor(b, EMB, [32, n], data=b.t(EMB)[3][:34 * n])

load("vocab-1", "special-id", "llama.cpp#25508", lambda b: tiny_vocab(b, 1), "a vocabulary of one token and no special ids", alt=["refuse"])
load("vocab-12", "special-id", "llama.cpp#25508", lambda b: tiny_vocab(b, 12), "default end ids (11, 13...) must not be assumed", alt=["refuse"])

def piece(i, text, kind=None, spm=True):
    b = M.gguf_spm() if spm else BASE()
    b.get(TOK + "tokens")[1][i] = text
    if kind:
        b.get(TOK + "token_type")[1][i] = kind
    return b

for n, text in (("minus-1", "<0x-1>"), ("ZZ", "<0xZZ>"), ("100", "<0x100>")):
    refuse(f"byte-{n}", "byte-token", "llama.cpp#25969", piece(3 + 65, text), f"byte token text {text}")
load("byte-as-text", "byte-token", "llama.cpp#26511", piece(270, "<0x-1>", 1), "the same text in an ordinary token is only text")
load("nul-literal", "byte-token", "llama.cpp#5112", piece(270, "\0", 1), "a literal NUL beside <0x00>")
load("text-empty", "token-text", "CVE-2025-49847", piece(298, "", 1, spm=False), "token text of length 0: it decodes to nothing")
load("text-65536", "token-text", "CVE-2025-49847", piece(299, "x" * 65536, 1, spm=False), "token text of 65536 bytes")
load("text-duplicates", "token-text", "llama.cpp#25739", lambda b: [b.get(TOK + "tokens")[1].__setitem__(i, M.tokens[260]) for i in (270, 271, 272)] and
     b.get(TOK + "merges")[1].__delitem__(slice(14, 17)), "3 duplicate texts: the first id encodes, each id decodes")
load("tokens-299", "token-text", "mlx-vlm#1917", lambda b: b.get(TOK + "tokens")[1].pop() and b.get(TOK + "token_type")[1].pop() and b.drop("llama.vocab_size"), "299 tokens, 300 embedding rows: the last row is never sampled", alt=["refuse"])
refuse("tokens-301", "token-text", "mlx-vlm#1917", lambda b: b.get(TOK + "tokens")[1].append("zz") or b.get(TOK + "token_type")[1].append(1) or b.set("llama.vocab_size", U32, 301),
       "301 tokens, 300 embedding rows")
refuse("tokens-none", "token-text", "K", lambda b: b.drop(TOK + "tokens"), "no vocabulary")
refuse("merge-unknown", "token-text", "K", lambda b: b.get(TOK + "merges")[1].append("qq zz"), "merge of tokens that do not exist", alt=["load"])
refuse("merge-no-space", "token-text", "K", lambda b: b.get(TOK + "merges")[1].append("abcd"), "merge without a space")
refuse("tokenizer-unknown", "token-text", "K", lambda b: b.set(TOK + "model", STR, "nosuch"), "tokenizer model nosuch")

# ---- split files -----------------------------------------------------------------------------
def split(n=3):
    b, per = BASE(), 7
    parts = {}
    for i in range(n):
        s = BASE() if i == 0 else Gguf()
        s.tensors = b.tensors[i * per:] if i + 1 == n else b.tensors[i * per:(i + 1) * per]
        s.set("split.no", U16, i).set("split.count", U16, n).set("split.tensors.count", I32, len(b.tensors))
        parts[f"m-{i + 1:05d}-of-{n:05d}.gguf"] = s.bytes()
    return parts

FIRST = "m-00001-of-00003.gguf"
load("split-ok", "split", "K", split(), "all three parts present", open=FIRST)
refuse("split-missing-2", "split", "K", {k: v for k, v in split().items() if "00002-" not in k}, "part 2 of 3 is missing", open=FIRST)
refuse("split-short-3", "split", "K", {k: v[:-5] if "00003-" in k else v for k, v in split().items()}, "part 3 is truncated", open=FIRST)

# ---- non-finite weights: named at load, or that request alone fails --------------------------
def poison(b, name, value):
    x = np.frombuffer(b.t(name)[3], "<f4").copy()
    x[5] = value
    tensor(b, name, data=x.tobytes())

for n, v in (("nan", np.nan), ("inf", np.inf)):
    load(f"weight-{n}", "non-finite", "JustVugg/colibri#369", lambda b: poison(b, LAST, v), f"output_norm.weight holds {n}", alt=["refuse"],
         then={"generate": "error-status", "status": "INTERNAL"})
load("scale-nan", "non-finite", "JustVugg/colibri#369", lambda b: tensor(b, "blk.0.ffn_up.weight", data=b"\x00\x7e" + b.t("blk.0.ffn_up.weight")[3][2:]),
     "a Q8_0 scale is NaN", alt=["refuse"], then={"generate": "error-status", "status": "INTERNAL"})

# ---- chat templates: the model loads, the rendering fails inside its budget ------------------
for n, t in (("loop", "{% for i in range(25000) %}{% for j in range(25000) %}x{% endfor %}{% endfor %}"), ("range", "{{ range(1000000000)|length }}"),
             ("host", "{{ ''.__class__.__mro__[1].__subclasses__() }}"), ("deep", "{{ " + "(" * 20000 + "1" + ")" * 20000 + " }}")):
    load(f"template-{n}", "template", {"host": "CVE-2024-34359"}.get(n, "llama.cpp#24140"), lambda b: b.set("tokenizer.chat_template", STR, t),
         "chat is refused, plain generation works", alt=["refuse"] if n == "deep" else None, then={"chat": "error-status", "status": ["FAILED_PRECONDITION", "INVALID_ARGUMENT"]})


# ==== safetensors =============================================================================
def h(id, kind, source, edit, outcome, why, **kw):
    """One Hugging Face folder case; edit changes a fresh folder, or returns a replacement model.safetensors."""
    f = M.hf()
    r = edit(f)
    if isinstance(r, bytes):
        f.files["model.safetensors"] = r
    file_case("hf/" + id, kind, source, f.all(), outcome, why, **kw)


def no(id, kind, source, edit, why, **kw):
    h(id, kind, source, edit, "refuse", why, **kw)


def ok(id, kind, source, edit, why, **kw):
    h(id, kind, source, edit, "load", why, **kw)


FN, E0, INV = "model.norm.weight", "model.embed_tokens.weight", "model.layers.0.self_attn.rotary_emb.inv_freq"
ok("base", "base", "K", lambda f: None, "plain valid folder")
ok("base-sharded", "base", "K", lambda f: f.sharded() and None, "plain valid folder in two shards")

size = len(M.hf().st.bytes())
for n, v in (("0", 0), ("1", 1), ("7", 7), ("file", size), ("rest-plus-1", size - 7), ("2p63", P[63]), ("max", (1 << 64) - 1), ("wraps", (1 << 64) - 8)):
    no(f"st-n-{n}", "st-length", "safetensors format", lambda f: f.st.bytes(n=v), f"header length {v}")
no("st-empty", "st-length", "CVE-2024-39720", lambda f: b"", "0-byte file")
no("st-7", "st-length", "CVE-2024-39720", lambda f: b"\x02\0\0\0\0\0\0", "file shorter than its length field")
no("st-array", "st-json", "safetensors format", lambda f: f.st.bytes("[]"), "header does not start with {")
no("st-space-first", "st-json", "safetensors format", lambda f: f.st.bytes(" " + js(f.st.head)), "header does not start with {")
ok("st-space-last", "st-json", "safetensors format", lambda f: f.st.bytes(js(f.st.head) + " " * 4096), "padding with spaces is legal")
no("st-nul-last", "st-json", "K", lambda f: f.st.bytes(js(f.st.head) + "\0" * 7), "bytes after the JSON value")
no("st-depth", "st-json", "llama.cpp#27434", lambda f: f.st.bytes(js(f.st.head)[:-1] + ',"x":' + "[" * 100000 + "]" * 100000 + "}"), "JSON nesting 100000")
no("st-depth-open", "st-json", "llama.cpp#27434", lambda f: f.st.bytes('{"a":' * 100000), "JSON nesting 100000, never closed")
no("st-bad-utf8", "st-json", "K", lambda f: f.st.bytes(js(f.st.head).encode().replace(b"model.norm", b"model.n\xff\xfe")), "name is not UTF-8")
no("st-dup-name", "st-duplicate", "safetensors#401", lambda f: f.st.bytes(js(f.st.head)[:-1] + ',' + js({FN: f.st.head[FN]})[1:]), "duplicate key model.norm.weight")
no("st-dup-field", "st-duplicate", "safetensors#401", lambda f: f.st.bytes(js(f.st.head).replace('"dtype":"BF16"', '"dtype":"BF16","dtype":"F16"', 1)), "duplicate key dtype")
no("st-dup-meta", "st-duplicate", "safetensors#401", lambda f: f.st.bytes('{"__metadata__":{},"__metadata__":{"a":"b"},' + js(f.st.head)[1:]), "duplicate key __metadata__")


def entry(f, name, **kw):
    f.st.head[name].update(kw)


def off(f, name, a, b):
    o = f.st.head[name]["data_offsets"]
    entry(f, name, data_offsets=[o[0] + a, o[1] + b])


no("st-shape-big", "st-range", "ml-explore/mlx#3363", lambda f: entry(f, FN, shape=[1024, 1024]), "shape needs 2 MiB, offsets give 64 bytes")
no("st-shape-small", "st-range", "ml-explore/mlx#3363", lambda f: entry(f, FN, shape=[31]), "shape needs 62 bytes, offsets give 64")
no("st-shape-wrap", "st-range", "CVE-2025-53630", lambda f: entry(f, FN, shape=[P[32], P[32], 32]), "shape product wraps")
no("st-overlap", "st-range", "ohdearquant/lattice#752", lambda f: off(f, FN, -64, -64), "two tensors share bytes")
no("st-gap", "st-range", "antirez/h3.c#48", lambda f: (off(f, FN, 8, 8), setattr(f.st, "data", f.st.data + b"\0" * 8)) and None, "8 bytes belong to no tensor")
no("st-trailing", "st-range", "Comfy-Org/ComfyUI#15602", lambda f: f.st.bytes() + b"\0", "1 byte after the last tensor")
no("st-short-1", "st-range", "osaurus-ai/vmlx-swift#217", lambda f: f.st.bytes()[:-1], "file is 1 byte short")
no("st-short-4096", "st-range", "osaurus-ai/vmlx-swift#217", lambda f: f.st.bytes()[:-4096], "file is 4096 bytes short")
no("st-end-first", "st-range", "run-ai/model-streamer#121", lambda f: entry(f, FN, data_offsets=f.st.head[FN]["data_offsets"][::-1]), "begin is after end")
no("st-offset-2p63", "st-range", "K", lambda f: entry(f, FN, data_offsets=[P[63], P[63] + 64]), "offsets past the file")
no("st-offsets-3", "st-range", "K", lambda f: entry(f, FN, data_offsets=[0, 1, 2]), "data_offsets has 3 entries")
for n, v in (("float", "1.5"), ("exp", "3.2e1"), ("negative", "-32"), ("2p64", "18446744073709551616"), ("string", '"32"'), ("null", "null")):
    no(f"st-size-{n}", "st-number", "K", lambda f: f.st.bytes(js(f.st.head).replace('"shape":[32]', f'"shape":[{v}]', 1)), f"shape entry {v}")
no("st-no-dtype", "st-number", "K", lambda f: f.st.head[FN].pop("dtype") and None, "dtype is missing")
no("st-entry-list", "st-number", "K", lambda f: f.st.head.update({FN: []}), "tensor entry is not an object")
no("st-meta-number", "st-metadata", "safetensors format", lambda f: f.st.head.update({"__metadata__": {"a": 1}}), "__metadata__ value is not a string")
no("st-meta-nested", "st-metadata", "safetensors format", lambda f: f.st.head.update({"__metadata__": {"a": {"b": "c"}}}), "__metadata__ value is not a string")
ok("st-meta-ok", "st-metadata", "safetensors format", lambda f: f.st.head.update({"__metadata__": {"format": "pt"}}), "string metadata is legal, wherever it stands")
ok("st-odd-address", "st-odd", "safetensors#231", lambda f: f.st.bytes(js(f.st.head) + " " * (1 - len(js(f.st.head)) % 2), pad=0), "data at odd addresses is legal")
ok("st-odd-f32", "st-odd", "safetensors#607", lambda f: f.st.rebuilt(lambda n, d, s, x: (n, "F32", s, b"".join(b"\0\0" + x[i:i + 2] for i in range(0, len(x), 2)))).bytes(
    js(f.st.head) + " " * ((3 - len(js(f.st.head))) % 4), pad=0), "F32 data at addresses 3 mod 4 is legal")
ok("st-empty-tensor", "st-empty", "promptfoo/modelaudit#1607", lambda f: f.st.add(INV, "F32", [0, 4], b"") and None, "an empty tensor is legal (a name that loaders skip)")
ok("st-rank-0", "st-empty", "safetensors format", lambda f: f.st.add(INV, "F32", [], b"\0\0\x80?") and None, "a rank-0 tensor is legal (a name that loaders skip)")
no("st-not-empty", "st-empty", "promptfoo/modelaudit#1607", lambda f: f.st.add(INV, "F32", [1], b"") and None, "shape [1] with no bytes")
no("st-dtype-unknown", "st-dtype", "K", lambda f: entry(f, FN, dtype="F13"), "dtype F13")
no("st-dtype-lower", "st-dtype", "K", lambda f: entry(f, FN, dtype="bf16"), "dtype bf16")
no("st-dtype-i16", "st-dtype", "K", lambda f: entry(f, FN, dtype="I16"), "integer weights are not supported")
no("st-dtype-f8", "st-dtype", "K", lambda f: f.st.rebuilt(lambda n, d, s, x: (n, "F8_E4M3", s, x[::2]) if n == FN else (n, d, s, x)) and None, "dtype F8_E4M3 without scales")


def wide(x):
    """BF16 bytes as F32 bytes."""
    return b"".join(b"\0\0" + x[i:i + 2] for i in range(0, len(x), 2))


ok("norm-f32", "st-dtype", "K", lambda f: f.st.rebuilt(lambda n, d, s, x: (n, "F32", s, wide(x)) if n == FN else (n, d, s, x)) and None, "one norm in F32: convert, never reinterpret")
ok("proj-f16", "st-dtype", "K", lambda f: f.st.rebuilt(lambda n, d, s, x: (n, "F16", s, np.frombuffer(wide(x), "<f4").astype("<f2").tobytes()) if "0.mlp.up" in n else (n, d, s, x)) and None,
   "one projection in F16: convert, never reinterpret")
no("missing-norm", "st-names", "K", lambda f: f.st.rebuilt(lambda n, *r: None if n == FN else (n, *r)) and None, "model.norm.weight is missing")
no("extra-bias", "st-names", "K", lambda f: f.st.add("model.layers.0.self_attn.q_proj.bias", "BF16", [32], b"\0" * 64) and None, "tensor the model does not use", alt=["load"])
ok("extra-inv-freq", "st-names", "K", lambda f: f.st.add(INV, "F32", [4], b"\0" * 16) and None, "old files carry this name; it is skipped")
no("shape-transposed", "st-names", "K", lambda f: entry(f, "model.layers.0.self_attn.k_proj.weight", shape=[32, 16]), "shape [32,16], expected [16,32]")
no("shape-rank", "st-names", "K", lambda f: entry(f, FN, shape=[32, 1]), "norm has rank 2")
ok("nan-weight", "non-finite", "JustVugg/colibri#369", lambda f: setattr(f.st, "data", f.st.data[:-2] + b"\xc0\x7f"), "model.norm.weight ends in NaN", alt=["refuse"],
   then={"generate": "error-status", "status": "INTERNAL"})

# ---- shards ----------------------------------------------------------------------------------
S1, S2 = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"


def shards(edit):
    def run(f):
        f.sharded()
        edit(f)
        f.reindex()
    return run


def wm(f, name, to):
    f.index["weight_map"][name] = to


no("shard-missing", "shards", "sglang#32279", shards(lambda f: f.files.pop(S2)), f"{S2} is missing")
no("shard-short", "shards", "osaurus-ai/vmlx-swift#217", shards(lambda f: f.files.update({S2: f.files[S2][:-100]})), f"{S2} is 100 bytes short")
ok("shard-stray", "shards", "mlx-vlm#1464", shards(lambda f: f.files.update({"model-00003-of-00002.safetensors": St([(FN, "BF16", [32], b"\0" * 64)]).bytes()})),
   "a shard the index does not name is not read")
no("shard-wrong", "shards", "sglang#32279", shards(lambda f: wm(f, FN, S1)), f"{FN} is not in {S1}")
no("shard-up", "shards", "CVE-2024-37032", shards(lambda f: wm(f, FN, "../base/model.safetensors")), "a shard name leaves the folder")
no("shard-absolute", "shards", "CVE-2024-37032", shards(lambda f: wm(f, FN, "/dev/zero")), "a shard name leaves the folder")
no("shard-map-list", "shards", "K", shards(lambda f: f.index.update(weight_map=[])), "weight_map is not an object")
no("shard-unmapped", "shards", "K", shards(lambda f: f.index["weight_map"].pop(FN)), f"{FN} is not in the index")

# ---- config.json -----------------------------------------------------------------------------
def cfg(id, why, outcome="refuse", source="K", alt=None, drop=(), **kw):
    def edit(f):
        f.config.update(kw)
        for d in drop:
            del f.config[d]
    h("config-" + id, "config", source, edit, outcome, why, alt=alt)


def raw(id, text, why, source="K", outcome="refuse", name="config.json", **kw):
    def edit(f):
        whole = f.all()[name].decode()
        t = text(whole) if callable(text) else text
        f.files[name] = t if isinstance(t, bytes) else t.encode()
    h(id, "config" if name.startswith("config") else "tokenizer", source, edit, outcome, why, **kw)


cfg("heads-0", "num_attention_heads is 0", source="1bit-MONSTER#455", num_attention_heads=0)
cfg("heads-3", "hidden_size 32 is not a multiple of 3 heads", drop=["head_dim"], num_attention_heads=3, num_key_value_heads=3)
cfg("kv-3", "4 heads are not a multiple of 3 kv heads", num_key_value_heads=3)
cfg("head-dim-7", "head_dim 7", head_dim=7)
cfg("layers-0", "num_hidden_layers is 0", num_hidden_layers=0)
cfg("layers-1e6", "num_hidden_layers 1000000", source="llama.cpp#25821", num_hidden_layers=10**6)
cfg("layers-3", "tensors of layer 2 are missing", num_hidden_layers=3)
cfg("layers-1", "tensors of layer 1 are not used", alt=["load"], num_hidden_layers=1)
cfg("vocab-small", "vocab_size 299, 300 embedding rows", source="mlx-vlm#1917", vocab_size=299)
cfg("vocab-large", "vocab_size 301, 300 embedding rows", source="mlx-vlm#1917", vocab_size=301)
cfg("rope-unknown", "rope type weird", source="mlxcel#1355", rope_scaling={"rope_type": "weird", "factor": 2.0})
cfg("rope-factor-0", "rope factor 0", rope_scaling={"rope_type": "linear", "factor": 0.0})
cfg("rope-no-factor", "rope factor is missing", rope_scaling={"rope_type": "linear"})
cfg("theta-0", "rope_theta 0", rope_theta=0.0)
cfg("eps-string", "rms_norm_eps is a string", rms_norm_eps="1e-5")
cfg("hidden-string", "hidden_size is a string", hidden_size="32")
cfg("hidden-negative", "hidden_size -32", hidden_size=-32)
cfg("hidden-2p62", "hidden_size times another size wraps", hidden_size=P[62])
cfg("act-unknown", "hidden_act nosuch", hidden_act="nosuch")
cfg("model-unknown", "model_type nosuch", model_type="nosuch", architectures=["NosuchForCausalLM"])
cfg("quant", "quantization_config is not supported", quantization_config={"quant_method": "nosuch"})
cfg("bias-missing", "attention_bias is true, no bias tensors", attention_bias=True)
cfg("eos-V", "eos_token_id 300 of 300", source="llama.cpp#3634", eos_token_id=300)
for d in ("hidden_size", "num_attention_heads", "num_hidden_layers", "model_type", "vocab_size"):
    cfg("no-" + d.replace("_", "-"), f"{d} is missing", drop=[d])
cfg("no-eos", "no end id: generation ends at the length limit", "load", drop=["eos_token_id", "bos_token_id"])
cfg("extra", "unknown harmless fields are ignored", "load", _name_or_path="x", use_cache=True, transformers_version="9")
raw("config-5mb", lambda t: t[:-1] + ',"x":' + "[" * 2500000 + "]" * 2500000 + "}", "JSON nesting 2500000", "llama.cpp#27434")
raw("config-empty", "", "config.json is empty")
raw("config-cut", lambda t: t[:100], "config.json ends early")
raw("config-list", "[]", "config.json is not an object")
raw("config-dup", lambda t: t[:-1] + ',"hidden_size":64}', "duplicate key hidden_size")
raw("config-nan", lambda t: t.replace("1e-05", "NaN"), "NaN is not JSON")
h("config-none", "config", "K", lambda f: f.files.update({"config.json": None}), "refuse", "config.json is missing")

# ---- tied and untied heads -------------------------------------------------------------------
def head(tie, present, same=True):
    def edit(f):
        f.config["tie_word_embeddings"] = tie
        if present:
            x = f.st.data[slice(*f.st.head[E0]["data_offsets"])]
            f.st.add("lm_head.weight", "BF16", [M.V, M.d], x if same else bf16(M.value(99, (M.V, M.d))))
    return edit

TIE = "vllm#6758"
ok("tie-true-absent", "tied", TIE, head(True, False), "tied, no lm_head: the embedding serves")
ok("tie-true-equal", "tied", TIE, head(True, True), "tied, lm_head equal to the embedding")
ok("tie-true-differs", "tied", TIE, head(True, True, False), "tied by config but lm_head differs: refuse, or warn and use the embedding", alt=["refuse"])
ok("tie-false-present", "tied", TIE, head(False, True, False), "untied, lm_head present")
no("tie-false-absent", "tied", TIE, head(False, False), "untied, lm_head.weight is missing")

# ---- tokenizer.json --------------------------------------------------------------------------
def tok(id, why, edit, outcome="refuse", source="K", **kw):
    h("tok-" + id, "tokenizer", source, lambda f: edit(f.tokenizer) and None, outcome, why, **kw)


def bpe(**kw):
    return lambda t: t["model"].update(kw)


tok("merge-unknown", "merge of tokens that do not exist", lambda t: t["model"]["merges"].append("qq zz"))
tok("merge-no-space", "merge without a space", lambda t: t["model"]["merges"].append("abcd"))
tok("merge-number", "merge is not text", lambda t: t["model"]["merges"].append(7))
tok("id-V", "token id 300, 300 embedding rows", lambda t: t["model"]["vocab"].update(zz=300), source="mlx-vlm#1917")
tok("id-2p40", "token id 1099511627776", lambda t: t["model"]["vocab"].update(zz=1 << 40), source="mlx-vlm#1917", rss=64)
tok("id-negative", "token id -1", lambda t: t["model"]["vocab"].update(zz=-1))
tok("id-twice", "two texts share id 65", lambda t: t["model"]["vocab"].update(zz=65))
tok("added-V", "added token id 300, 300 embedding rows", lambda t: t["added_tokens"].append({**t["added_tokens"][0], "id": 300, "content": "<|x|>"}), source="mlx-vlm#1917")
tok("no-model", "model is missing", lambda t: t.pop("model"))
tok("type-unknown", "tokenizer model Nosuch", bpe(type="Nosuch"))
tok("pre-unknown", "pre_tokenizer Nosuch", lambda t: t.update(pre_tokenizer={"type": "Nosuch"}))
tok("regex-backtrack", "the split pattern is not one we know", lambda t: t.update(pre_tokenizer={"type": "Split", "pattern": {"Regex": "(a+)+$"}, "behavior": "Isolated", "invert": False}),
    source="CVE-2024-12720")
tok("vocab-empty", "the vocabulary is empty", lambda t: (t["model"]["vocab"].clear(), t["model"]["merges"].clear(), t["added_tokens"].clear()))
tok("fewer", "296 tokens, 300 rows: the rest are never sampled", lambda t: t["added_tokens"].clear(), "load", "mlx-vlm#1917", alt=["refuse"])
tok("merge-pairs", "merges as pairs are the newer spelling", lambda t: t["model"].update(merges=[m.split(" ") for m in t["model"]["merges"]]), "load")
raw("tok-depth", '{"x":' + "[" * 100000 + "]" * 100000 + "}", "JSON nesting 100000", "llama.cpp#27434", name="tokenizer.json")
raw("tok-cut", lambda t: t[:1000], "tokenizer.json ends early", name="tokenizer.json")
h("tok-none", "tokenizer", "K", lambda f: f.files.update({"tokenizer.json": None}), "refuse", "tokenizer.json is missing")

# ---- paths: the test makes these (OUT is the output folder, ROOT the model root) -------------
file_case("path/zero.gguf", "path", "CVE-2024-39720", b"", "refuse", "0-byte file")
file_case("path/four.gguf", "path", "CVE-2024-39720", b"GGUF", "refuse", "4-byte file")
for n, act, why, kw in [
        ("directory", {"action": "mkdir", "path": "ROOT/dir.gguf"}, "a folder without config.json", {}),
        ("fifo", {"action": "mkfifo", "path": "ROOT/fifo.gguf"}, "not a regular file", {}),
        ("symlink-out", {"action": "symlink", "path": "ROOT/out.gguf", "to": "OUT/gguf/base-q8_0.gguf"}, "link leaves the model root", {}),
        ("symlink-in", {"action": "symlink", "path": "ROOT/in.gguf", "to": "base-q8_0.gguf"}, "link inside the model root", {"outcome": "load", "alt": ["refuse"]}),
        ("symlink-loop", {"action": "symlink", "path": "ROOT/loop.gguf", "to": "loop.gguf"}, "link loop", {}),
        ("device-zero", {"action": "open", "path": "/dev/zero"}, "not a regular file", {}),
        ("missing", {"action": "open", "path": "ROOT/nosuch.gguf"}, "no such file", {}),
        ("dot-dot", {"action": "open", "path": "ROOT/../gguf/base-q8_0.gguf"}, "path leaves the model root", {})]:
    file_case("path/" + n, "path", "CVE-2024-39721", None, kw.pop("outcome", "refuse"), why, input=act, **kw)

asks.add(M)

if __name__ == "__main__":
    main()
