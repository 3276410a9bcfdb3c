#!/usr/bin/env python3
"""Conversations as transformers renders and tokenizes them: tests/engine/data/fixtures/chat_oracle.json.

apply_chat_template with templates that mark the assistant's turns by {% generation %}: ids, and labels by the mask.
The templates are written here, to the same output as the published ones; the rows are ours.
Run it by `make oracle`; the small tokenizers come from tokenizer_oracle.py.
"""
# python: tests/oracle/model_venv.sh
import json
import os

from transformers import PreTrainedTokenizerFast

FIXTURES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "engine", "data", "fixtures")

CHATML = """{%- if system and messages[0].role != 'system' %}{{ '<|im_start|>system\\n' + system + '<|im_end|>\\n' }}{% endif %}
{%- for m in messages %}{{ '<|im_start|>' + m.role + '\\n' }}
{%- if m.role == 'assistant' %}{% generation %}{{ m.content + '<|im_end|>' }}{% endgeneration %}
{%- else %}{{ m.content + '<|im_end|>' }}{% endif %}{{ '\\n' }}{% endfor %}"""
LLAMA3 = """{{- bos_token }}{% for m in messages %}{{ '<|start_header_id|>' + m.role + '<|end_header_id|>\\n\\n' }}
{%- if m.role == 'assistant' %}{% generation %}{{ m.content | trim + '<|eot_id|>' }}{% endgeneration %}
{%- else %}{{ m.content | trim + '<|eot_id|>' }}{% endif %}{% endfor %}"""
LLAMA2 = """{%- set ns = namespace(sys='') %}{% for m in messages %}
{%- if m.role == 'system' %}{% set ns.sys = '<<SYS>>\\n' + m.content + '\\n<</SYS>>\\n\\n' %}
{%- elif m.role == 'user' %}{{ bos_token + '[INST] ' + (ns.sys + m.content).strip() + ' [/INST]' }}{% set ns.sys = '' %}
{%- else %}{% generation %}{{ ' ' + m.content.strip() + ' ' + eos_token }}{% endgeneration %}{% endif %}{% endfor %}"""
MISTRAL = """{{- bos_token }}{% for m in messages %}{% if m.role == 'user' %}{{ '[INST] ' + m.content + ' [/INST]' }}
{%- else %}{% generation %}{{ m.content + eos_token }}{% endgeneration %}{% endif %}{% endfor %}"""

ROWS = [
    [("user", "What is 2 + 2?"), ("assistant", "It is 4.")],
    [("system", "You answer in one word."), ("user", "Capital of France?"), ("assistant", "Paris"),
     ("user", "And of Japan?\nTell me."), ("assistant", "Tokyo.\n\nIt has many people.")],
    [("user", "  spaces around  "), ("assistant", "Grüße, 世界! \U0001f600")],
    [("user", "Write <b>code</b>:\n```\nx = 1\n```"), ("assistant", "def f(x):\n    return x + 1"),
     ("user", "Thanks"), ("assistant", "You're welcome")],
]
SYSTEM = {"qwen": "You are a helpful assistant.",
          "qwen2.5": "You are Qwen, created by Alibaba Cloud. You are a helpful assistant."}
CASES = [("chatml", "qwen2", CHATML), ("qwen", "qwen2", CHATML), ("qwen2.5", "qwen2", CHATML),
         ("llama3", "llama3", LLAMA3), ("llama2", "llama3", LLAMA2), ("mistral", "llama3", MISTRAL)]
TOKENS = {"qwen2": {"eos_token": "<|im_end|>"},
          "llama3": {"bos_token": "<|begin_of_text|>", "eos_token": "<|end_of_text|>"}}


def main():
    cases = []
    for name, files, template in CASES:
        tokenizer = PreTrainedTokenizerFast(
            tokenizer_file=os.path.join(FIXTURES, files, "tokenizer.json"), **TOKENS[files])
        for row in ROWS:
            if name == "mistral" and row[0][0] == "system":
                continue
            messages = [{"role": role, "content": content} for role, content in row]
            made = tokenizer.apply_chat_template(messages, chat_template=template, return_dict=True,
                                                 return_assistant_tokens_mask=True, system=SYSTEM.get(name, ""))
            ids, mask = made["input_ids"], made["assistant_masks"]
            assert sum(mask) > 0, name
            cases.append({"template": name, "tokenizer": files, "messages": messages, "input_ids": ids,
                          "labels": [token if learned else -100 for token, learned in zip(ids, mask)]})
    path = os.path.join(FIXTURES, "chat_oracle.json")
    with open(path, "w", encoding="utf-8") as file:
        file.write("[\n" + ",\n".join(json.dumps(case) for case in cases) + "\n]\n")
    print(f"{len(cases)} conversations -> {os.path.relpath(path)}")


if __name__ == "__main__":
    main()
