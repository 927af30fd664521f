"""Builders for tiny model files, and the case tables that make.py fills.

Needs only numpy and the standard library. Everything is deterministic: weights come from a frozen
random stream (RandomState) and no clock, locale or dictionary order is used.
"""
import argparse
import json
import struct
from pathlib import Path

import numpy as np

# ---- GGUF ------------------------------------------------------------------------------------
U8, I8, U16, I16, U32, I32, F32, BOOL, STR, ARR, U64, I64, F64 = range(13)
PACK = dict(zip((U8, I8, U16, I16, U32, I32, F32, BOOL, U64, I64, F64), "B b H h I i f B Q q d".split()))
T_F32, T_F16, T_Q8_0 = 0, 1, 8


def enc(kind, v):
    """One metadata value as bytes. `bytes` for a non-string kind means: already encoded."""
    if kind == STR:
        v = v.encode() if isinstance(v, str) else v
        return struct.pack("<Q", len(v)) + v
    if isinstance(v, bytes):
        return v
    if kind == ARR:
        elem, items = v
        return struct.pack("<IQ", elem, len(items)) + b"".join(enc(elem, x) for x in items)
    return struct.pack("<" + PACK[kind], v)


class Gguf:
    """A GGUF file as editable parts. bytes() lays it out and fills `at`: label -> (offset, width)."""

    def __init__(self):
        self.magic, self.version, self.align = b"GGUF", 3, 32
        self.n_kv = self.n_tensors = None  # None: count them
        self.kv = []       # [key, kind, value]
        self.tensors = []  # [name, dims, type, data, offset or None]
        self.tail = b""
        self.at = {}

    def set(self, key, kind, value):
        for e in self.kv:
            if e[0] == key:
                e[1:] = [kind, value]
                return self
        self.kv.append([key, kind, value])
        return self

    def get(self, key):
        return next(e for e in self.kv if e[0] == key)[2]

    def drop(self, *keys):
        self.kv = [e for e in self.kv if e[0] not in keys]
        return self

    def t(self, name):
        return next(t for t in self.tensors if t[0] == name)

    def bytes(self):
        out, at = bytearray(), self.at
        def put(label, fmt, v):
            at[label] = (len(out), struct.calcsize(fmt))
            out.extend(struct.pack("<" + fmt, v))
        raw = lambda s: s.encode() if isinstance(s, str) else s
        out += self.magic
        put("version", "I", self.version)
        put("n_tensors", "Q", len(self.tensors) if self.n_tensors is None else self.n_tensors)
        put("n_kv", "Q", len(self.kv) if self.n_kv is None else self.n_kv)
        for key, kind, value in self.kv:
            put(f"{key}:keylen", "Q", len(raw(key)))
            out += raw(key)
            put(f"{key}:type", "I", kind)
            p = len(out)
            if kind == STR:
                at[f"{key}:strlen"] = (p, 8)
            if kind == ARR:
                at[f"{key}:arrtype"], at[f"{key}:arrlen"], at[f"{key}:item0"] = (p, 4), (p + 4, 8), (p + 12, 8)
            out += enc(kind, value)
        pos = 0
        for name, dims, typ, data, offset in self.tensors:
            put(f"{name}:namelen", "Q", len(raw(name)))
            out += raw(name)
            put(f"{name}:ndim", "I", len(dims))
            for i, d in enumerate(dims):
                put(f"{name}:dim{i}", "Q", d)
            put(f"{name}:ttype", "I", typ)
            put(f"{name}:offset", "Q", pos if offset is None else offset)
            pos += -(-len(data) // self.align) * self.align
        at["header_end"] = (len(out), 0)
        out += b"\0" * (-len(out) % self.align)
        at["data"] = (len(out), 0)
        for i, tensor in enumerate(self.tensors):
            out += tensor[3]
            if i + 1 < len(self.tensors):
                out += b"\0" * (-len(tensor[3]) % self.align)
        return bytes(out) + self.tail

    def patched(self, label, value):
        """The file with one header integer replaced."""
        b = bytearray(self.bytes())
        p, w = self.at[label]
        b[p:p + w] = (value % (1 << 8 * w)).to_bytes(w, "little")
        return bytes(b)


def q8_0(x):
    """Blocks of 32: half-precision scale, then 32 signed bytes."""
    b = x.astype(np.float32).reshape(-1, 32)
    d = (np.abs(b).max(1) / np.float32(127)).astype(np.float16)
    q = np.rint(b / np.maximum(d.astype(np.float32), np.float32(1e-20))[:, None]).clip(-127, 127).astype(np.int8)
    return b"".join(s.tobytes() + r.tobytes() for s, r in zip(d, q))


def bf16(x):
    return (x.astype("<f4").view("<u4") >> 16).astype("<u2").tobytes()


# ---- the tiny llama --------------------------------------------------------------------------
def byte_chars():
    """Byte -> printable character, as byte-level BPE vocabularies write their bytes."""
    keep = [*range(33, 127), *range(161, 173), *range(174, 256)]
    m, n = {b: chr(b) for b in keep}, 0
    for b in range(256):
        if b not in m:
            m[b] = chr(256 + n)
            n += 1
    return m


PAIRS = [(b"\xf0", b"\x9f"), (b"\x98", b"\xb8"), (b"\xe3", b"\x81"), (b" ", b"a"), (b" ", b"t")] + [
    (a.encode(), b.encode()) for a, b in (p.split("|") for p in (
        "t|h h|e i|n e|r a|n r|e o|n a|t e|n n|d t|i e|s o|r a|b c|d l|l l|o w|o r|l a|s i|s o|u "
        "i|t s|t a|r n|g th|e in|g an|d on|e =|= er|s").split())] + [(b"\n", b"\n"), (b" t", b"he"), (b" ", b" ")]


class Shape:
    def __init__(s, layers, d, ff, heads, kv, merges, ctx, seed):
        s.layers, s.d, s.ff, s.heads, s.kv, s.ctx, s.seed = layers, d, ff, heads, kv, ctx, seed
        s.hd, s.pairs, s.V = d // heads, PAIRS[:merges], 256 + merges + 4
        m = byte_chars()
        text = lambda b: "".join(m[x] for x in b)
        s.merges = [(text(a), text(b)) for a, b in s.pairs]
        s.specials = ["<|bos|>", "<|eos|>", "<|pad|>", "<|im_end|>"]
        s.tokens = [m[b] for b in range(256)] + [a + b for a, b in s.merges] + s.specials
        s.bos, s.eos = s.V - 4, s.V - 3
        assert len(set(s.tokens)) == s.V

    def weights(s):
        """(gguf name, hf name, (rows, columns)) in file order; the output head is tied."""
        yield "token_embd.weight", "model.embed_tokens.weight", (s.V, s.d)
        for i in range(s.layers):
            g, h = f"blk.{i}.", f"model.layers.{i}."
            yield g + "attn_norm.weight", h + "input_layernorm.weight", (s.d,)
            yield g + "attn_q.weight", h + "self_attn.q_proj.weight", (s.heads * s.hd, s.d)
            yield g + "attn_k.weight", h + "self_attn.k_proj.weight", (s.kv * s.hd, s.d)
            yield g + "attn_v.weight", h + "self_attn.v_proj.weight", (s.kv * s.hd, s.d)
            yield g + "attn_output.weight", h + "self_attn.o_proj.weight", (s.d, s.heads * s.hd)
            yield g + "ffn_norm.weight", h + "post_attention_layernorm.weight", (s.d,)
            yield g + "ffn_gate.weight", h + "mlp.gate_proj.weight", (s.ff, s.d)
            yield g + "ffn_up.weight", h + "mlp.up_proj.weight", (s.ff, s.d)
            yield g + "ffn_down.weight", h + "mlp.down_proj.weight", (s.d, s.ff)
        yield "output_norm.weight", "model.norm.weight", (s.d,)

    def value(s, i, shape):
        r = np.random.RandomState(s.seed + i)
        x = r.uniform(-0.25, 0.25, shape)
        return (1 + 0.1 * x if len(shape) == 1 else x).astype("<f4")

    def gguf(s, typ=T_Q8_0):
        g = Gguf()
        for k, kind, v in [
                ("general.architecture", STR, "llama"), ("general.name", STR, "tiny"),
                ("llama.context_length", U32, s.ctx), ("llama.embedding_length", U32, s.d),
                ("llama.block_count", U32, s.layers), ("llama.feed_forward_length", U32, s.ff),
                ("llama.attention.head_count", U32, s.heads), ("llama.attention.head_count_kv", U32, s.kv),
                ("llama.attention.layer_norm_rms_epsilon", F32, 1e-5),
                ("llama.rope.dimension_count", U32, s.hd), ("llama.rope.freq_base", F32, 10000.0),
                ("llama.vocab_size", U32, s.V), ("tokenizer.ggml.model", STR, "gpt2"),
                ("tokenizer.ggml.pre", STR, "gpt-2"), ("tokenizer.ggml.tokens", ARR, (STR, list(s.tokens))),
                ("tokenizer.ggml.token_type", ARR, (I32, [1] * (s.V - 4) + [3] * 4)),
                ("tokenizer.ggml.merges", ARR, (STR, [f"{a} {b}" for a, b in s.merges])),
                ("tokenizer.ggml.bos_token_id", U32, s.bos), ("tokenizer.ggml.eos_token_id", U32, s.eos),
                ("tokenizer.ggml.add_bos_token", BOOL, 0)]:
            g.set(k, kind, v)
        for i, (name, _, shape) in enumerate(s.weights()):
            x, norm = s.value(i, shape), len(shape) == 1
            g.tensors.append([name, list(shape[::-1]), T_F32 if norm else typ,
                              x.tobytes() if norm or typ == T_F32 else q8_0(x), None])
        return g

    def gguf_spm(s):
        """The same model with a SentencePiece-style vocabulary: pieces, scores, byte tokens."""
        g = s.gguf()
        rest = s.V - 259
        pieces = ["\u2581", *"abcdefghijklmnopqrstuvwxyz.,!?-'0123456789"][:rest]
        g.set("tokenizer.ggml.model", STR, "llama").drop("tokenizer.ggml.merges", "tokenizer.ggml.pre")
        g.set("tokenizer.ggml.tokens", ARR, (STR, ["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)] + pieces))
        g.set("tokenizer.ggml.scores", ARR, (F32, [0.0] * 259 + [-1.0 - i for i in range(rest)]))
        g.set("tokenizer.ggml.token_type", ARR, (I32, [2, 3, 3] + [6] * 256 + [1] * rest))
        g.set("tokenizer.ggml.bos_token_id", U32, 1).set("tokenizer.ggml.eos_token_id", U32, 2)
        return g.set("tokenizer.ggml.unknown_token_id", U32, 0)

    def config(s):
        return {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": s.d,
                "intermediate_size": s.ff, "num_hidden_layers": s.layers, "num_attention_heads": s.heads,
                "num_key_value_heads": s.kv, "head_dim": s.hd, "vocab_size": s.V,
                "max_position_embeddings": s.ctx, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
                "hidden_act": "silu", "attention_bias": False, "mlp_bias": False, "bos_token_id": s.bos,
                "eos_token_id": s.eos, "tie_word_embeddings": True, "torch_dtype": "bfloat16"}

    def tokenizer(s):
        added = [{"id": s.V - 4 + i, "content": t, "single_word": False, "lstrip": False, "rstrip": False,
                  "normalized": False, "special": True} for i, t in enumerate(s.specials)]
        level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
        return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added,
                "normalizer": None, "pre_tokenizer": level, "post_processor": None, "decoder": dict(level),
                "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                          "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False,
                          "vocab": {t: i for i, t in enumerate(s.tokens[:s.V - 4])},
                          "merges": [f"{a} {b}" for a, b in s.merges]}}

    def hf(s):
        return Folder(s.config(), s.tokenizer(), St([(h, "BF16", list(shape), bf16(s.value(i, shape)))
                                                      for i, (_, h, shape) in enumerate(s.weights())]))


# ---- safetensors and Hugging Face folders ----------------------------------------------------
def js(v):
    return json.dumps(v, separators=(",", ":"), ensure_ascii=False)


class St:
    """A safetensors file: `head` (name -> dtype, shape, data_offsets) and `data`, both editable."""

    def __init__(self, tensors):
        self.head, self.data = {}, b""
        for t in tensors:
            self.add(*t)

    def add(self, name, dtype, shape, data):
        a = len(self.data)
        self.head[name] = {"dtype": dtype, "shape": shape, "data_offsets": [a, a + len(data)]}
        self.data += data
        return self

    def rebuilt(self, edit):
        """Lay out again after edit(name, dtype, shape, data) -> tuple, or None to leave it out."""
        items = [(n, h["dtype"], h["shape"], self.data[slice(*h["data_offsets"])]) for n, h in self.head.items()]
        self.__init__([r for r in (edit(*i) for i in items) if r])
        return self

    def bytes(self, text=None, n=None, pad=8):
        t = js(self.head) if text is None else text
        t = t.encode() if isinstance(t, str) else t
        if pad:
            t += b" " * (-len(t) % pad)
        return struct.pack("<Q", len(t) if n is None else n) + t + self.data


class Folder:
    """A Hugging Face model folder; `files` (name -> bytes) overrides or adds, None removes."""

    def __init__(self, config, tokenizer, st):
        self.config, self.tokenizer, self.st, self.files = config, tokenizer, st, {}

    def all(self):
        f = {"config.json": js(self.config).encode(), "tokenizer.json": js(self.tokenizer).encode(),
             "model.safetensors": self.st.bytes()}
        f.update(self.files)
        return {k: v for k, v in f.items() if v is not None}

    def sharded(self, parts=2):
        """Split model.safetensors into parts with an index."""
        f, names = self.files, list(self.st.head)
        per, index = -(-len(names) // parts), {}
        for p in range(parts):
            file = f"model-{p + 1:05d}-of-{parts:05d}.safetensors"
            s = St([(n, self.st.head[n]["dtype"], self.st.head[n]["shape"],
                     self.st.data[slice(*self.st.head[n]["data_offsets"])]) for n in names[p * per:(p + 1) * per]])
            index.update({n: file for n in s.head})
            f[file] = s.bytes()
        f["model.safetensors"] = None
        self.index = {"metadata": {"total_size": len(self.st.data)}, "weight_map": index}
        f["model.safetensors.index.json"] = js(self.index).encode()
        return self

    def reindex(self):
        self.files["model.safetensors.index.json"] = js(self.index).encode()
        return self


# ---- case tables and command line ---------------------------------------------------------------
CASES, REQUESTS, TEXTS, IDS = [], [], [], set()


def expect(outcome, why, status=None, alt=None, rss=64, seconds=2, **more):
    e = {"outcome": outcome}
    if status:
        e["status"] = status
    if alt:
        e["or"] = alt
    return {**e, "why": why, **more, "limits": {"rss_mib": rss, "seconds": seconds}}


def file_case(id, kind, source, data, outcome, why, **kw):
    """data: bytes (one file), {name: bytes} (a folder), or None with input=... (an action)."""
    assert id not in IDS, id
    IDS.add(id)
    line = {"id": id, "kind": kind, "source": source}
    if "input" in kw:
        line["input"] = kw.pop("input")
    else:
        line["file"] = id if not isinstance(data, bytes) or "." in id.rsplit("/")[-1] else id + ".gguf"
        if "open" in kw:
            line["file"] = f"{id}/{kw.pop('open')}"
    CASES.append(({**line, "expect": expect(outcome, why, **kw)}, data))


def request(id, kind, source, input, outcome, why, **kw):
    assert id not in IDS, id
    IDS.add(id)
    REQUESTS.append({"id": id, "kind": kind, "source": source, "input": input, "expect": expect(outcome, why, **kw)})


def released(tail, final=False):
    """(text, held) for the bytes so far: a bad part becomes one U+FFFD as soon as it is known to be bad.

    A bad part is the longest start of a legal character (Unicode, "maximal subpart"), or one byte.
    """
    text, i = "", 0
    while i < len(tail):
        c = tail[i]
        need = 0 if c < 0x80 else 1 if 0xC2 <= c < 0xE0 else 2 if 0xE0 <= c < 0xF0 else 3 if 0xF0 <= c < 0xF5 else -1
        low, high = {0xE0: (0xA0, 0xBF), 0xED: (0x80, 0x9F), 0xF0: (0x90, 0xBF), 0xF4: (0x80, 0x8F)}.get(c, (0x80, 0xBF))
        j = i + 1
        while j < len(tail) and j - i <= need and low <= tail[j] <= high:
            low, high, j = 0x80, 0xBF, j + 1
        if j - i - 1 == need:
            text += tail[i:j].decode()
        elif j == len(tail) and need > 0 and not final:
            return text, tail[i:]
        else:
            text += "\ufffd"
        i = j
    return text, b""


def text_case(id, source, tokens, prompt_tail=b"", note=None):
    """One stream of token bytes with the text to release after each, what stays held, and the final flush."""
    steps, held = [], b""
    for t in tokens:
        text, held = released(held + t)
        steps.append({"bytes": t.hex(), "text": text, "held": held.hex()})
    line = {"id": id, "source": source, "steps": steps, "final": released(held, True)[0]}
    assert "".join(s["text"] for s in steps) + line["final"] == b"".join(tokens).decode(errors="replace"), id
    if prompt_tail:
        line["prompt_tail"] = prompt_tail.hex()
    if note:
        line["note"] = note
    TEXTS.append(line)


def lines(rows):
    return "".join(js(r) + "\n" for r in rows).encode()


def write(path, data):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def main():
    p = argparse.ArgumentParser(description="generate the hostile inputs, and the tables that say what must come of them")
    p.add_argument("out", help="output folder")
    p.add_argument("--only", default="", help="only cases whose id starts with this")
    p.add_argument("--truncate", nargs=2, metavar=("ID", "K"), help="write the first K bytes of one single-file case to OUT")
    a = p.parse_args()
    out = Path(a.out)
    if a.truncate:
        data = next(d for c, d in CASES if c["id"] == a.truncate[0])
        return write(out, data[:int(a.truncate[1])])
    write(out / "manifest.jsonl", lines([c for c, _ in CASES if c["id"].startswith(a.only)]))
    write(out / "requests.jsonl", lines(REQUESTS))
    write(out / "text" / "utf8-cases.jsonl", lines(TEXTS))
    for c, data in CASES:
        if data is None or not c["id"].startswith(a.only):
            continue
        if isinstance(data, bytes):
            write(out / c["file"], data)
        else:
            for name, b in data.items():
                write(out / c["id"] / name, b)
