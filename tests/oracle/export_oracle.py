#!/usr/bin/env python3
"""Safetensors both ways, by the safetensors library: tests/engine/weights/fixtures/.

library.safetensors  written by the library: what our reader must read. export_oracle.json tells its tensors.
ours.safetensors     the bytes our writer must produce, put together here from the format's definition and from
                     independent roundings (numpy, ml_dtypes), then read back by the library and compared.
Run it by `make oracle`.
"""
# requires: safetensors==0.8.0 numpy==2.4.6 ml_dtypes==0.6.0
import json
import os
import struct

import ml_dtypes
import numpy
import safetensors
from safetensors.numpy import save_file

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
FIXTURES = os.path.join(ROOT, "tests", "engine", "weights", "fixtures")
DTYPES = {"F32": numpy.dtype("float32"), "F16": numpy.dtype("float16"), "BF16": numpy.dtype(ml_dtypes.bfloat16)}


def ramp(count):
    """Signs, halves, values that 16-bit types must round, subnormal and too large ones; the test has the same."""
    index = numpy.arange(count, dtype=numpy.int64)
    values = ((index * 7919) % 1009 - 504).astype(numpy.float32) * numpy.float32(0.1)
    scale = numpy.array([1, 1e-6, 1e4, 1e-39], dtype=numpy.float32)
    return (values * scale[index % 4]).astype(numpy.float32)


def write_library_file():
    """Tensors of every kind a weight file has; the library chooses order and padding."""
    tensors = {
        "embed.weight": ramp(6 * 5).reshape(6, 5),
        "half": ramp(33).astype(numpy.float16),
        "brain": ramp(35).astype(ml_dtypes.bfloat16).reshape(5, 7),
        "scalar": numpy.array(-2.5, dtype=numpy.float32),
        "none": numpy.zeros((0, 4), dtype=numpy.float32),
        "mask": numpy.array([True, False]),
        "position_ids": numpy.arange(3, dtype=numpy.int64),
        "wide": numpy.arange(2, dtype=numpy.float64),
        'q"uote\\ é \U0001f600': numpy.ones(2, dtype=numpy.float32),
    }
    path = os.path.join(FIXTURES, "library.safetensors")
    save_file(tensors, path, metadata={"format": "pt"})
    rows = []
    for name, tensor in sorted(tensors.items()):
        row = {"name": name, "shape": list(tensor.shape), "dtype": str(tensor.dtype)}
        if tensor.dtype in DTYPES.values():
            # Bits of the value as fp32: exact for every finite value of these types.
            row["fp32_bits"] = [int(bits) for bits in tensor.astype(numpy.float32).reshape(-1).view(numpy.uint32)]
        rows.append(row)
    return rows


def write_our_file():
    declared = [("model.b", "BF16", (3, 50)), ("model.a", "F32", (7,)), ("empty", "F32", (0,)),
                ("model.h", "F16", (101,)), ("scalar", "F32", ())]
    header, data = {"__metadata__": {"format": "pt"}}, b""
    for name, dtype, shape in declared:
        content = ramp(int(numpy.prod(shape))).astype(DTYPES[dtype]).tobytes()
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [len(data), len(data) + len(content)]}
        data += content
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    path = os.path.join(FIXTURES, "ours.safetensors")
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)
    with safetensors.safe_open(path, framework="np") as file:
        assert file.metadata() == {"format": "pt"}
        assert set(file.keys()) == {name for name, _, _ in declared}
    with open(path, "rb") as file:
        read = dict(safetensors.deserialize(file.read()))
    for name, dtype, shape in declared:
        expected = ramp(int(numpy.prod(shape))).astype(DTYPES[dtype])
        assert read[name]["dtype"] == dtype and tuple(read[name]["shape"]) == shape, name
        assert bytes(read[name]["data"]) == expected.tobytes(), name


def main():
    numpy.seterr(over="ignore")  # too large for fp16 is meant
    os.makedirs(FIXTURES, exist_ok=True)
    rows = write_library_file()
    write_our_file()
    os.chmod(os.path.join(FIXTURES, "library.safetensors"), 0o644)
    with open(os.path.join(FIXTURES, "export_oracle.json"), "w", encoding="utf-8") as file:
        json.dump({"safetensors": safetensors.__version__, "tensors": rows}, file, indent=1)
        file.write("\n")


if __name__ == "__main__":
    main()
