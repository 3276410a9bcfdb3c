#!/usr/bin/env python3
"""Twenty steps of TRL's DPOTrainer and ORPOTrainer on tests/fixtures/tiny-llama, in fp32 on one rank: rows, tokens, losses
and metrics of each step, and evaluations: tests/fixtures/preference. Run it by `make oracle`.

A step has two micro-batches of two pairs, so that one rank with two of them and two ranks with one each are held to the
same numbers.
"""
# python: tests/oracle/trl_venv.sh
import json
import os
import random
import sys
import tempfile

import torch
import trl
from datasets import Dataset
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast
from trl import DPOConfig, DPOTrainer
from trl.experimental.orpo import ORPOConfig, ORPOTrainer

HERE = os.path.dirname(os.path.abspath(__file__))
FIXTURES = os.path.join(HERE, "..", "fixtures")
OUT = os.path.join(FIXTURES, "preference")
MODEL = os.path.join(FIXTURES, "tiny-llama")  # 128 entries
SPECIALS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
CHATML = ("{%- for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{% endfor %}"
          "{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}")
STEPS, LR = 20, 5e-4
MAX_LENGTH = {"texts": 48, "implicit": 48, "chats": 256, "whole": 256}  # cuts a text, and no chat


def make_tokenizer():
    """Bytes and a few merges. What the rows use comes first: the model has 128 entries."""
    letters = [chr(c) for c in range(33, 127)] + ["Ġ", "Ċ"]
    merges = [("t", "h"), ("th", "e"), ("i", "n"), ("Ġ", "a"), (".", "Ġa")]
    vocab = {letter: i for i, letter in enumerate(letters)}
    for left, right in merges:
        vocab[left + right] = len(vocab)
    for name in SPECIALS + sorted(pre_tokenizers.ByteLevel.alphabet()):
        vocab.setdefault(name, len(vocab))
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(name, special=True) for name in SPECIALS])
    assert max(tokenizer.token_to_id(name) for name in SPECIALS) < 128
    tokenizer.save(os.path.join(OUT, "tokenizer.json"))
    with open(os.path.join(OUT, "tokenizer_config.json"), "w") as file:
        json.dump({"eos_token": SPECIALS[0], "pad_token": SPECIALS[0], "chat_template": CHATML,
                   "tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": 512}, file, indent=1)
        file.write("\n")
    made = PreTrainedTokenizerFast(tokenizer_file=os.path.join(OUT, "tokenizer.json"), eos_token=SPECIALS[0],
                                   pad_token=SPECIALS[0])
    made.chat_template = CHATML
    return made


torch.set_num_threads(1)  # the same sums on every machine


def turns(*pairs):
    return [{"role": role, "content": content} for role, content in pairs]


def make_rows():
    draw = random.Random(7)

    def words(low, high):
        return " ".join("".join(draw.choice("abcdehinost") for _ in range(draw.randint(1, 5)))
                        for _ in range(draw.randint(low, high)))

    prompts = [words(2, 5) + "?" for _ in range(16)]
    good, bad = [" " + words(1, 6) for _ in prompts], [" " + words(1, 6) for _ in prompts]
    good[3] += SPECIALS[0]  # it ends itself
    prompts[5], good[5], bad[5] = "end.", " a begins across the border", " also here"
    bad[7] = " " + words(14, 16)  # is cut
    texts = [{"prompt": p, "chosen": g, "rejected": b} for p, g, b in zip(prompts, good, bad)]
    implicit = [{"chosen": p + g, "rejected": p + b} for p, g, b in zip(prompts, good, bad)]
    chats = []
    for i, (p, g, b) in enumerate(zip(prompts, good, bad)):
        asked = turns(("system", "Be short."), ("user", p)) if i % 3 == 0 else turns(("user", p))
        asked += turns(("assistant", "no"), ("user", "why?")) if i % 4 == 0 else []
        chats.append({"prompt": asked, "chosen": turns(("assistant", g)), "rejected": turns(("assistant", b))})
    whole = [{"chosen": row["prompt"] + row["chosen"], "rejected": row["prompt"] + row["rejected"]} for row in chats]
    return {"texts": texts, "implicit": implicit, "chats": chats, "whole": whole}


NAMES = ["loss", "grad_norm", "rewards/chosen", "rewards/rejected", "rewards/accuracies", "rewards/margins", "logps/chosen",
         "logps/rejected", "nll_loss", "log_odds_ratio", "log_odds_chosen"]


def run(tokenizer, rows, kind, options, max_length, folder):
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.float32)
    dpo = kind == "dpo"
    config = DPOConfig if dpo else ORPOConfig
    args = config(output_dir=folder, report_to="none", use_cpu=True, bf16=False, fp16=False, gradient_checkpointing=False,
                  per_device_train_batch_size=2, per_device_eval_batch_size=3, gradient_accumulation_steps=2, max_steps=STEPS,
                  learning_rate=LR, lr_scheduler_type="constant", weight_decay=0.0, max_grad_norm=0.0, logging_steps=1,
                  eval_strategy="steps", eval_steps=10, save_strategy="no", train_sampling_strategy="sequential",
                  disable_tqdm=True, max_length=max_length, dataloader_num_workers=0, optim="adamw_torch", **options)
    train, held = Dataset.from_list(rows[:12]), Dataset.from_list(rows[12:])
    more = {"ref_model": AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.float32)} if dpo else {}
    trainer = (DPOTrainer if dpo else ORPOTrainer)(model=model, args=args, train_dataset=train, eval_dataset=held,
                                                   processing_class=tokenizer, **more)
    trainer.train()
    steps, evals = [], []
    for line in trainer.state.log_history:
        if "loss" in line:
            steps.append({name: line[name] for name in NAMES if name in line})
        elif "eval_loss" in line:
            evals.append({"step": line["step"]} | {"eval_" + n: line["eval_" + n] for n in NAMES if "eval_" + n in line})
    assert len(steps) == STEPS and len(evals) == 2, (len(steps), len(evals))
    tokens = None
    if dpo:
        tokens = [{k: row[k] for k in ("prompt_ids", "chosen_ids", "rejected_ids")} for row in trainer.train_dataset]
    return {"steps": steps, "evals": evals, "tokens": tokens}


def main():
    os.makedirs(OUT, exist_ok=True)
    tokenizer = make_tokenizer()
    sets = make_rows()
    for name, rows in sets.items():
        with open(os.path.join(OUT, name + ".jsonl"), "w") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)
    losses = ["sigmoid", "hinge", "ipo", "robust", "exo_pair", "nca_pair", "bco_pair", "sppo_hard", "apo_zero", "apo_down",
              "sigmoid_norm"]
    plans = [("texts", "dpo", {"loss_type": [loss], "beta": 0.2} |
              ({"label_smoothing": 0.1} if loss in ("robust", "exo_pair") else {})) for loss in losses]
    plans += [("texts", "dpo", {"loss_type": ["sigmoid", "sft"], "loss_weights": [1.0, 0.5], "beta": 0.2})]
    plans += [(name, "dpo", {"beta": 0.1}) for name in ("implicit", "chats", "whole")]
    plans += [(name, "orpo", {"beta": 0.3}) for name in ("texts", "chats")]
    if len(sys.argv) > 1:
        plans = plans[:int(sys.argv[1])]
    cases = []
    with tempfile.TemporaryDirectory() as folder:
        for name, kind, options in plans:
            made = run(tokenizer, sets[name], kind, options, MAX_LENGTH[name], folder)
            cases.append({"rows": name, "objective": kind, "options": options, "max_length": MAX_LENGTH[name]} | made)
            print(name, kind, options, made["steps"][0]["loss"], made["steps"][-1]["loss"], flush=True)
    with open(os.path.join(OUT, "steps.json"), "w") as file:
        file.write('{"made_with": "trl %s", "learning_rate": %g,\n"cases": [\n%s\n]}\n' %
                   (trl.__version__, LR, ",\n".join(map(json.dumps, cases))))


if __name__ == "__main__":
    main()
