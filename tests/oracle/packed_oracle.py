#!/usr/bin/env python3
"""Packed weights, and the BF16 tensors that transformers makes of them: tests/engine/weights/fixtures/packed.

blocks.safetensors    codes, by the safetensors library; scales.safetensors: their scales, in a file of their own.
expected.safetensors  the tensors that transformers unpacks. config.json has the size of a block.
model.safetensors.index.json names the first two.
"""
# python: tests/oracle/model_venv.sh
import json
import os

import torch
from safetensors.torch import save_file
from transformers.integrations.finegrained_fp8 import Fp8Dequantize
from transformers.integrations.mxfp4 import convert_moe_packed_tensors

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "engine", "weights", "fixtures", "packed")


def main():
    torch.manual_seed(7)
    codes, scales, expected = {}, {}, {}

    def mxfp4(name, experts, rows, groups, exponents):
        blocks = torch.randint(0, 256, (experts, rows, groups, 16), dtype=torch.uint8)
        powers = exponents[torch.arange(experts * rows * groups) % len(exponents)].to(torch.uint8)
        powers = powers.reshape(experts, rows, groups)
        codes[name + "_blocks"], scales[name + "_scales"] = blocks, powers
        expected[name] = convert_moe_packed_tensors(blocks, powers, dtype=torch.bfloat16)

    usual = torch.arange(118, 126)
    mxfp4("model.layers.0.mlp.experts.gate_up_proj", 3, 10, 2, usual)
    mxfp4("model.layers.0.mlp.experts.down_proj", 3, 6, 1, usual)
    mxfp4("every.scale", 1, 255, 1, torch.arange(255))

    def fp8(name, shape, factors):
        numbers = torch.arange(torch.Size(shape).numel()) * 37 % 256
        numbers[(numbers & 127) == 127] = 5  # no NaN
        codes[name] = numbers.to(torch.uint8).reshape(shape).view(torch.float8_e4m3fn)
        scales[name + "_scale_inv"] = factors
        expected[name] = Fp8Dequantize(None)._dequantize_one(codes[name], factors, torch.bfloat16)

    fp8("blocks.weight", (32, 48), torch.rand(2, 3) * 0.01 + 0.001)
    fp8("brain.weight", (32, 48), (torch.rand(2, 3) * 0.01 + 0.001).to(torch.bfloat16))
    fp8("one.weight", (5, 7), torch.tensor(0.0123, dtype=torch.bfloat16))
    fp8("other.grid.weight", (24, 20), torch.rand(3, 5) + 0.5)
    fp8("powers.weight", (16, 16), torch.tensor([[120]], dtype=torch.uint8))
    scales["one.activation_scale"] = torch.tensor(0.5)
    # Rows that blocks do not divide: transformers refuses them, DeepSeek's own files have them (576 rows of 128).
    uneven = torch.rand(2, 3)
    codes["uneven.weight"] = torch.ones(24, 40, dtype=torch.float8_e4m3fn)
    scales["uneven.weight_scale_inv"] = uneven
    expected["uneven.weight"] = torch.stack(
        [torch.stack([uneven[row // 16, column // 16] for column in range(40)]) for row in range(24)]).bfloat16()
    plain = {"model.norm.weight": torch.rand(4, dtype=torch.bfloat16)}
    expected |= plain

    os.makedirs(FOLDER, exist_ok=True)
    for name, tensors in (("blocks", codes | plain), ("scales", scales), ("expected", expected)):
        save_file({key: value.contiguous() for key, value in tensors.items()},
                  os.path.join(FOLDER, name + ".safetensors"))
        os.chmod(os.path.join(FOLDER, name + ".safetensors"), 0o644)
    index = {key: "blocks.safetensors" for key in codes | plain} | {key: "scales.safetensors" for key in scales}
    with open(os.path.join(FOLDER, "model.safetensors.index.json"), "w", encoding="utf-8") as out:
        json.dump({"metadata": {}, "weight_map": index}, out, indent=1)
        out.write("\n")
    with open(os.path.join(FOLDER, "config.json"), "w", encoding="utf-8") as out:
        json.dump({"quantization_config": {"quant_method": "fp8", "weight_block_size": [16, 16]}}, out)
        out.write("\n")
    print(f"packed: {len(expected)} tensors")


if __name__ == "__main__":
    main()
