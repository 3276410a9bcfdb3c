#!/usr/bin/env python3
"""Ids and labels of rows without a list of messages as TRL's SFTTrainer makes them, and of cut ones:
tests/engine/data/fixtures/trl_rows_oracle.json.

Prompt and completion as texts and as turns, text, truncation_mode keep_start and keep_end. Run it by `make oracle`.
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
from chat_oracle import FIXTURES, TOKENS  # noqa: E402

MODEL = os.path.join(FIXTURES, "..", "..", "..", "fixtures", "tiny-llama")
CHATML = ("{%- for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{% endfor %}"
          "{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}")
LLAMA3 = ("{{- bos_token }}{% for m in messages %}{{ '<|start_header_id|>' + m.role + '<|end_header_id|>\\n\\n' + "
          "m.content | trim + '<|eot_id|>' }}{% endfor %}"
          "{%- if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif %}")
PAIRS = [("What is 2 + 2?", " It is 4."), ("The capital of Fra", "nce is Paris.\n"), ("Say\n\n", "\nGrüße, 世界! \U0001f600"),
         ("x = 1\nprint(", "x)"), ("  spaces  ", "  around  "), ("q", "it ends itself<END>")]
TEXTS = ["One text of many words, and 123 numbers.", "def f(x):\n    return x + 1\n", "世界 \U0001f600 ünïcode", "ends<END>"]
TALKS = [([("user", "What is 2 + 2?")], [("assistant", "It is 4.")]),
         ([("system", "Be short."), ("user", "Capital of France?")], [("assistant", "Paris")]),
         ([("user", "a"), ("assistant", "b"), ("user", "c\n\nd")], [("assistant", "e f"), ("user", "g"), ("assistant", "h")])]


def turns(pairs):
    return [{"role": role, "content": content} for role, content in pairs]


def prepared(tokenizer, rows, folder, **options):
    model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(MODEL))
    trainer = SFTTrainer(
        model=model, processing_class=tokenizer, train_dataset=Dataset.from_list(rows),
        args=SFTConfig(output_dir=folder, report_to="none", use_cpu=True, bf16=False, packing=False, eos_token=None,
                       per_device_train_batch_size=1, **{"max_length": None, **options}))
    made = []
    for row in trainer.train_dataset:
        batch = trainer.data_collator([row])
        made.append({"input_ids": batch["input_ids"][0].tolist(), "labels": batch["labels"][0].tolist()})
    assert len(made) == len(rows)
    return made


def main():
    cases = []
    with tempfile.TemporaryDirectory() as folder:
        for files, template in (("qwen2", CHATML), ("llama3", LLAMA3)):
            tokenizer = PreTrainedTokenizerFast(tokenizer_file=os.path.join(FIXTURES, files, "tokenizer.json"),
                                                **TOKENS[files], pad_token=TOKENS[files]["eos_token"])
            tokenizer.chat_template = template
            eos = TOKENS[files]["eos_token"]
            kinds = {
                "prompt": [{"prompt": p, "completion": c.replace("<END>", eos)} for p, c in PAIRS],
                "text": [{"text": text.replace("<END>", eos)} for text in TEXTS],
                "talk": [{"prompt": turns(p), "completion": turns(c)} for p, c in TALKS]}
            for kind, rows in kinds.items():
                for options in ({}, {"max_length": 9, "truncation_mode": "keep_end"}, {"completion_only_loss": False}):
                    if kind == "text" and "completion_only_loss" in options:
                        continue
                    cases.append({"tokenizer": files, "template": template, "kind": kind, "options": options, "rows": rows,
                                  "made": prepared(tokenizer, rows, folder, **options)})
    path = os.path.join(FIXTURES, "trl_rows_oracle.json")
    with open(path, "w", encoding="utf-8") as file:
        file.write('{"made_with":"trl %s",\n"cases":[\n%s\n]}\n' % (trl.__version__, ",\n".join(map(json.dumps, cases))))
    print(f"{len(cases)} cases -> {os.path.relpath(path)}")


if __name__ == "__main__":
    main()
