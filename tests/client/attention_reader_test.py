#!/usr/bin/env python3
"""client/python/attention.py: chunks and files to arrays, refusals, and Hugging Face's shape.

usage: attention_reader_test.py FOLDER_OF_ATTENTION_PY [NPZ_OF_VITRINE NPZ_OF_PYTHON]

The two files, when given, are of the same prompt: what the command and the module read must agree.
"""
import copy
import sys
import types
import unittest

import numpy as np

sys.path.insert(0, sys.argv[1])
import attention  # noqa: E402

FILES = sys.argv[2:]
LAYERS, HEADS, PROMPT, TOKENS = 2, 3, 4, 6


def weights(layer, head, query):
    raw = np.arange(1, query + 2, dtype=np.float32) + layer + 2 * head
    return raw / raw.sum()


def tensor(values, dtype):
    values = np.ascontiguousarray(values, attention.DTYPES[dtype])
    return types.SimpleNamespace(dims=list(values.shape), dtype=dtype, data=values.tobytes())


def chunk(**fields):
    none = types.SimpleNamespace(dims=[], dtype=0, data=b"")
    made = types.SimpleNamespace(
        key_start=0, key_count=0, values=none,
        top_k=types.SimpleNamespace(keys=none, weights=none, tail_mass=none), **fields)
    made.WhichOneof = lambda _: "trace_end" if hasattr(made, "trace_end") else "values"
    return made


def spec(**fields):
    made = types.SimpleNamespace(pairs=types.SimpleNamespace(pairs=[]), reduce_layers=0,
                                 reduce_heads=0, stage=0)
    made.__dict__.update(fields)
    return made


def dense_chunks(dtype=1):
    """A chunk per layer for the prompt, then one for each generated row."""
    chunks = []
    for layers, rows in [([0], range(PROMPT)), ([1], range(PROMPT))] + [
            ([0, 1], [row]) for row in range(PROMPT, TOKENS)]:
        values = np.zeros((len(layers), HEADS, len(rows), rows[-1] + 1), np.float32)
        for i, layer in enumerate(layers):
            for head in range(HEADS):
                for j, row in enumerate(rows):
                    values[i, head, j, :row + 1] = weights(layer, head, row)
        made = chunk(sequence_number=len(chunks), output=attention.DENSE, layers=layers,
                     heads=list(range(HEADS)),
                     rows=[types.SimpleNamespace(choice=0, query_position=row) for row in rows])
        made.values, made.key_count = tensor(values, dtype), rows[-1] + 1
        chunks.append(made)
    return close(chunks)


def close(chunks):
    size = sum(len(t.data) for c in chunks
               for t in (c.values, c.top_k.keys, c.top_k.weights, c.top_k.tail_mass))
    return chunks + [chunk(sequence_number=len(chunks),
                           trace_end=types.SimpleNamespace(bytes=size))]


class ReadChunks(unittest.TestCase):
    def test_dense_numbers_are_in_their_places(self):
        for dtype, error in ((1, 0), (2, 2.0 ** -12)):
            arrays = attention.read_chunks(dense_chunks(dtype), spec())
            self.assertEqual(arrays["dense"].shape, (LAYERS, HEADS, TOKENS, TOKENS))
            self.assertEqual(arrays["query_positions"].tolist(), list(range(TOKENS)))
            for layer, head, query in np.ndindex(LAYERS, HEADS, TOKENS):
                row = arrays["dense"][layer, head, query]
                np.testing.assert_allclose(row[:query + 1], weights(layer, head, query), 0, error)
                self.assertFalse(row[query + 1:].any())

    def test_pairs_and_reductions_have_their_own_axes(self):
        made = chunk(sequence_number=0, output=attention.STATS, layers=[0, 1], heads=[2, 0],
                     rows=[types.SimpleNamespace(choice=0, query_position=3)])
        made.values = tensor(np.arange(16).reshape(1, 2, 1, 8), 1)
        some = types.SimpleNamespace(pairs=[0, 0])
        arrays = attention.read_chunks(close([made]), spec(pairs=some))
        self.assertEqual(arrays["pairs"].tolist(), [[0, 2], [1, 0]])
        self.assertEqual(arrays["stats"][0, 1, 0].tolist(), list(range(8, 16)))
        made.values = tensor(np.arange(8).reshape(1, 1, 1, 8), 1)
        arrays = attention.read_chunks(close([made]), spec(reduce_layers=2, reduce_heads=3))
        self.assertEqual(arrays["stats"].shape, (1, 1, 1, 8))

    def test_top_k_has_keys_and_tail(self):
        made = chunk(sequence_number=0, output=attention.TOP_K, layers=[0], heads=[1],
                     rows=[types.SimpleNamespace(choice=0, query_position=3)])
        made.top_k = types.SimpleNamespace(keys=tensor(np.array([[[[3, 0]]]]), 3),
                                           weights=tensor(np.array([[[[0.5, 0.25]]]]), 1),
                                           tail_mass=tensor(np.array([[[0.25]]]), 1))
        arrays = attention.read_chunks(close([made]), spec())
        self.assertEqual(arrays["top_k_keys"].tolist(), [[[[3, 0]]]])
        self.assertEqual(arrays["top_k_tail_mass"].tolist(), [[[0.25]]])

    def test_broken_traces_are_refused(self):
        def damage(change):
            chunks = dense_chunks()
            change(chunks)
            with self.assertRaises(attention.BrokenTrace):
                attention.read_chunks(chunks, spec())

        def double(chunks):
            chunks.insert(1, copy.copy(chunks[0]))
            chunks[-1].trace_end.bytes += len(chunks[0].values.data)
            for number, one in enumerate(chunks):
                one.sequence_number = number

        damage(lambda chunks: chunks.pop())
        damage(lambda chunks: chunks.pop(0))
        damage(double)
        damage(lambda chunks: chunks[0].layers.append(1))
        damage(lambda chunks: setattr(chunks[0], "key_count", 3))
        damage(lambda chunks: setattr(chunks[0], "output", 9))
        damage(lambda chunks: setattr(chunks[0].values, "dtype", 3))
        damage(lambda chunks: setattr(chunks[0].values, "data", chunks[0].values.data[4:]))
        damage(lambda chunks: setattr(chunks[-1].trace_end, "bytes", 1))


class ToHf(unittest.TestCase):
    def test_layers_are_what_a_forward_pass_returns(self):
        layers = attention.to_hf(attention.read_chunks(dense_chunks(), spec()))
        self.assertEqual([layer.shape for layer in layers], [(1, HEADS, TOKENS, TOKENS)] * LAYERS)
        np.testing.assert_array_equal(layers[1][0, 2, 5], weights(1, 2, 5))

    def test_steps_are_what_generate_returns(self):
        arrays = attention.read_chunks(dense_chunks(), spec())
        arrays["prompt_tokens"] = np.array(PROMPT)
        steps = attention.to_hf(arrays, by_step=True)
        self.assertEqual([step[0].shape for step in steps],
                         [(1, HEADS, 4, 4), (1, HEADS, 1, 5), (1, HEADS, 1, 6)])
        np.testing.assert_array_equal(steps[2][1][0, 0, 0], weights(1, 0, 5))

    def test_missing_rows_are_refused(self):
        arrays = attention.read_chunks(dense_chunks(), spec())
        for change in ({"query_positions": arrays["query_positions"] + 1},
                       {"layers": arrays["layers"][:1]}, {"pairs": np.zeros((2, 2))}):
            with self.assertRaises(ValueError):
                attention.to_hf(arrays | change)
        with self.assertRaises(ValueError):
            attention.to_hf({"stats": arrays["dense"]})


@unittest.skipUnless(FILES, "no files given")
class Files(unittest.TestCase):
    def test_command_and_module_agree(self):
        of_command, of_module = map(attention.load, FILES)
        for name, values in of_module.items():
            np.testing.assert_array_equal(of_command[name], values, name)
        sums = of_command["dense"].sum(axis=3)
        np.testing.assert_allclose(sums, np.ones_like(sums), 0, 1e-6)
        self.assertEqual(len(of_command["token_bytes"]), len(of_command["token_ids"]))
        self.assertEqual(of_command["stage"].tolist(), [b"weights"])
        attention.to_hf(of_command)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)  # Which names what is skipped, and why.
