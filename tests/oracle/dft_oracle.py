#!/usr/bin/env python3
"""Twenty steps of TRL's SFTTrainer with loss_type dft on tests/fixtures/tiny-llama, in fp32, and the loss of the first
two rows after them: tests/fixtures/dft.oracle.json. The rows are those of smoothing_oracle.py. Run it by `make
oracle`."""
# python: tests/oracle/trl_venv.sh
import json
import os
import random
import tempfile

import torch
import trl
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import SFTConfig, SFTTrainer

from padded_rows import collate

FIXTURES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "fixtures")
STEPS, LR = 20, 5e-3
torch.set_num_threads(1)  # the same sums on every machine


def main():
    draw = random.Random(5)
    rows = []
    for _ in range(8):
        ids = [draw.randrange(128) for _ in range(draw.randint(8, 20))]
        asked = draw.randint(1, 5)
        rows.append({"input_ids": ids, "labels": [-100] * asked + ids[asked:]})
    directory = os.path.join(FIXTURES, "tiny-llama")
    model = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32)
    with tempfile.TemporaryDirectory() as folder:
        trainer = SFTTrainer(
            model=model, train_dataset=Dataset.from_list(rows), eval_dataset=Dataset.from_list(rows[:2]),
            data_collator=collate, processing_class=AutoTokenizer.from_pretrained(os.path.join(FIXTURES, "tiny-qwen2")),
            args=SFTConfig(
                output_dir=folder, report_to="none", use_cpu=True, bf16=False, per_device_train_batch_size=2,
                per_device_eval_batch_size=2, max_steps=STEPS, learning_rate=LR, lr_scheduler_type="constant",
                weight_decay=0.0, max_grad_norm=0.0, logging_steps=1, save_strategy="no", loss_type="dft",
                train_sampling_strategy="sequential", eval_strategy="steps", eval_steps=STEPS, disable_tqdm=True,
                gradient_checkpointing=False, remove_unused_columns=False,
                dataset_kwargs={"skip_prepare_dataset": True}))
        trainer.train()
    log = trainer.state.log_history
    with open(os.path.join(FIXTURES, "dft.oracle.json"), "w", encoding="utf-8") as file:
        json.dump({"made_with": "TRL " + trl.__version__, "learning_rate": LR, "rows": rows,
                   "losses": [line["loss"] for line in log if "loss" in line],
                   "first_rows_loss": next(line["eval_loss"] for line in log if "eval_loss" in line)}, file)
        file.write("\n")


if __name__ == "__main__":
    main()
