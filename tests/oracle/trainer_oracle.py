#!/usr/bin/env python3
"""Drawn command lines of transformers' Trainer on tests/fixtures/tiny-llama, in fp32, on one rank and on two: which steps
are logged, evaluated and saved, and with which numbers: tests/fixtures/trainer.oracle.json. Run it by `make oracle`."""
# python: tests/oracle/model_venv.sh
import json
import os
import random
import subprocess
import sys
import tempfile

import torch
import transformers
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

from padded_rows import collate

FIXTURES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "fixtures")
ONE_RANK, TWO_RANKS, SEED = 36, 12, 7
torch.set_num_threads(1)  # the same sums on every machine


def draw_rows(draw, count):
    rows = []
    for _ in range(count):
        ids = [draw.randint(5, 120) for _ in range(draw.randint(6, 14))]
        asked = draw.randint(1, 4)
        rows.append({"input_ids": ids, "labels": [-100] * asked + ids[asked:]})
    return rows


def draw_schedule(draw):
    name = draw.choice(["linear", "cosine", "constant", "constant_with_warmup", "polynomial", "inverse_sqrt",
                        "cosine_with_restarts", "cosine_with_min_lr", "warmup_stable_decay", "cosine_warmup_with_min_lr"])
    kwargs = {"cosine_with_min_lr": [{"min_lr": 1e-4}, {"min_lr_rate": 0.1}], "warmup_stable_decay": [{"num_decay_steps": 3}],
              "cosine_with_restarts": [None, {"num_cycles": 3}], "polynomial": [None, {"power": 2.0, "lr_end": 1e-5}],
              "cosine_warmup_with_min_lr": [{"min_lr": 1e-4}, {"min_lr_rate": 0.1, "warmup_lr_rate": 0.2}]}.get(name, [None])
    chosen = draw.choice(kwargs)
    return {"lr_scheduler_type": name, **({"lr_scheduler_kwargs": chosen} if chosen else {})}


def draw_case(draw, world):
    """Rows of an evaluation fill the batches of all ranks: Trainer counts the rows twice that fill the last ones."""
    often = lambda share: draw.random() < share
    batch = draw.randint(1, 4)
    args = {"per_device_train_batch_size": batch, "gradient_accumulation_steps": draw.choice([1, 1, 2, 3, 4]),
            "num_train_epochs": draw.choice([1, 2, 3, 0.5, 1.7, 2.5, 1.01]), "learning_rate": draw.choice([1e-3, 5e-4, 2e-3]),
            "logging_strategy": draw.choice(["steps", "steps", "epoch", "no"]), "logging_steps": draw.choice([1, 2, 3, 7, 0.1, 0.33]),
            "save_strategy": draw.choice(["steps", "steps", "epoch", "no"]), "save_steps": draw.choice([1, 2, 3, 5, 0.3, 0.2]),
            **draw_schedule(draw)}
    if often(.3): args["max_steps"] = draw.randint(1, 25)
    if often(.6): args["warmup_steps"] = draw.choice([0.03, 0.1, 0.5, 0, 3, 9])
    if often(.5): args["weight_decay"] = draw.choice([0.1, 0.01])
    if often(.4): args["max_grad_norm"] = draw.choice([0.5, 0.0, 10.0])
    if often(.3): args.update(adam_beta1=0.8, adam_beta2=0.95, adam_epsilon=1e-6)
    if often(.3): args["optim"] = draw.choice(["adamw_torch_fused", "sgd", "adagrad", "rmsprop"])
    if often(.2): args["label_smoothing_factor"] = 0.1
    if often(.3): args["average_tokens_across_devices"] = False
    if often(.3): args["logging_first_step"] = True
    if often(.5): args["save_total_limit"] = draw.choice([2, 3])
    case = {"world": world, "rows": draw.randint(5, 60), "args": args}
    if often(.3):
        args["dataloader_drop_last"] = True
        case["rows"] = max(case["rows"], batch * world)
    elif often(.8):
        size = draw.choice([1, 2, 3, 4])
        case["eval_rows"] = size * world * draw.randint(1, 20 // size // world)
        args.update(per_device_eval_batch_size=size, eval_strategy=draw.choice(["steps", "steps", "epoch"]))
        if args["eval_strategy"] == "steps" and often(.8): args["eval_steps"] = draw.choice([1, 2, 3, 0.2, 0.5, 0.07])
        if often(.25): args["eval_delay"] = draw.choice([1, 2, 0.5, 3])
        if often(.25): args["eval_on_start"] = True
        if often(.5) and args["save_strategy"] != "no":
            args.update(load_best_model_at_end=True, metric_for_best_model=draw.choice(["loss", "eval_loss"]))
            args["greater_is_better"] = draw.choice([False, False, True])
            if args["save_strategy"] == args["eval_strategy"] == "steps":
                args["eval_steps"] = draw.randint(1, 3)
                args["save_steps"] = args["eval_steps"] * draw.randint(1, 2)
            else:
                args["save_strategy"] = args["eval_strategy"] = "epoch"
            if often(.3): args["save_strategy"] = "best"
    return case


def train(case, rows, eval_rows, folder):
    model = AutoModelForCausalLM.from_pretrained(os.path.join(FIXTURES, "tiny-llama"), dtype=torch.float32)
    args = TrainingArguments(output_dir=folder, report_to="none", use_cpu=True, disable_tqdm=True, remove_unused_columns=False,
                             train_sampling_strategy="sequential", **case["args"])
    trainer = Trainer(model=model, args=args, data_collator=collate, train_dataset=rows[:case["rows"]],
                      eval_dataset=eval_rows[:case["eval_rows"]] if "eval_rows" in case else None)
    trainer.train()
    log = trainer.state.log_history
    return {"steps": trainer.state.global_step,
            "logged": [[line[name] for name in ("step", "loss", "learning_rate", "grad_norm")] for line in log if "loss" in line],
            "evaluated": [[line["step"], line["eval_loss"]] for line in log if "eval_loss" in line],
            "saved": sorted(int(name.split("-")[1]) for name in os.listdir(folder) if name.startswith("checkpoint-"))}


def as_rank(path):
    """A rank of torchrun: the cases of two ranks, the results beside them."""
    with open(path, encoding="utf-8") as file:
        given = json.load(file)
    results = []
    for i, case in enumerate(given["cases"]):
        folder = f"{path}.{i}"
        os.makedirs(folder, exist_ok=True)
        results.append(train(case, given["rows"], given["eval_rows"], folder))
    if os.environ.get("RANK", "0") == "0":
        with open(path + ".results", "w", encoding="utf-8") as file:
            json.dump(results, file)


def main():
    draw = random.Random(SEED)
    given = {"rows": draw_rows(draw, 60), "eval_rows": draw_rows(draw, 20)}
    cases = []
    for world, count in ((1, ONE_RANK), (2, TWO_RANKS)):
        drawn = [draw_case(draw, world) for _ in range(count)]
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "cases.json")
            with open(path, "w", encoding="utf-8") as file:
                json.dump({**given, "cases": drawn}, file)
            launch = [sys.executable] if world == 1 else [sys.executable, "-m", "torch.distributed.run", f"--nproc_per_node={world}"]
            subprocess.run([*launch, __file__, "--rank", path], check=True, stdout=subprocess.DEVNULL)
            with open(path + ".results", encoding="utf-8") as file:
                cases += [{**case, **result} for case, result in zip(drawn, json.load(file))]
    with open(os.path.join(FIXTURES, "trainer.oracle.json"), "w", encoding="utf-8") as file:
        json.dump({"made_with": "transformers " + transformers.__version__, **given, "cases": cases}, file)
        file.write("\n")


if __name__ == "__main__":
    if len(sys.argv) > 2: as_rank(sys.argv[2])
    else: main()
