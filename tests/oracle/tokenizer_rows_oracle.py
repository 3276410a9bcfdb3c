#!/usr/bin/env python3
"""What Stanford's alpaca recipe makes of rows, with Hugging Face tokenizers: tests/engine/data/fixtures/alpaca_oracle.json.

Per row: prompt + output + eos in one text, truncated; the labels of as many tokens as the prompt alone has are -100.
Rows: alpaca_rows.json beside it (ours) with the small tokenizers, and the corpus sample with the real vocabularies.
Run it by `make oracle`; the small tokenizers come from tokenizer_oracle.py, which runs before it (by name).
"""
# requires: tokenizers==0.23.3 tiktoken==0.14.0
import json
import os
import sys

from tokenizers import Tokenizer

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from text_generator import hash_lists  # noqa: E402
from tokenizer_oracle import FIXTURES, SHARED, corpus_gpt2, corpus_qwen  # noqa: E402

BLOCK = 50


def prompt(row):
    if row.get("input", "") != "":
        return ("Below is an instruction that describes a task, paired with an input that provides further context. "
                "Write a response that appropriately completes the request.\n\n"
                f"### Instruction:\n{row['instruction']}\n\n### Input:\n{row['input']}\n\n### Response:")
    return ("Below is an instruction that describes a task. "
            "Write a response that appropriately completes the request.\n\n"
            f"### Instruction:\n{row['instruction']}\n\n### Response:")


def preprocess(row, encode, eos, max_length):
    """encode(text): all ids, with what the post-processor adds (here only in front)."""
    source = prompt(row)
    ids = encode(source + row["output"] + eos)[:max_length]
    source_length = len(encode(source)[:max_length])
    return ids, [-100] * min(source_length, len(ids)) + ids[source_length:]


def measure(rows, encode, eos, max_length):
    made = [preprocess(row, encode, eos, max_length) for row in rows]
    lists = [ids + [label & 0xFFFFFFFFFFFFFFFF for label in labels] for ids, labels in made]
    return {"max_seq_length": max_length, "eos": eos,
            "tokens": sum(len(ids) for ids, _ in made),
            "targets": sum(label != -100 for _, labels in made for label in labels[1:]),
            "without_target": sum(all(label == -100 for label in labels) for _, labels in made),
            "blocks": [hash_lists(lists[i:i + BLOCK]) for i in range(0, len(lists), BLOCK)]}, made


def main():
    with open(os.path.join(FIXTURES, "alpaca_rows.json"), encoding="utf-8") as file:
        rows = json.load(file)
    entries = []
    for name, eos in (("gpt2", "<|endoftext|>"), ("qwen2", "<|im_end|>"), ("llama3", "<|end_of_text|>")):
        tokenizer = Tokenizer.from_file(os.path.join(FIXTURES, name, "tokenizer.json"))
        for max_length in (2048, 100):
            entry, made = measure(rows, lambda text: tokenizer.encode(text).ids, eos, max_length)
            cases = [{"input_ids": ids, "labels": labels} for ids, labels in made] if max_length == 100 else []
            entries.append({"name": name} | entry | {"cases": cases[:3]})
    path = os.path.join(FIXTURES, "alpaca_oracle.json")
    sample = os.path.join(SHARED, "corpus", "alpaca", "alpaca_sample.json")
    if os.path.exists(sample):
        with open(sample, encoding="utf-8") as file:
            rows = json.load(file)
        for name, make in (("corpus gpt2", corpus_gpt2), ("corpus qwen", corpus_qwen)):
            entries.append({"name": name} | measure(rows, make()[0], "<|endoftext|>", 256)[0])
    else:
        print(f"  kept the corpus entries: no {sample}")
        with open(path, encoding="utf-8") as file:
            entries += [entry for entry in json.load(file)["entries"] if entry["name"].startswith("corpus")]
    for entry in entries:
        print(f"  {entry['name']} {entry['max_seq_length']}: {entry['tokens']} tokens, {entry['targets']} targets")
    with open(path, "w", encoding="utf-8") as out:
        out.write('{"block":%d,"entries":[\n%s\n]}\n' % (
            BLOCK, ",\n".join(json.dumps(entry, separators=(",", ":")) for entry in entries)))


if __name__ == "__main__":
    main()
