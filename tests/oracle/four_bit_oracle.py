#!/usr/bin/env python3
"""Makes tests/fixtures/four-bit.json: frozen weights in 4 bits as bitsandbytes packs them, on a CPU.

Per case numbers by made() of eight_bit_oracle.py, with changes that the case names. What is recorded:
  codes       as hexadecimal digits, two numbers a byte
  scales      of the blocks
  numbers     hash of the numbers again, fp32, by FNV-1a over their bytes
  two_levels  codes and scales of the scales, their mean, and the hash of the numbers again
Codes of the second level are the nearest ones, as on a GPU: bitsandbytes' table on a CPU takes a neighbour in places, and
`table` counts how often it did. `bfloat16` is the hash of the numbers again in that type.
"""
# python: tests/oracle/bitsandbytes_venv.sh
import os
import sys

import torch
from bitsandbytes import functional

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import eight_bit_oracle
import qwen2_oracle

OUT = os.path.join(os.path.dirname(HERE), "fixtures", "four-bit.json")
BY_TABLE = functional.quantize_blockwise
CASES = {  # seed, count, rows, what is done to the numbers
    "blocks": (1, 64 * 40, 40, ""),
    "two groups": (2, 64 * 300, 300, ""),
    "a short block": (3, 1003 * 2, 2, ""),
    "an odd number": (4, 17 * 33, 17, ""),
    "one number": (5, 1, 1, ""),
    "blocks of zeros": (6, 64 * 9 + 10, 1, "zeros"),
    "all zeros": (7, 64 * 3, 1, "all zeros"),
    "large and small": (8, 64 * 270, 270, "sizes"),
    "edges": (9, 64 * 16, 16, "edges"),
}


def nearest(numbers, blocksize):
    """quantize_blockwise, whose CPU kernel is for other types than float64: those go to code that takes the least distance."""
    code = functional.create_dynamic_map()
    codes, scales = torch.ops.bitsandbytes.quantize_blockwise(numbers.double(), code, blocksize)
    return codes, functional.QuantState(absmax=scales, code=code, blocksize=blocksize, dtype=torch.float32)


def numbers_of(seed, count, change):
    numbers = eight_bit_oracle.made(seed, count)
    if change == "zeros":
        numbers[128:192] = 0
        numbers[576:] = 0
    elif change == "all zeros":
        numbers[:] = 0
    elif change == "sizes":
        exponents = torch.tensor([(block * 7) % 60 - 35 for block in range((count + 63) // 64)], dtype=torch.float64)
        numbers = (numbers.double() * (2.0 ** exponents).repeat_interleave(64)[:count]).float()
    elif change == "edges":  # halfway between two codes, and the numbers beside that
        code = functional.get_4bit_type("nf4", device="cpu")
        middle = (code[:-1] + code[1:]) / 2
        for block in range(count // 64):
            at = numbers[64 * block:64 * block + 64]
            at[0] = 1
            at[1:16] = middle
            at[16:31] = torch.nextafter(middle, torch.tensor(2.0))
            at[31:46] = torch.nextafter(middle, torch.tensor(-2.0))
            at *= 2.0 ** (block - 8)
    return numbers


def hash_of(tensor):
    value = 0xcbf29ce484222325
    for byte in tensor.contiguous().view(torch.uint8).reshape(-1).tolist():
        value = (value ^ byte) * 0x100000001b3 % 2 ** 64
    return f"{value:016x}"


def packed(numbers, two_levels):
    return functional.quantize_4bit(numbers, quant_type="nf4", compress_statistics=two_levels)


def hexadecimal(codes):
    return bytes(codes.reshape(-1).tolist()).hex()


def case(seed, count, rows, change):
    numbers = numbers_of(seed, count, change).view(rows, -1)
    codes, state = packed(numbers, False)
    out = {"seed": seed, "count": count, "change": change, "codes": hexadecimal(codes),
           "scales": qwen2_oracle.rounded(state.absmax), "numbers": hash_of(functional.dequantize_4bit(codes, state))}
    again, nested = packed(numbers, True)
    assert torch.equal(codes, again)
    low = nested
    unpacked = functional.dequantize_4bit(again, nested)
    out["two_levels"] = {"codes": hexadecimal(nested.absmax), "scales": qwen2_oracle.rounded(nested.state2.absmax),
                         "mean": float(f"{nested.offset.item():.9g}"), "numbers": hash_of(unpacked)}
    low.dtype = torch.bfloat16
    out["two_levels"]["bfloat16"] = hash_of(functional.dequantize_4bit(again, low))
    table, _ = BY_TABLE(state.absmax - state.absmax.mean(), blocksize=256)
    out["table"] = int((table != nested.absmax).sum())
    return out


def main():
    torch.set_num_threads(1)
    functional.quantize_blockwise = nearest
    code = functional.get_4bit_type("nf4", device="cpu")
    map_of_scales = functional.create_dynamic_map()
    record = {"bitsandbytes": __import__("bitsandbytes").__version__, "nf4": qwen2_oracle.rounded(code),
              "map": qwen2_oracle.rounded(map_of_scales), "cases": {name: case(*of) for name, of in CASES.items()}}
    qwen2_oracle.write_json(OUT, record)
    print("four-bit:", {name: (len(one["scales"]), one["table"]) for name, one in record["cases"].items()})


if __name__ == "__main__":
    main()
