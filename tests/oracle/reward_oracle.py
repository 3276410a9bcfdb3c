#!/usr/bin/env python3
"""Twenty steps of TRL's RewardTrainer in fp32 on one rank, on tests/fixtures/tiny-llama with a score: rows, tokens, losses
and metrics of each step, and evaluations: tests/fixtures/preference/reward.json; and the model with that score:
tests/fixtures/preference/reward. Run it by `make oracle`, behind preference_oracle.py, whose tokenizer and rows it reads.

The tokenizer's pad token is its eos token, which ends every text: the score is read at the token before it.
"""
# python: tests/oracle/trl_venv.sh
import json
import os
import tempfile

import torch
import trl
from datasets import Dataset
from transformers import AutoModelForSequenceClassification, PreTrainedTokenizerFast
from trl import RewardConfig, RewardTrainer

HERE = os.path.dirname(os.path.abspath(__file__))
FIXTURES = os.path.join(HERE, "..", "fixtures")
OUT = os.path.join(FIXTURES, "preference")
MODEL = os.path.join(OUT, "reward")
STEPS, LR = 20, 5e-4
NAMES = ["loss", "grad_norm", "min_reward", "mean_reward", "max_reward", "accuracy", "margin"]

torch.set_num_threads(1)  # the same sums on every machine


def make_model(pad):
    torch.manual_seed(3)
    model = AutoModelForSequenceClassification.from_pretrained(os.path.join(FIXTURES, "tiny-llama"), num_labels=1,
                                                               dtype=torch.float32)
    torch.nn.init.normal_(model.score.weight, std=0.2)  # scores that differ
    model.config.pad_token_id = pad
    model.save_pretrained(MODEL)
    ids = torch.tensor([[5, 9, 17, 30, 2, 64]])
    with torch.no_grad():
        return ids[0].tolist(), model(ids).logits.item()


def run(tokenizer, name, options, max_length, folder):
    with open(os.path.join(OUT, name + ".jsonl")) as file:
        rows = [json.loads(line) for line in file]
    args = RewardConfig(output_dir=folder, report_to="none", use_cpu=True, bf16=False, fp16=False,
                        gradient_checkpointing=False, per_device_train_batch_size=2, per_device_eval_batch_size=3,
                        gradient_accumulation_steps=2, max_steps=STEPS, learning_rate=LR, lr_scheduler_type="constant",
                        weight_decay=0.0, max_grad_norm=0.0, logging_steps=1, eval_strategy="steps", eval_steps=10,
                        save_strategy="no", train_sampling_strategy="sequential", disable_tqdm=True, max_length=max_length,
                        dataloader_num_workers=0, optim="adamw_torch", **options)
    model = AutoModelForSequenceClassification.from_pretrained(MODEL, num_labels=1, dtype=torch.float32)
    trainer = RewardTrainer(model=model, args=args, train_dataset=Dataset.from_list(rows[:12]),
                            eval_dataset=Dataset.from_list(rows[12:]), processing_class=tokenizer)
    trainer.train()
    steps, evals = [], []
    for line in trainer.state.log_history:
        if "loss" in line:
            steps.append({n: line[n] for n in NAMES if n in line})
        elif "eval_loss" in line:
            evals.append({"step": line["step"]} | {"eval_" + n: line["eval_" + n] for n in NAMES if "eval_" + n in line})
    assert len(steps) == STEPS and len(evals) == 2, (len(steps), len(evals))
    tokens = [{k: row[k] for k in ("chosen_ids", "rejected_ids")} for row in trainer.train_dataset]
    return {"steps": steps, "evals": evals, "tokens": tokens, "evaluated": len(trainer.eval_dataset)}


def main():
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=os.path.join(OUT, "tokenizer.json"), eos_token="<|endoftext|>",
                                        pad_token="<|endoftext|>")
    with open(os.path.join(OUT, "tokenizer_config.json")) as file:
        tokenizer.chat_template = json.load(file)["chat_template"]
    ids, score = make_model(tokenizer.pad_token_id)
    with open(os.path.join(OUT, "texts.jsonl")) as file:
        rows = [json.loads(line) for line in file]
    with open(os.path.join(OUT, "reward_margins.jsonl"), "w") as file:
        file.writelines(json.dumps(row | {"margin": round(0.25 * (i % 5), 2)}) + "\n" for i, row in enumerate(rows))
    plans = [("texts", {}, 256), ("texts", {}, 48), ("implicit", {"center_rewards_coefficient": 0.05}, 256),
             ("reward_margins", {}, 256), ("chats", {}, 256), ("whole", {}, 256)]
    cases = []
    with tempfile.TemporaryDirectory() as folder:
        for name, options, max_length in plans:
            made = run(tokenizer, name, options, max_length, folder)
            cases.append({"rows": name, "objective": "reward", "options": options, "max_length": max_length} | made)
            print(name, options, made["steps"][0]["loss"], made["steps"][-1]["loss"], flush=True)
    with open(os.path.join(OUT, "reward.json"), "w") as file:
        file.write('{"made_with": "trl %s", "learning_rate": %g, "score": %s,\n"cases": [\n%s\n]}\n' %
                   (trl.__version__, LR, json.dumps({"ids": ids, "score": score}), ",\n".join(map(json.dumps, cases))))


if __name__ == "__main__":
    main()
