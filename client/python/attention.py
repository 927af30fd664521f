#!/usr/bin/env python3
"""Attention of a vitrine server as numpy arrays: from its chunks, or from a file of `vitrine
attention --npz`.

    client/python/attention.py "The cat sat on the" --server 127.0.0.1:50051 --npz cat.npz

As a module it needs numpy only; asking a server needs what generate.py needs.

    import attention
    arrays = attention.load("cat.npz")            # or attention.read_chunks(chunks, spec)
    arrays["dense"][5, 3]                         # layer 5, head 3: [query, key]
    attentions = attention.to_hf(arrays)          # per layer [1, head, query, key], as BertViz takes

Names are those of the .npz (client/attention_export.h): data with axes [layer, head, query, last],
and what their indices stand for ("layers", "heads" or "pairs", "query_positions", ...).
"""
import argparse
import sys

import numpy as np

# Of vitrine.v1: AttentionOutputKind, ElementType, AttentionReduce, AttentionStage.
STATS, TOP_K, SPAN_MASS, COLUMN_SUM, DENSE, TILE = range(1, 7)
NAMES = {STATS: "stats", TOP_K: "top_k_weights", SPAN_MASS: "span_mass", COLUMN_SUM: "column_sum",
         DENSE: "dense", TILE: "tile"}
LAST_AXIS = {COLUMN_SUM: "column_sum_keys", DENSE: "key_positions", TILE: "tile_first_keys"}
DTYPES = {1: "<f4", 2: "<f2", 3: "<u4"}
MEAN, MAX = 2, 3
SCORES = 2


class BrokenTrace(ValueError):
    """The chunks are not what the protocol promises: something is missing, doubled or misshapen."""


def _tensor(tensor, dtypes):
    if tensor.dtype not in dtypes:
        raise BrokenTrace(f"element type {tensor.dtype} where one of {dtypes} is due")
    values = np.frombuffer(tensor.data, DTYPES[tensor.dtype])
    dims = tuple(tensor.dims)
    if int(np.prod(dims, dtype=object)) != values.size:
        raise BrokenTrace(f"{values.size} elements in a tensor of {dims}")
    return values.reshape(dims)


class _Piece:
    """The numbers of one chunk and, per axis, the coordinate of each index."""

    def __init__(self, chunk, is_pairs, is_reduced):
        kind = chunk.output
        self.values = _tensor(chunk.top_k.weights if kind == TOP_K else chunk.values,
                              (1, 2) if kind == DENSE else (1,)).astype(np.float32)
        self.keys = _tensor(chunk.top_k.keys, (3,)) if kind == TOP_K else None
        has_tail = kind == TOP_K and len(chunk.top_k.tail_mass.dims) > 0
        self.tail = _tensor(chunk.top_k.tail_mass, (1,)) if has_tail else None
        if np.isnan(self.values).any():
            raise BrokenTrace("a tensor holds something that is no number")
        self.layers, self.heads = list(chunk.layers), list(chunk.heads)
        self.rows = [(row.choice, row.query_position) for row in chunk.rows]
        last = self.values.shape[3]
        if kind in (DENSE, COLUMN_SUM, TILE):
            offsets = [i * chunk.key_count // last for i in range(last)]
        else:
            offsets = range(last)
        self.axes = [
            [0] if is_pairs or is_reduced[0] else self.layers,
            [0] if is_reduced[1] else list(zip(self.layers, self.heads)) if is_pairs else self.heads,
            self.rows if kind not in (COLUMN_SUM, TILE) else list(range(self.values.shape[2])),
            [chunk.key_start + offset for offset in offsets]]
        if tuple(map(len, self.axes)) != self.values.shape:
            raise BrokenTrace(f"dims {self.values.shape} disagree with the chunk's index lists")
        if kind in (DENSE, COLUMN_SUM) and last != chunk.key_count:
            raise BrokenTrace(f"{last} keys where key_count says {chunk.key_count}")


def _join(kind, pieces, is_scores):
    """One array of all pieces of a kind, with its coordinates."""
    axes = [sorted({c for piece in pieces for c in piece.axes[axis]}) for axis in range(4)]
    index = [{c: i for i, c in enumerate(axis)} for axis in axes]
    shape = tuple(map(len, axes))
    values = np.full(shape, np.nan, np.float32)
    keys = np.zeros(shape, np.uint32)
    tail = np.zeros(shape[:3], np.float32)
    for piece in pieces:
        at = np.ix_(*[[index[axis][c] for c in piece.axes[axis]] for axis in range(4)])
        if not np.isnan(values[at]).all():
            raise BrokenTrace("an element came twice")
        values[at] = piece.values
        if piece.keys is not None:
            keys[at] = piece.keys
        if piece.tail is not None:
            tail[at[0][..., 0], at[1][..., 0], at[2][..., 0]] = piece.tail
    missing = np.isnan(values)
    if kind == DENSE:
        # Keys behind a query need not be sent.
        unseen = np.array([[key > query for key in axes[3]] for _, query in axes[2]])
        values[missing & unseen] = -np.inf if is_scores else 0.0
        missing &= ~unseen
    if missing.any():
        raise BrokenTrace("an element never came")
    arrays = {NAMES[kind]: values}
    if kind == TOP_K:
        arrays["top_k_keys"] = keys
        if not is_scores:
            arrays["top_k_tail_mass"] = tail
    if kind in LAST_AXIS:
        arrays[LAST_AXIS[kind]] = np.array(axes[3], np.uint32)
    return arrays


def read_chunks(chunks, spec):
    """Arrays by name from the AttentionChunks of one trace and the AttentionSpec that asked for it.

    Raises BrokenTrace unless all of the trace is there, once and in order.
    """
    is_pairs = len(spec.pairs.pairs) > 0
    is_reduced = [spec.reduce_layers in (MEAN, MAX), spec.reduce_heads in (MEAN, MAX)]
    pieces, end, size = {}, None, 0
    for number, chunk in enumerate(chunks):
        if end is not None or chunk.sequence_number != number:
            raise BrokenTrace(f"chunk {chunk.sequence_number} comes at place {number}")
        if chunk.WhichOneof("payload") == "trace_end":
            end = chunk.trace_end
            continue
        if chunk.output not in NAMES:
            raise BrokenTrace(f"output kind {chunk.output} is not known")
        size += sum(len(tensor.data) for tensor in (chunk.values, chunk.top_k.keys,
                                                    chunk.top_k.weights, chunk.top_k.tail_mass))
        pieces.setdefault(chunk.output, []).append(_Piece(chunk, is_pairs, is_reduced))
    if end is None or end.bytes != size:
        raise BrokenTrace("the trace has no end, or other bytes than it says")
    arrays = {}
    for kind in sorted(pieces, reverse=True):
        arrays.update(_join(kind, pieces[kind], spec.stage == SCORES))
    rows = sorted({row for piece in sum(pieces.values(), []) for row in piece.rows})
    arrays["choices"] = np.array([choice for choice, _ in rows], np.uint32)
    arrays["query_positions"] = np.array([query for _, query in rows], np.uint32)
    arrays["predicts_positions"] = arrays["query_positions"] + np.uint32(1)
    every = sum(pieces.values(), [])
    if is_pairs:
        pairs = sorted({pair for piece in every for pair in zip(piece.layers, piece.heads)})
        arrays["pairs"] = np.array(pairs, np.uint32)
    else:
        for name in ("layers", "heads"):
            arrays[name] = np.array(sorted({i for piece in every for i in getattr(piece, name)}),
                                    np.uint32)
    return arrays


def load(path):
    """Arrays by name from a file that `vitrine attention --npz` or `save` wrote."""
    with np.load(path) as file:
        return {name: file[name] for name in file.files}


def save(path, arrays):
    """Writes what `load` reads."""
    np.savez(path, **arrays)


def to_hf(arrays, by_step=False):
    """Hugging Face's tuples of [1, head, query, key], from "dense" with heads and layers apart.

    As a model's forward returns `attentions` (and BertViz takes them): one array per layer, over all
    tokens. With by_step as generate() returns them: one tuple of layers per step, the prompt first,
    then one query each. Needs every row: queries=ALL.
    """
    if "dense" not in arrays:
        raise ValueError("to_hf needs the output DENSE")
    dense = arrays["dense"][:, :, np.flatnonzero(arrays["choices"] == 0)]
    queries = arrays["query_positions"][arrays["choices"] == 0]
    if "pairs" in arrays or dense.shape[:2] != (len(arrays["layers"]), len(arrays["heads"])):
        raise ValueError("to_hf needs layers and heads apart: neither pairs nor reductions")
    tokens = len(queries)
    if not np.array_equal(queries, np.arange(tokens)) or not np.array_equal(
            arrays["key_positions"], np.arange(tokens)):
        raise ValueError("to_hf needs every query and key from position 0 on: queries=ALL")
    if not by_step:
        return tuple(layer[np.newaxis] for layer in dense)
    prompt = int(arrays["prompt_tokens"])
    steps = [(0, prompt)] + [(row, row + 1) for row in range(prompt, tokens)]
    return tuple(tuple(layer[np.newaxis, :, begin:end, :end] for layer in dense)
                 for begin, end in steps)


def ask(server, prompt, max_tokens):
    """Generates greedily with DENSE F32 of every row; returns the arrays, tokens included."""
    import generate
    import grpc
    messages, service = generate.load_stubs()
    from vitrine.v1 import attention_pb2
    request = messages.GenerateRequest(text=prompt.encode())
    request.sampling.temperature = 0
    request.stop.max_tokens = max_tokens
    request.output.return_prompt_token_ids = True
    request.attention.queries.append(attention_pb2.QUERY_SET_ALL)
    request.attention.outputs.add().dense.dtype = attention_pb2.ELEMENT_TYPE_F32
    chunks, ids = [], []
    with grpc.insecure_channel(server) as channel:
        for event in service.GenerationStub(channel).Generate(request):
            kind = event.WhichOneof("event")
            if kind == "accepted":
                ids = list(event.accepted.prompt_token_ids)
                prompt_tokens = event.accepted.prompt_token_count
            elif kind == "tokens":
                ids += [token.id for token in event.tokens.tokens]
            elif kind == "attention":
                chunks.append(event.attention)
    arrays = read_chunks(chunks, request.attention)
    arrays["token_ids"] = np.array(ids, np.uint32)
    arrays["prompt_tokens"] = np.array(prompt_tokens, np.uint32)
    return arrays


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("prompt")
    parser.add_argument("--server", default="127.0.0.1:50051")
    parser.add_argument("--max_tokens", type=int, default=16)
    parser.add_argument("--npz", help="write the arrays here")
    arguments = parser.parse_args()

    import grpc
    try:
        arrays = ask(arguments.server, arguments.prompt, arguments.max_tokens)
    except grpc.RpcError as error:
        sys.exit(f"attention.py: {error.code().name}: {error.details()}")
    if arguments.npz:
        save(arguments.npz, arrays)
    layers, heads, queries, keys = arrays["dense"].shape
    print(f"{layers} layers, {heads} heads, {queries} queries, {keys} keys")


if __name__ == "__main__":
    main()
