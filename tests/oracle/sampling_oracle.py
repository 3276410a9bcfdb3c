#!/usr/bin/env python3
"""The probabilities that transformers' own processors leave of drawn logits: tests/fixtures/sampling.oracle.json. Run it by
`make oracle`."""
# python: tests/oracle/model_venv.sh
import json
import os
import random

import torch
import transformers
from transformers import GenerationConfig, GenerationMixin, LlamaConfig, LlamaForCausalLM

FIXTURES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "fixtures")
VOCABULARY = 40


def case(draw):
    settings = {}
    for name, values in (("temperature", (0.3, 0.7, 1.0, 1.8)), ("top_k", (1, 3, 20, 50)), ("top_p", (0.1, 0.5, 0.8, 0.95, 1.0)),
                         ("min_p", (0.02, 0.2)), ("repetition_penalty", (0.8, 1.05, 1.6))):
        if draw.random() < 0.6:
            settings[name] = draw.choice(values)
    logits = [draw.gauss(0, 3) for _ in range(VOCABULARY)]
    for _ in range(8 if settings.get("top_p", 1) == 1 else 0):  # equal scores; which of them top-p keeps is torch's sort's choice
        logits[draw.randrange(VOCABULARY)] = logits[draw.randrange(VOCABULARY)]
    seen = [draw.randrange(VOCABULARY) for _ in range(draw.randrange(1, 12))]
    return settings, logits, seen


def left(model, settings, logits, seen):
    config = GenerationConfig(do_sample=True, **{"top_k": 0, **settings})
    processors = GenerationMixin._get_logits_processor(model, config, device="cpu")
    scores = processors(torch.tensor([seen]), torch.tensor([logits], dtype=torch.float32).clone())
    return torch.softmax(scores.double(), -1)[0].tolist()


def main():
    draw = random.Random(7)
    model = LlamaForCausalLM(LlamaConfig(vocab_size=VOCABULARY, hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=1))
    cases = []
    for _ in range(60):
        settings, logits, seen = case(draw)
        logits = torch.tensor(logits, dtype=torch.float32).tolist()
        cases.append({"settings": settings, "logits": logits, "seen": seen, "probabilities": left(model, settings, logits, seen)})
    with open(os.path.join(FIXTURES, "sampling.oracle.json"), "w", encoding="utf-8") as file:
        json.dump({"transformers": transformers.__version__, "cases": cases}, file)
        file.write("\n")


if __name__ == "__main__":
    main()
