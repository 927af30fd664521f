#!/usr/bin/env python3
"""Writes a GGUF file again with its matrices in another weight type, to compare speeds on it.

usage: tests/bench/requantize.py IN.gguf TYPE OUT.gguf    TYPE: Q8_0, Q4_0, Q4_1, F16, BF16, F32

Needs the PyPI packages gguf and numpy. Norms and other vectors keep their type.
"""

import sys

import gguf
from gguf import GGUFReader, GGUFValueType, GGUFWriter
from gguf.quants import dequantize, quantize

FILE_TYPES = {"F32": 0, "F16": 1, "Q4_0": 2, "Q4_1": 3, "Q8_0": 7, "BF16": 32}


def copy_metadata(reader, writer, file_type):
    for field in reader.fields.values():
        if field.name.startswith("GGUF.") or field.name == "general.architecture":
            continue
        if field.name == "general.file_type":
            writer.add_file_type(file_type)
            continue
        kind = field.types[0]
        element = field.types[-1] if kind == GGUFValueType.ARRAY else None
        writer.add_key_value(field.name, field.contents(), kind, element)


def main():
    if len(sys.argv) != 4 or sys.argv[2] not in FILE_TYPES:
        print(__doc__, file=sys.stderr)
        return 2
    source, name, target = sys.argv[1:]
    wanted = gguf.GGMLQuantizationType[name]
    reader = GGUFReader(source)
    writer = GGUFWriter(target, reader.fields["general.architecture"].contents())
    copy_metadata(reader, writer, FILE_TYPES[name])
    for tensor in reader.tensors:
        data, kind = tensor.data, tensor.tensor_type
        if len(tensor.shape) > 1 and kind != wanted:
            data, kind = quantize(dequantize(data, kind), wanted), wanted
        writer.add_tensor(tensor.name, data, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
