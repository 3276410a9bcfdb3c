#!/usr/bin/env python3
"""Token ids by Hugging Face tokenizers and tiktoken, as hashes: tests/engine/data/fixtures/.

Writes unicode14.txt (assigned code points), three small trained tokenizers (gpt2, qwen2, llama3) and
tokenizer_oracle.json. The corpus beside the checkout (../shared/corpus, or DSJ_SHARED_DIR) gives the entries of
real vocabularies; without it the committed ones are kept. Run it by `make oracle`.
"""
# requires: tokenizers==0.23.3 tiktoken==0.14.0
import base64
import json
import os
import sys
import unicodedata

import tiktoken
import tokenizers
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from text_generator import hash_lists, make_text, sweep_text  # noqa: E402

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
FIXTURES = os.path.join(ROOT, "tests", "engine", "data", "fixtures")
SHARED = os.environ.get("DSJ_SHARED_DIR", os.path.join(ROOT, "..", "shared"))
TEXTS, BLOCK, SEED, TRAIN_SEED, FULL_CASES, SWEEP_BLOCK = 10000, 50, 3, 11, 12, 2048
QWEN2 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
         r"|\s+(?!\S)|\s+")
LLAMA3 = QWEN2.replace(r"|\p{N}|", r"|\p{N}{1,3}|")


def assigned_ranges():
    path = os.path.join(FIXTURES, "unicode14.txt")
    if unicodedata.unidata_version != "14.0.0":
        print(f"  kept unicode14.txt: this Python knows Unicode {unicodedata.unidata_version}, 3.11 knows 14")
    else:
        ranges = []
        for code in range(0x110000):
            if unicodedata.category(chr(code)) in ("Cn", "Cs", "Co"):
                continue
            if ranges and sum(ranges[-1]) == code:
                ranges[-1][1] += 1
            else:
                ranges.append([code, 1])
        with open(path, "w", encoding="ascii") as out:
            out.write("".join(f"{first:X} {count}\n" for first, count in ranges))
    with open(path, encoding="ascii") as lines:
        return [(int(first, 16), int(count)) for first, count in (line.split() for line in lines)]


def train(name, ranges):
    tokenizer = Tokenizer(models.BPE(ignore_merges=name == "llama3"))
    if name == "gpt2":
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    else:
        pattern = QWEN2 if name == "qwen2" else LLAMA3
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
            pre_tokenizers.Split(Regex(pattern), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    if name == "qwen2":
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=3000, show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator((make_text(TRAIN_SEED, i, ranges) for i in range(20000)), trainer)
    special = {"gpt2": ["<|endoftext|>"], "qwen2": ["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
               "llama3": ["<|begin_of_text|>", "<|end_of_text|>"]}[name]
    tokenizer.add_special_tokens([AddedToken(text, special=True) for text in special])
    tokenizer.add_tokens([AddedToken("[W]", single_word=True), AddedToken("[L]", lstrip=True),
                          AddedToken("[R]", rstrip=True, special=True), AddedToken("[N]", normalized=False),
                          AddedToken("caf\u00e9", normalized=True), AddedToken("<tool>", normalized=False)])
    if name == "llama3":
        bos = "<|begin_of_text|>"
        tokenizer.post_processor = processors.Sequence([
            processors.ByteLevel(trim_offsets=False),
            processors.TemplateProcessing(single=f"{bos} $A", pair=f"{bos} $A {bos}:1 $B:1",
                                          special_tokens=[(bos, tokenizer.token_to_id(bos))])])
    return json.loads(tokenizer.to_str())


def with_patch(root, patch):
    """JSON Patch, `add` and `replace` only."""
    root = json.loads(json.dumps(root))
    for step in patch:
        keys = step["path"].strip("/").split("/")
        place = root
        for key in keys[:-1]:
            place = place[int(key) if isinstance(place, list) else key]
        place[int(keys[-1]) if isinstance(place, list) else keys[-1]] = step["value"]
    return root


def variants(roots):
    def one(name, base, patch=(), **options):
        return {"name": name, "base": base, "patch": list(patch), "parse_special": options.get("parse_special", True),
                "add_special_tokens": options.get("add_special_tokens", True), "sweep": options.get("sweep", False)}

    def put(path, value):
        return {"op": "add", "path": path, "value": value}
    digits = {"type": "Sequence", "pretokenizers": [
        {"type": "Split", "pattern": {"Regex": r"\p{N}{1,3}"}, "behavior": "Isolated", "invert": False},
        {"type": "Split", "pattern": {"String": " the"}, "behavior": "Removed", "invert": False},
        {"type": "Split", "pattern": {"Regex": r"\s+|\S+"}, "behavior": "Removed", "invert": True},
        {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}]}
    return [
        one("gpt2", "gpt2", sweep=True), one("qwen2", "qwen2", sweep=True), one("llama3", "llama3", sweep=True),
        one("gpt2 with a prefix space", "gpt2", [put("/pre_tokenizer/add_prefix_space", True)]),
        one("gpt2 with NFC", "gpt2", [put("/normalizer", {"type": "NFC"})], sweep=True),
        one("gpt2, special tokens as text", "gpt2", parse_special=False),
        one("qwen2, special tokens as text", "qwen2", parse_special=False),
        one("llama3 without merges: whole pieces and bytes", "llama3", [put("/model/merges", [])]),
        one("llama3 without ignore_merges", "llama3", [put("/model/ignore_merges", False)]),
        one("llama3 without bos", "llama3", add_special_tokens=False),
        one("gpt2 cut by four stages", "gpt2", [put("/pre_tokenizer", digits)]),
        one("gpt2 without a pattern", "gpt2", [put("/pre_tokenizer/use_regex", False)]),
    ]


def blocks(lists, size):
    return [hash_lists(lists[i:i + size]) for i in range(0, len(lists), size)]


def measure(encode, decode, texts, alpaca):
    ids = [encode(text) for text in texts]
    entry = {"texts": blocks(ids, BLOCK), "tokens": sum(map(len, ids)),
             "decoded": blocks([decode(row).encode() for row in ids], 10 * BLOCK),
             "cases": [{"index": i, "text": texts[i], "ids": ids[i]} for i in range(FULL_CASES)]}
    if alpaca:
        ids = [encode(text) for text in alpaca]
        entry["alpaca"], entry["alpaca_tokens"] = blocks(ids, BLOCK), sum(map(len, ids))
    return entry


def corpus_gpt2():
    folder = os.path.join(SHARED, "corpus", "tokenizers", "gpt2")
    tokenizer = Tokenizer(models.BPE.from_file(os.path.join(folder, "vocab.json"), os.path.join(folder, "merges.txt")))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken("<|endoftext|>", special=True)])
    return lambda text: tokenizer.encode(text).ids, lambda ids: tokenizer.decode(ids, skip_special_tokens=False)


def corpus_qwen():
    with open(os.path.join(SHARED, "corpus", "tokenizers", "qwen", "qwen.tiktoken"), "rb") as lines:
        ranks = {base64.b64decode(token): int(rank) for token, rank in (line.split() for line in lines if line.strip())}
    names = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"] + [f"<|extra_{i}|>" for i in range(205)]
    special = {name: len(ranks) + i for i, name in enumerate(names)}
    encoding = tiktoken.Encoding("qwen", pat_str=QWEN2, mergeable_ranks=ranks, special_tokens=special)
    return (lambda text: encoding.encode(unicodedata.normalize("NFC", text), allowed_special="all"),
            lambda ids: encoding.decode(ids, errors="replace"))


def alpaca_texts():
    path = os.path.join(SHARED, "corpus", "alpaca", "alpaca_sample.json")
    if not os.path.exists(path):
        return []
    with open(path, encoding="utf-8") as file:
        return [row["instruction"] + "\n" + row["input"] + "\n" + row["output"] for row in json.load(file)]


def main():
    os.makedirs(FIXTURES, exist_ok=True)
    path = os.path.join(FIXTURES, "tokenizer_oracle.json")
    before = {}
    if os.path.exists(path):
        with open(path, encoding="utf-8") as file:
            before = {entry["name"]: entry for entry in json.load(file)["variants"]}
    ranges = assigned_ranges()
    texts = [make_text(SEED, i, ranges) for i in range(TEXTS)]
    alpaca = alpaca_texts()
    roots = {name: train(name, ranges) for name in ("gpt2", "qwen2", "llama3")}
    # Both spellings of a merge: older files have one string.
    roots["qwen2"]["model"]["merges"] = [" ".join(merge) for merge in roots["qwen2"]["model"]["merges"]]
    for name, root in roots.items():
        os.makedirs(os.path.join(FIXTURES, name), exist_ok=True)
        with open(os.path.join(FIXTURES, name, "tokenizer.json"), "w", encoding="utf-8") as out:
            json.dump(root, out, ensure_ascii=False, separators=(",", ":"))
            out.write("\n")
    code_points = [first + i for first, count in ranges for i in range(count)]
    entries = []
    for variant in variants(roots):
        tokenizer = Tokenizer.from_str(json.dumps(with_patch(roots[variant["base"]], variant["patch"])))
        tokenizer.encode_special_tokens = not variant["parse_special"]

        def encode(text):
            return tokenizer.encode(text, add_special_tokens=variant["add_special_tokens"]).ids
        entry = dict(variant) | measure(encode, lambda ids: tokenizer.decode(ids, skip_special_tokens=False), texts,
                                        alpaca)
        if not alpaca and variant["name"] in before:
            entry |= {k: v for k, v in before[variant["name"]].items() if k.startswith("alpaca")}
        if variant["sweep"]:
            entry["sweep"] = [hash_lists(encode(sweep_text(c)) for c in code_points[i:i + SWEEP_BLOCK])
                              for i in range(0, len(code_points), SWEEP_BLOCK)]
        else:
            del entry["sweep"]
        print(f"  {variant['name']}: {entry['tokens']} tokens")
        entries.append(entry)
    for name, make in (("corpus gpt2", corpus_gpt2), ("corpus qwen", corpus_qwen)):
        if not alpaca:
            print(f"  kept {name}: no corpus in {SHARED}")
            entries += [before[name]] if name in before else []
            continue
        encode, decode = make()
        entry = {"name": name} | measure(encode, decode, texts, alpaca)
        print(f"  {name}: {entry['tokens']} tokens, alpaca {entry['alpaca_tokens']}")
        entries.append(entry)
    with open(path, "w", encoding="utf-8") as out:
        rows = ",\n".join(json.dumps(entry, separators=(",", ":")) for entry in entries)
        out.write('{"made_with":"tokenizers %s, tiktoken %s, Unicode %s",\n"seed":%d,"texts":%d,"block":%d,'
                  '"sweep_block":%d,"text_hash":"%s",\n"variants":[\n%s\n]}\n' % (
                      tokenizers.__version__, tiktoken.__version__, unicodedata.unidata_version, SEED, TEXTS, BLOCK,
                      SWEEP_BLOCK, hash_lists(text.encode() for text in texts), rows))


if __name__ == "__main__":
    main()
