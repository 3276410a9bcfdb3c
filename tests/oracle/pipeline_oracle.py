#!/usr/bin/env python3
"""Token ids by Hugging Face tokenizers, of the pipelines of published tokenizer.json files:
tests/engine/data/fixtures/pipeline_oracle.json, and unicode16.txt (assigned code points).

A pipeline is the normalizer, the pre-tokenizer, the post-processor and the decoder of a family, or one of our own that
shows a step. The vocabulary is made by a rule (`model`; the test makes the same): every pair of bytes, or of some
characters, is a token, so that ids show each place where text is cut. Run it by `make oracle`.
"""
# requires: tokenizers==0.23.3 unicodedataplus==16.0.0.post1
import json
import os
import sys

import tokenizers
import unicodedataplus as unicode16
from tokenizers import Tokenizer

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from text_generator import hash_lists, make_text  # noqa: E402

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
FIXTURES = os.path.join(ROOT, "tests", "engine", "data", "fixtures")
SEED, TEXTS, BLOCK, CASES, SWEEP_LINE, SWEEP_BLOCK = 33, 1500, 50, 3, 32, 64

GPT4 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
        r"|\s+(?!\S)|\s+")
QWEN2 = GPT4.replace(r"|\p{N}{1,3}|", r"|\p{N}|")
CAPS, SMALL = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
TEKKEN = (rf"[^\r\n\p{{L}}\p{{N}}]?{CAPS}*{SMALL}+|[^\r\n\p{{L}}\p{{N}}]?{CAPS}+{SMALL}*|\p{{N}}"
          r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
ENDINGS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
O200K = (rf"[^\r\n\p{{L}}\p{{N}}]?{CAPS}*{SMALL}+{ENDINGS}|[^\r\n\p{{L}}\p{{N}}]?{CAPS}+{SMALL}*{ENDINGS}"
         r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
NOT_HAN = r"&&[^\p{Han}]]"
KIMI = (r"[\p{Han}]+|" + O200K.replace(CAPS, CAPS[:-1] + NOT_HAN).replace(SMALL, SMALL[:-1] + NOT_HAN)
        .replace(r"\r\n/", r"\r\n"))
DEEPSEEK3 = (r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
             r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
BLOOM = " ?[^(\\s|[.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c])]+"


def split(pattern, behavior="Isolated", invert=False, kind="Regex"):
    return {"type": "Split", "pattern": {kind: pattern}, "behavior": behavior, "invert": invert}


def byte_level(use_regex=True, add_prefix_space=False):
    return {"type": "ByteLevel", "add_prefix_space": add_prefix_space, "trim_offsets": True, "use_regex": use_regex}


def digits(each):
    return {"type": "Digits", "individual_digits": each}


def pre(*steps):
    return {"type": "Sequence", "pretokenizers": list(steps)}


def norm(*steps):
    return {"type": "Sequence", "normalizers": [step if isinstance(step, dict) else {"type": step} for step in steps]}


def replace(text, content, kind="String"):
    return {"type": "Replace", "pattern": {kind: text}, "content": content}


def metaspace(scheme, split_it=True):
    return {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": scheme, "split": split_it}


def around(*parts):
    """A TemplateProcessing: names of tokens around None, the text."""
    single = [{"Sequence": {"id": "A", "type_id": 0}} if part is None else {"SpecialToken": {"id": part, "type_id": 0}}
              for part in parts]
    ids = {"<s>": 0, "</s>": 1}
    return {"type": "TemplateProcessing", "single": single, "pair": [{"Sequence": {"id": "A", "type_id": 0}},
                                                                       {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {part: {"id": part, "ids": [ids[part]], "tokens": [part]} for part in parts if part}}


SPACE = replace(" ", "\u2581")
SPM_DECODER = {"type": "Sequence", "decoders": [replace("\u2581", " "), {"type": "ByteFallback"}, {"type": "Fuse"}]}
STRIP_ONE = {"type": "Strip", "content": " ", "start": 1, "stop": 0}
SPM_STRIP = {"type": "Sequence", "decoders": SPM_DECODER["decoders"] + [STRIP_ONE]}
ROBERTA = {"type": "RobertaProcessing", "sep": ["</s>", 1], "cls": ["<s>", 0], "trim_offsets": True,
           "add_prefix_space": False}
BERT = {"type": "BertProcessing", "sep": ["</s>", 1], "cls": ["<s>", 0]}
FALLBACK = {"byte_fallback": True, "fuse_unk": True, "unk_token": "<unk>"}


def designs():
    def of_bytes(name, pre_tokenizer, normalizer=None, post=None, model=None, sweep=False, holes=False):
        return {"name": name, "form": "bytes", "holes": holes, "model": model or {}, "normalizer": normalizer,
                "pre_tokenizer": pre_tokenizer, "post_processor": post or byte_level(),
                "decoder": byte_level(), "sweep": sweep}

    def of_characters(name, pre_tokenizer, normalizer=None, post=None, model=None, decoder=None, sweep=False):
        return {"name": name, "form": "characters", "holes": False, "model": model or {}, "normalizer": normalizer,
                "pre_tokenizer": pre_tokenizer, "post_processor": post, "decoder": decoder, "sweep": sweep}
    families = [
        of_bytes("GPT-2, CodeGen, Phi-2", byte_level()),
        of_bytes("GPT-NeoX, Pythia, OLMo 1, MPT", byte_level(), norm("NFC"), holes=True),
        of_bytes("OPT", byte_level(), post=around("<s>", None)),
        of_bytes("RoBERTa, Galactica", byte_level(add_prefix_space=True), post=ROBERTA),
        of_bytes("Qwen2, Qwen2.5, Qwen3", pre(split(QWEN2), byte_level(False)), norm("NFC"), sweep=True),
        of_bytes("Llama 3, SmolLM3", pre(split(GPT4), byte_level(False)), model={"ignore_merges": True},
                 post={"type": "Sequence", "processors": [byte_level(), around("<s>", None)]}),
        of_bytes("Phi-4, OLMo 2, StableLM 2", pre(split(GPT4, "Removed", True), byte_level(False))),
        of_bytes("GLM-4", pre(split(GPT4), byte_level(False)), post=around("<s>", "</s>", None)),
        of_bytes("Mistral Nemo, Ministral, Apertus", pre(split(TEKKEN), byte_level(False)),
                 model={"ignore_merges": True}, post=around("<s>", None), sweep=True),
        of_bytes("gpt-oss, Phi-4-mini", pre(split(O200K), byte_level(False))),
        of_bytes("Kimi, Moonlight", pre(split(KIMI), byte_level(False)), sweep=True),
        of_bytes("SmolLM2, StarCoder2, Granite 3", pre(digits(True), byte_level()), sweep=True),
        of_bytes("Command R, Aya", pre(digits(True), byte_level()), norm("NFC"), post=around("<s>", None)),
        of_bytes("DeepSeek-V3, DeepSeek-R1", pre(split(r"\p{N}{1,3}"), split("[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"),
                                                 split(DEEPSEEK3), byte_level(False)), post=around("<s>", None), sweep=True),
        of_bytes("DeepSeek LLM, Coder", pre(split(r"[\r\n]"), split(r"\s?\p{L}+"), split(r"\s?\p{P}+"),
                                            split("[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"), digits(True),
                                            byte_level(False)), norm(), sweep=True),
        of_bytes("Falcon", pre({"type": "Punctuation", "behavior": "Contiguous"}, byte_level(), digits(False),
                               split("[0-9][0-9][0-9]")), sweep=True),
        of_bytes("BLOOM", pre(split(BLOOM), byte_level(False))),
        of_bytes("Claude", byte_level(), {"type": "NFKC"}, sweep=True),
        of_bytes("Nemotron", pre(split(TEKKEN), digits(True), byte_level(False))),
        of_characters("Gemma 1, 2, 3", split(" ", "MergedWithPrevious", kind="String"), SPACE, around("<s>", None), FALLBACK,
                      SPM_DECODER),
        of_characters("Llama 2, TinyLlama, Phi-3", None, norm({"type": "Prepend", "prepend": "\u2581"}, SPACE),
                      around("<s>", None), FALLBACK, SPM_STRIP),
        of_characters("Mistral 7B v0.3, Llama 2 without legacy", metaspace("first", False), None, around("<s>", None), FALLBACK,
                      SPM_STRIP),
        of_characters("Yi, InternLM 2.5", None, norm(SPACE), None, FALLBACK, SPM_DECODER),
        of_characters("T5's steps", pre({"type": "WhitespaceSplit"}, metaspace("always")), norm("Nmt", "NFKC"),
                      around(None, "</s>"), {"unk_token": "<unk>", "fuse_unk": True}, metaspace("always"), sweep=True),
        of_characters("BERT's steps", pre({"type": "Whitespace"}, {"type": "Punctuation"}),
                      norm("NFD", "Lowercase", "StripAccents"), BERT, {"unk_token": "<unk>"}, sweep=True),
        of_characters("the quick tour", {"type": "Whitespace"}, None, None, {"unk_token": "<unk>"}),
    ]
    behaviors = ["Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"]
    steps = [of_bytes(f"Punctuation, {name}", pre({"type": "Punctuation", "behavior": name}, byte_level(False)))
             for name in behaviors]
    for name in behaviors:
        for invert in (False, True):
            way = ", inverted" if invert else ""
            steps.append(of_bytes(f"Split, {name}{way}", pre(split(r"\d|\s", name, invert), byte_level(False))))
    steps += [
        of_bytes("literal Split", pre(split("th", "MergedWithNext", kind="String"), byte_level())),
        of_bytes("Punctuation without a behavior", pre({"type": "Punctuation"}, byte_level())),
        of_bytes("Digits behind ByteLevel", pre(byte_level(False), digits(False), split("\u0120", "MergedWithNext"))),
        of_bytes("CharDelimiterSplit", pre({"type": "CharDelimiterSplit", "delimiter": "e"}, byte_level())),
        of_bytes("NFKD", byte_level(), {"type": "NFKD"}, sweep=True),
        of_bytes("NFD, Strip on the left", byte_level(),
                 norm("NFD", {"type": "Strip", "strip_left": True, "strip_right": False})),
        of_bytes("Strip, Replace by a pattern", byte_level(), norm(
            {"type": "Strip", "strip_left": True, "strip_right": True}, replace(r"\s+", " ", "Regex"),
            replace("o", "00"))),
        of_bytes("Lowercase", byte_level(), {"type": "Lowercase"}, sweep=True),
        of_bytes("words and their borders", pre(split(r"\b\w+\b|[^\w\s]+|^\s|\s$", "Isolated"), byte_level(False)),
                 sweep=True),
        of_bytes("classes in classes", pre(split(r"[a-f[^\w\s]\d]+|[\S&&[^\p{L}]]{,3}+x|[^\S ]+"), byte_level(False))),
        of_bytes("intervals", pre(split(r"\p{L}{2,3}+|\p{N}{2}?1|(?<=\p{L})\s|(?>\s+)|\h+"), byte_level(False))),
    ]
    return families + steps


def assigned_ranges():
    ranges = []
    for code in range(0x110000):
        if unicode16.category(chr(code)) in ("Cn", "Cs", "Co"):
            continue
        if ranges and sum(ranges[-1]) == code:
            ranges[-1][1] += 1
        else:
            ranges.append([code, 1])
    with open(os.path.join(FIXTURES, "unicode16.txt"), "w", encoding="ascii") as out:
        out.write("".join(f"{first:X} {count}\n" for first, count in ranges))
    return [tuple(pair) for pair in ranges]


def hard_text(index, ranges):
    text = make_text(SEED, index, ranges)
    if index % 7 == 3:
        text += "\0" + make_text(SEED + 1, index, ranges)
    if index % 11 == 5:
        text += " " * (index % 300) + make_text(SEED + 2, index, ranges)
    if index % 13 == 6:
        text = "\t\n" * (index % 50) + text + "\u200d\u0000"
    return text


def sweep_line(codes):
    return "".join(f"a{chr(c)}b {chr(c)}{chr(c)} 1{chr(c)}" for c in codes)


def alphabet():
    """GPT-2's character of each byte."""
    plain = [b for b in range(256) if 0x21 <= b <= 0x7E or 0xA1 <= b <= 0xAC or b >= 0xAE]
    others = [b for b in range(256) if b not in plain]
    return [chr(b) if b in plain else chr(0x100 + others.index(b)) for b in range(256)]


def characters():
    return [chr(c) for c in range(0x20, 0x7F)] + list("\u2581\u00e9\u0301\u00df\u4e2d\u6587\u0410\u044f\u03b1\u0130\n")


def model(design):
    """The vocabulary, and each pair as a merge, in an order that mixes them."""
    vocab = {token: i for i, token in enumerate(["<s>", "</s>", "<unk>"])}

    def add(token):
        vocab.setdefault(token, len(vocab))
    if design["form"] == "bytes":
        missing = {0xC0, 0xC1, *range(0xF5, 0x100)} if design["holes"] else set()
        units = [c for b, c in enumerate(alphabet()) if b not in missing]
    else:
        units = characters()
    for unit in units:
        add(unit)
    if design["model"].get("byte_fallback"):
        for byte in range(256):
            add(f"<0x{byte:02X}>")
    merges = []
    count = len(units) ** 2
    for i in range(count):
        at = i * 7919 % count
        left, right = units[at // len(units)], units[at % len(units)]
        merges.append([left, right])
        add(left + right)
    return {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
            "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
            "vocab": vocab, "merges": merges} | design["model"]


def added(index, content, **flags):
    return {"id": index, "content": content, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
            "special": True} | flags


def tokenizer_json(design):
    return {"version": "1.0", "truncation": None, "padding": None,
            "added_tokens": [added(0, "<s>"), added(1, "</s>", rstrip=True), added(2, "<unk>")],
            "normalizer": design["normalizer"], "pre_tokenizer": design["pre_tokenizer"],
            "post_processor": design["post_processor"], "decoder": design["decoder"], "model": model(design)}


def main():
    ranges = assigned_ranges()
    texts = [hard_text(i, ranges) for i in range(TEXTS)]
    codes = [first + i for first, count in ranges for i in range(count)]
    lines = [sweep_line(codes[i:i + SWEEP_LINE]) for i in range(0, len(codes), SWEEP_LINE)]
    entries = []
    for design in designs():
        tokenizer = Tokenizer.from_str(json.dumps(tokenizer_json(design)))
        ids = [tokenizer.encode(text).ids for text in texts]
        decoded = [tokenizer.decode(row, skip_special_tokens=False).encode() for row in ids]
        entry = dict(design) | {
            "texts": [hash_lists(ids[i:i + BLOCK]) for i in range(0, TEXTS, BLOCK)],
            "decoded": [hash_lists(decoded[i:i + BLOCK]) for i in range(0, TEXTS, BLOCK)],
            "cases": [{"index": i, "text": texts[i], "ids": ids[i]} for i in range(CASES)]}
        if design["sweep"]:
            swept = [tokenizer.encode(line).ids for line in lines]
            entry["sweep"] = [hash_lists(swept[i:i + SWEEP_BLOCK]) for i in range(0, len(swept), SWEEP_BLOCK)]
        else:
            del entry["sweep"]
        print(f"  {design['name']}: {sum(map(len, ids))} tokens", flush=True)
        entries.append(entry)
    with open(os.path.join(FIXTURES, "pipeline_oracle.json"), "w", encoding="utf-8") as out:
        rows = ",\n".join(json.dumps(entry, separators=(",", ":")) for entry in entries)
        out.write('{"made_with":"tokenizers %s, Unicode %s",\n"texts":%d,"block":%d,"sweep_line":%d,"sweep_block":%d,'
                  '"text_hash":"%s",\n"designs":[\n%s\n]}\n' % (
                      tokenizers.__version__, unicode16.unidata_version, TEXTS, BLOCK, SWEEP_LINE, SWEEP_BLOCK,
                      hash_lists(text.encode() for text in texts), rows))


if __name__ == "__main__":
    main()
