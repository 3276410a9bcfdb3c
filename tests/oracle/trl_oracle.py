#!/usr/bin/env python3
"""Ids and labels of drawn conversations as TRL's SFTTrainer makes them: tests/engine/data/fixtures/trl_oracle.json.

The trainer prepares the rows itself, with assistant_only_loss and templates that mark answers by {% generation %}; its
own collator makes the labels. The templates are those of chat_oracle.py. Run it by `make oracle`.
"""
# python: tests/oracle/trl_venv.sh
import json
import os
import sys
import tempfile

import trl
from datasets import Dataset
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedTokenizerFast
from trl import SFTConfig, SFTTrainer

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from chat_oracle import CASES, FIXTURES, SYSTEM, TOKENS  # noqa: E402
from text_generator import Lcg, hash_lists, make_text  # noqa: E402

MODEL = os.path.join(FIXTURES, "..", "..", "..", "fixtures", "tiny-llama")
CONVERSATIONS, SEED, FULL = 50, 77, 2


def ranges():
    with open(os.path.join(FIXTURES, "unicode14.txt"), encoding="ascii") as lines:
        return [(int(first, 16), int(count)) for first, count in (line.split() for line in lines)]


def drawn(known):
    """Conversations without the texts of special tokens, which would end turns."""
    draw = Lcg(SEED)

    def text(i):
        while "<|" in (made := make_text(SEED, i, known)) or not made.strip():
            i += 100_000
        return made
    rows, at = [], 0
    for _ in range(CONVERSATIONS):
        row = [("system", text(at))] if draw.below(3) == 0 else []
        for turn in range(1 + draw.below(4)):
            row += [("user", text(at + 2 * turn + 1)), ("assistant", text(at + 2 * turn + 2))]
        at += 20
        rows.append([{"role": role, "content": content} for role, content in row])
    return rows


def prepared(tokenizer, rows, folder):
    model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(MODEL))
    trainer = SFTTrainer(
        model=model, processing_class=tokenizer, train_dataset=Dataset.from_list([{"messages": row} for row in rows]),
        args=SFTConfig(output_dir=folder, assistant_only_loss=True, max_length=None, report_to="none", use_cpu=True,
                       bf16=False, packing=False, eos_token=None, per_device_train_batch_size=1))
    made = []
    for row in trainer.train_dataset:
        batch = trainer.data_collator([row])
        made.append((batch["input_ids"][0].tolist(), batch["labels"][0].tolist()))
    return made


def main():
    rows = drawn(ranges())
    entries = []
    with tempfile.TemporaryDirectory() as folder:
        for name, files, template in CASES:
            template = template.replace("{%- if system and", "{%- set system = " + json.dumps(SYSTEM.get(name, "")) +
                                        " %}{%- if system and", 1)
            tokenizer = PreTrainedTokenizerFast(tokenizer_file=os.path.join(FIXTURES, files, "tokenizer.json"),
                                                **TOKENS[files], pad_token=TOKENS[files]["eos_token"])
            tokenizer.chat_template = template
            # Mistral's has no system turn.
            used = [row[1:] if name == "mistral" and row[0]["role"] == "system" else row for row in rows]
            made = prepared(tokenizer, used, folder)
            assert all(any(label != -100 for label in labels) for _, labels in made), name
            entries.append({
                "template": name, "tokenizer": files, "source": template,
                "ids": [hash_lists([ids]) for ids, _ in made],
                "labels": [hash_lists([[label & 0xFFFFFFFF for label in labels]]) for _, labels in made],
                "full": [{"input_ids": ids, "labels": labels} for ids, labels in made[:FULL]]})
            print(f"  {name}: {sum(len(ids) for ids, _ in made)} tokens", flush=True)
    path = os.path.join(FIXTURES, "trl_oracle.json")
    with open(path, "w", encoding="utf-8") as file:
        file.write('{"made_with":"trl %s",\n"conversations":[\n%s\n],\n"templates":[\n%s\n]}\n' % (
            trl.__version__, ",\n".join(json.dumps(row) for row in rows), ",\n".join(map(json.dumps, entries))))
    print(f"{len(rows)} conversations, {len(entries)} templates -> {os.path.relpath(path)}")


if __name__ == "__main__":
    main()
