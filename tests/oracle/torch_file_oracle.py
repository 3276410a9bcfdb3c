#!/usr/bin/env python3
"""Makes tests/engine/weights/fixtures/torch/: files as torch.save writes them, good and refused, and torch_file.json
with what is in the good ones.

Run by scripts/oracle.sh. Everything follows from the seed below.
"""
# python: tests/oracle/model_venv.sh
import json
import os
import zipfile
from collections import OrderedDict

import torch

HERE = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "engine", "weights", "fixtures",
                    "torch")


def good():
    generator = torch.Generator().manual_seed(7)
    base = torch.randn(5, 6, generator=generator)
    state = OrderedDict()
    state["whole"] = base
    state["rows"] = base[2:4]  # shares its storage
    state["column"] = base[:, :1][4:5]  # one element: strides say nothing
    state["half"] = torch.randn(7, generator=generator).half()
    state["brain"] = torch.randn(3, 2, 2, generator=generator).bfloat16()
    state["scalar"] = torch.tensor(2.5)
    state["empty"] = torch.zeros(0, 4)
    state["mask"] = torch.tensor([[True, False]])
    state["big"] = torch.arange(300, dtype=torch.float32)
    state["integers"] = torch.arange(3)
    # As a module's state_dict: versions beside the tensors.
    state._metadata = OrderedDict([("", {"version": 1}), ("half", {"version": 2})])
    return state


def values(state):
    weights = {name: tensor for name, tensor in state.items() if tensor.is_floating_point()}
    return {name: {"shape": list(tensor.shape), "values": tensor.float().flatten().tolist()}
            for name, tensor in weights.items()}


def main():
    os.makedirs(HERE, exist_ok=True)

    def save(name, value, **options):
        torch.save(value, os.path.join(HERE, name), **options)

    state = good()
    save("state.bin", state)
    save("plain_dict.bin", {"a": torch.ones(2), "b": torch.zeros(1, 2)})
    save("legacy.bin", {"a": torch.ones(2)}, _use_new_zipfile_serialization=False)
    save("protocol4.bin", {"a": torch.ones(2)}, pickle_protocol=4)
    save("transposed.bin", {"a": torch.randn(3, 2, generator=torch.Generator().manual_seed(1)).t()})
    save("parameter.bin", {"a": torch.nn.Parameter(torch.ones(2))})
    save("training.bin", {"epoch": 3, "model": {"a": torch.ones(2)}})
    save("list.bin", [torch.ones(2)])
    with zipfile.ZipFile(os.path.join(HERE, "state.bin")) as source, \
            zipfile.ZipFile(os.path.join(HERE, "compressed.bin"), "w", zipfile.ZIP_DEFLATED) as target:
        for entry in source.infolist():
            target.writestr(entry.filename, source.read(entry))
    with open(os.path.join(HERE, "state.json"), "w", encoding="utf-8") as out:
        json.dump({"torch": torch.__version__, "tensors": values(state)}, out)
        out.write("\n")


if __name__ == "__main__":
    main()
