#!/usr/bin/env python3
"""Twenty steps of TRL's KTOTrainer on tests/fixtures/tiny-llama, in fp32 on one rank and on two: rows, tokens, losses and
metrics of each step, and evaluations: tests/fixtures/preference/kto*. Run it by `make oracle`, after preference_oracle.py,
whose tokenizer and rows it takes.

A micro-batch has two rows. One rank does two of them in a step, or, in a case of two ranks, each rank one.
"""
# python: tests/oracle/trl_venv.sh
import json
import os
import random
import subprocess
import sys
import tempfile

import torch
import trl
from datasets import Dataset
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast
from trl import KTOConfig, KTOTrainer

from preference_oracle import CHATML, LR, MODEL, OUT, SPECIALS, STEPS, make_rows

NAMES = ["loss", "grad_norm", "kl", "rewards/chosen", "rewards/rejected", "rewards/margins", "logps/chosen", "logps/rejected"]
MAX_LENGTH = {"texts": 40, "chats": 256, "pairs": 40}


def make_tokenizer():
    made = PreTrainedTokenizerFast(tokenizer_file=os.path.join(OUT, "tokenizer.json"), eos_token=SPECIALS[0],
                                   pad_token=SPECIALS[0])
    made.chat_template = CHATML
    return made


def marked_rows():
    """Of each set the rows to train on and those to evaluate on."""
    draw = random.Random(3)
    sets = make_rows()
    marks = [draw.random() < 0.5 for _ in sets["texts"]]
    marks[2] = marks[3] = True  # a step of one rank without a bad answer
    marks[0] = marks[1] = True
    texts = [{"prompt": row["prompt"], "completion": row["chosen" if good else "rejected"], "label": good}
             for row, good in zip(sets["texts"], marks)]
    chats = [{"prompt": row["prompt"], "completion": row["chosen" if good else "rejected"], "label": good}
             for row, good in zip(sets["chats"], marks)]
    return {name: (rows[:12], rows[12:]) for name, rows in (("texts", texts), ("chats", chats), ("pairs", sets["texts"]))}


def run(case, folder):
    torch.set_num_threads(1)
    torch.manual_seed(0)
    tokenizer = make_tokenizer()
    train, held = marked_rows()[case["rows"]]
    args = KTOConfig(output_dir=folder, report_to="none", use_cpu=True, bf16=False, fp16=False, gradient_checkpointing=False,
                     per_device_train_batch_size=2, per_device_eval_batch_size=3,
                     gradient_accumulation_steps=2 // case["ranks"], max_steps=STEPS, learning_rate=LR,
                     lr_scheduler_type="constant", weight_decay=0.0, max_grad_norm=0.0, logging_steps=1,
                     eval_strategy="steps", eval_steps=10, save_strategy="no", train_sampling_strategy="sequential",
                     disable_tqdm=True, max_length=MAX_LENGTH[case["rows"]], dataloader_num_workers=0, optim="adamw_torch",
                     **case["options"])
    trainer = KTOTrainer(model=AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.float32),
                         ref_model=AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.float32), args=args,
                         train_dataset=Dataset.from_list(train[:case["trained"]]), eval_dataset=Dataset.from_list(held),
                         processing_class=tokenizer)
    tokens = [[row["prompt_ids"], row["completion_ids"], row.get("KL_completion_ids"), row["label"]]
              for row in trainer.train_dataset]
    trainer.train()
    steps, evals = [], []
    for line in trainer.state.log_history:
        if "loss" in line:
            steps.append({name: line[name] for name in NAMES if name in line})
        elif "eval_loss" in line:
            evals.append({"step": line["step"]} | {"eval_" + n: line["eval_" + n] for n in NAMES if "eval_" + n in line})
    assert len(steps) == STEPS and len(evals) == 2, (len(steps), len(evals))
    return case | {"max_length": MAX_LENGTH[case["rows"]], "steps": steps, "evals": evals, "tokens": tokens}


def run_on_ranks(case, folder):
    """The same under torchrun, whose rank 0 writes what it saw."""
    result = os.path.join(folder, "result.json")
    subprocess.run([sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={case['ranks']}",
                    os.path.abspath(__file__), json.dumps(case), result], check=True, stdout=subprocess.DEVNULL)
    with open(result) as file:
        return json.load(file)


def main():
    if len(sys.argv) == 3:  # one rank of a case
        with tempfile.TemporaryDirectory() as folder:
            made = run(json.loads(sys.argv[1]), folder)
        if int(os.environ["RANK"]) == 0:
            with open(sys.argv[2], "w") as file:
                json.dump(made, file)
        return
    for name, parts in marked_rows().items():
        for part, rows in zip(("train", "eval"), parts):
            with open(os.path.join(OUT, f"kto_{name}_{part}.jsonl"), "w") as file:
                file.writelines(json.dumps(row) + "\n" for row in rows)
    weights = {"desirable_weight": 1.5, "undesirable_weight": 0.7}
    plans = [("texts", 12, 1, {"beta": 0.2} | weights), ("texts", 11, 1, {"beta": 0.5}),
             ("texts", 12, 1, {"beta": 0.2, "loss_type": "apo_zero_unpaired"} | weights),
             ("texts", 12, 1, {"beta": 0.2, "precompute_ref_log_probs": True} | weights),
             ("chats", 12, 1, {"beta": 0.1}), ("pairs", 12, 1, {"beta": 0.1}), ("texts", 12, 2, {"beta": 0.2} | weights)]
    cases = []
    for rows, trained, ranks, options in plans:
        case = {"rows": rows, "trained": trained, "ranks": ranks, "options": options}
        with tempfile.TemporaryDirectory() as folder:
            cases.append((run if ranks == 1 else run_on_ranks)(case, folder))
        print(case, cases[-1]["steps"][0]["loss"], cases[-1]["steps"][-1]["loss"], flush=True)
    with open(os.path.join(OUT, "kto.json"), "w") as file:
        file.write('{"made_with": "trl %s", "learning_rate": %g,\n"cases": [\n%s\n]}\n' %
                   (trl.__version__, LR, ",\n".join(map(json.dumps, cases))))


if __name__ == "__main__":
    main()
