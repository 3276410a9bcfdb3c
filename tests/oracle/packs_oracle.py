#!/usr/bin/env python3
"""Which tokens TRL packs together: tests/engine/data/fixtures/packs_oracle.json. A case has the lengths of rows, the length of
a packed row, and the packs of `wrapped` and `bfd_split`, each a list of [row, first token, tokens]. Run it by `make oracle`.
"""
# python: tests/oracle/trl_venv.sh
import json
import os
import random

import pyarrow as pa
from trl.data_utils import _pack_bfd, _pack_wrapped

OUT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "engine", "data", "fixtures", "packs_oracle.json")
TOGETHER = 1000  # rows of a batch of datasets.Dataset.map


def parts(ids):
    """Ids row * 2^16 + position, in runs."""
    runs = []
    for one in ids:
        row, at = one >> 16, one & 0xFFFF
        if runs and runs[-1][0] == row and runs[-1][1] + runs[-1][2] == at:
            runs[-1][2] += 1
        else:
            runs.append([row, at, 1])
    return runs


def packs(lengths, capacity, pack):
    made = []
    for first in range(0, len(lengths), TOGETHER):
        ids = [[row << 16 | at for at in range(lengths[row])] for row in range(first, min(len(lengths), first + TOGETHER))]
        made += pack(pa.table({"input_ids": pa.array(ids, pa.list_(pa.int64()))}), capacity)["input_ids"].to_pylist()
    return [parts(ids) for ids in made]


def main():
    draw = random.Random(7)
    cases = []
    for rows, longest, capacity in ((1, 5, 8), (1, 40, 8), (12, 9, 8), (30, 40, 16), (7, 16, 16), (1003, 4, 8)):
        lengths = [draw.randint(1, longest) for _ in range(rows)]
        case = {"lengths": lengths, "capacity": capacity, "wrapped": packs(lengths, capacity, _pack_wrapped)}
        if rows <= TOGETHER:
            case["bfd_split"] = packs(lengths, capacity, lambda table, most: _pack_bfd(table, most, "split"))
        cases.append(case)
    with open(OUT, "w", encoding="utf-8") as file:
        file.write(json.dumps(cases, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
