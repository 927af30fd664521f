#!/usr/bin/env python3
"""Writes the first layers of a GGUF file as a model of its own, for where a whole one is too large.

usage: tests/gpu_check/cut_model.py IN.gguf LAYERS OUT.gguf
"""
import re
import struct
import sys

U32, STRING, ARRAY, U64 = 4, 8, 9, 10
SIZES = {0: 1, 1: 1, 2: 2, 3: 2, U32: 4, 5: 4, 6: 4, 7: 1, U64: 8, 11: 8, 12: 8}
ALIGNMENT = 32


class Reader:
    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, layout):
        (value,) = struct.unpack_from("<" + layout, self.data, self.at)
        self.at += struct.calcsize("<" + layout)
        return value

    def string(self):
        size = self.take("Q")
        self.at += size
        return self.data[self.at - size:self.at]

    def skip_value(self, kind):
        if kind == STRING:
            self.string()
        elif kind == ARRAY:
            element, count = self.take("I"), self.take("Q")
            for _ in range(count if element in (STRING, ARRAY) else 0):
                self.skip_value(element)
            self.at += count * SIZES.get(element, 0)
        else:
            self.at += SIZES[kind]


def entries(reader, count):
    """Yields (key, value type, bytes of the value) of the metadata."""
    for _ in range(count):
        key, kind = reader.string(), reader.take("I")
        begin = reader.at
        reader.skip_value(kind)
        yield key, kind, reader.data[begin:reader.at]


def tensors(reader, count):
    """Yields (name, bytes of shape and type, offset)."""
    for _ in range(count):
        name, begin = reader.string(), reader.at
        dimensions = reader.take("I")
        reader.at += dimensions * 8 + 4
        yield name, reader.data[begin:reader.at], reader.take("Q")


def string(text):
    return struct.pack("<Q", len(text)) + text


def padding(size):
    return b"\0" * (-size % ALIGNMENT)


def cut(data, layers):
    reader = Reader(data)
    magic, version = reader.take("4s"), reader.take("I")
    tensor_count, entry_count = reader.take("Q"), reader.take("Q")
    metadata = b""
    for key, kind, value in entries(reader, entry_count):
        if key.endswith(b".block_count"):
            value = struct.pack("<I", layers)
        metadata += string(key) + struct.pack("<I", kind) + value
    all_tensors = list(tensors(reader, tensor_count))
    start = reader.at + len(padding(reader.at))
    ends = sorted([offset for _, _, offset in all_tensors] + [len(data) - start])
    infos, blobs, offset = b"", [], 0
    kept = 0
    for name, info, begin in all_tensors:
        layer = re.match(rb"blk\.(\d+)\.", name)
        if layer and int(layer[1]) >= layers:
            continue
        end = next(e for e in ends if e > begin)
        blob = data[start + begin:start + end]
        blob += padding(len(blob))
        infos += string(name) + info + struct.pack("<Q", offset)
        blobs.append(blob)
        offset += len(blob)
        kept += 1
    head = magic + struct.pack("<IQQ", version, kept, entry_count) + metadata + infos
    return head + padding(len(head)) + b"".join(blobs)


def main():
    if len(sys.argv) != 4 or not sys.argv[2].isdigit():
        print(__doc__, file=sys.stderr)
        return 2
    with open(sys.argv[1], "rb") as source:
        data = source.read()
    with open(sys.argv[3], "wb") as target:
        target.write(cut(data, int(sys.argv[2])))
    return 0


if __name__ == "__main__":
    sys.exit(main())
