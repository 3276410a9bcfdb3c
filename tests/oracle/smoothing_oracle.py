#!/usr/bin/env python3
"""Twenty steps of transformers' Trainer with label_smoothing_factor on tests/fixtures/tiny-llama, in fp32, and the
loss of the first two rows after them: tests/fixtures/smoothing.oracle.json. Run it by `make oracle`."""
# python: tests/oracle/model_venv.sh
import json
import os
import random
import tempfile

import torch
import transformers
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

from padded_rows import collate

FIXTURES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "fixtures")
STEPS, LR = 20, 5e-4
torch.set_num_threads(1)  # the same sums on every machine


def main():
    draw = random.Random(5)
    rows = []
    for _ in range(8):
        ids = [draw.randrange(128) for _ in range(draw.randint(8, 20))]
        asked = draw.randint(1, 5)
        rows.append({"input_ids": ids, "labels": [-100] * asked + ids[asked:]})
    cases = []
    for factor in (0.1, 0.6):
        model = AutoModelForCausalLM.from_pretrained(os.path.join(FIXTURES, "tiny-llama"), dtype=torch.float32)
        with tempfile.TemporaryDirectory() as folder:
            trainer = Trainer(model=model, train_dataset=rows, eval_dataset=rows[:2], data_collator=collate, args=TrainingArguments(
                output_dir=folder, report_to="none", use_cpu=True, per_device_train_batch_size=2, per_device_eval_batch_size=2,
                max_steps=STEPS, learning_rate=LR, lr_scheduler_type="constant", weight_decay=0.0, max_grad_norm=0.0,
                logging_steps=1, save_strategy="no", train_sampling_strategy="sequential", label_smoothing_factor=factor,
                eval_strategy="steps", eval_steps=STEPS, disable_tqdm=True))
            trainer.train()
        log = trainer.state.log_history
        cases.append({"factor": factor, "losses": [line["loss"] for line in log if "loss" in line],
                      "first_rows_loss": next(line["eval_loss"] for line in log if "eval_loss" in line)})
    with open(os.path.join(FIXTURES, "smoothing.oracle.json"), "w", encoding="utf-8") as file:
        json.dump({"made_with": "transformers " + transformers.__version__, "learning_rate": LR, "rows": rows, "cases": cases}, file)
        file.write("\n")


if __name__ == "__main__":
    main()
