#!/usr/bin/env python3
"""Token ids of tokenizers of SentencePiece's form, as hashes: tests/engine/data/fixtures/.

Trains a small BPE model with byte fallback by SentencePiece itself, writes its tokenizer.model and the tokenizer.json
that transformers' converter would make of it (spm/), and sentencepiece_oracle.json: what Hugging Face tokenizers and
SentencePiece make of the texts of tokenizer_oracle.py. Run it by `make oracle`.
"""
# requires: tokenizers==0.23.3 sentencepiece==0.2.3
import io
import json
import os
import sys

import sentencepiece
import tokenizers
from tokenizers import Tokenizer

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from text_generator import hash_lists, make_text  # noqa: E402
from tokenizer_oracle import BLOCK, FIXTURES, FULL_CASES, SEED, TEXTS, TRAIN_SEED, assigned_ranges, blocks, with_patch  # noqa: E402

SPACE = "\u2581"


def common(text):
    """Latin letters and signs only: the others are left to byte fallback."""
    return "".join(c for c in text.replace("\n", " ") if 32 <= ord(c) < 0x250 or c in "\U0001F600\u4e2d\u6587")


def train(ranges):
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(common(make_text(TRAIN_SEED, i, ranges)) for i in range(20000)),
        model_writer=model, model_type="bpe", vocab_size=3000, byte_fallback=True, character_coverage=1.0,
        normalization_rule_name="identity", remove_extra_whitespaces=False, split_digits=True, num_threads=1,
        allow_whitespace_only_pieces=True, max_sentence_length=100000, minloglevel=2)
    return model.getvalue()


def converted(model):
    """What transformers' LlamaConverter makes: merges are all splits of a piece, by falling score."""
    pieces = [(model.id_to_piece(i), model.get_score(i)) for i in range(model.get_piece_size())]
    plain = {piece: i for i, (piece, _) in enumerate(pieces)
             if not (model.is_control(i) or model.is_unknown(i) or model.is_byte(i))}
    merges = []
    for piece in plain:
        cuts = [(piece[:at], piece[at:]) for at in range(1, len(piece)) if piece[:at] in plain and piece[at:] in plain]
        merges += [(pieces[plain[piece]][1], cut) for cut in sorted(cuts, key=lambda cut: (plain[cut[0]], plain[cut[1]]))]
    merges.sort(key=lambda merge: -merge[0])
    added = [{"id": i, "content": pieces[i][0], "single_word": False, "lstrip": False, "rstrip": False,
              "normalized": False, "special": True} for i in range(3)]
    return {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": added,
        "normalizer": {"type": "Sequence", "normalizers": [
            {"type": "Prepend", "prepend": SPACE},
            {"type": "Replace", "pattern": {"String": " "}, "content": SPACE}]},
        "pre_tokenizer": None,
        "post_processor": {"type": "TemplateProcessing",
                           "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}},
                                      {"Sequence": {"id": "A", "type_id": 0}}],
                           "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
                           "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}}},
        "decoder": {"type": "Sequence", "decoders": [
            {"type": "Replace", "pattern": {"String": SPACE}, "content": " "}, {"type": "ByteFallback"},
            {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
        "model": {"type": "BPE", "dropout": None, "unk_token": "<unk>", "continuing_subword_prefix": None,
                  "end_of_word_suffix": None, "fuse_unk": True, "byte_fallback": True, "ignore_merges": False,
                  "vocab": {piece: i for i, (piece, _) in enumerate(pieces)},
                  "merges": [" ".join(cut) for _, cut in merges]}}


def metaspace(scheme, split):
    return [{"op": "replace", "path": "/normalizer", "value": None},
            {"op": "replace", "path": "/pre_tokenizer",
             "value": {"type": "Metaspace", "replacement": SPACE, "prepend_scheme": scheme, "split": split}},
            {"op": "replace", "path": "/decoder",
             "value": {"type": "Metaspace", "replacement": SPACE, "prepend_scheme": scheme, "split": split}}]


def model_field(name, value):
    return {"op": "replace", "path": "/model/" + name, "value": value}


def variants():
    token = {"id": 3000, "content": "12", "single_word": False, "lstrip": False, "rstrip": False,
             "normalized": True, "special": False}
    found = [("llama", [], {}), ("llama, special tokens as text", [], {"parse_special": False}),
             ("llama without bos", [], {"add_special_tokens": False}),
             ("llama with ignore_merges", [model_field("ignore_merges", True)], {}),
             ("without byte fallback", [model_field("byte_fallback", False)], {}),
             ("without byte fallback, unknown tokens apart",
              [model_field("byte_fallback", False), model_field("fuse_unk", False)], {}),
             ("without an unknown token", [model_field("byte_fallback", False), model_field("unk_token", None)], {}),
             ("NFC first", [{"op": "add", "path": "/normalizer/normalizers/0", "value": {"type": "NFC"}}], {}),
             ("an added word, normalized", [{"op": "add", "path": "/added_tokens/3", "value": token}], {}),
             ("no decoder", [{"op": "replace", "path": "/decoder", "value": None}], {})]
    for scheme in ("first", "always", "never"):
        for split in (True, False):
            found.append((f"metaspace {scheme}, {'split' if split else 'whole'}", metaspace(scheme, split), {}))
    return found


def oracle_texts(ranges):
    """As tokenizer_oracle.py's, every fourth with what SentencePiece's form is sensitive to."""
    marks = ["  ", " ", "<s>", "</s>", "<unk>", SPACE, "   <s>  ", "\U0001F600\U0001F44D\U0001F3FD", "\n\n", "<0x41>"]
    texts = []
    for i in range(TEXTS):
        text = make_text(SEED, i, ranges)
        if i % 4 == 1:
            half = len(text) // 2
            text = marks[i // 4 % 10] + text[:half] + marks[i // 40 % 10] + text[half:] + marks[i // 400 % 10]
        texts.append(text)
    return texts


def main():
    ranges = assigned_ranges()
    texts = oracle_texts(ranges)
    folder = os.path.join(FIXTURES, "spm")
    os.makedirs(folder, exist_ok=True)
    data = train(ranges)
    with open(os.path.join(folder, "tokenizer.model"), "wb") as out:
        out.write(data)
    model = sentencepiece.SentencePieceProcessor(model_proto=data)
    root = converted(model)
    with open(os.path.join(folder, "tokenizer.json"), "w", encoding="utf-8") as out:
        json.dump(root, out, ensure_ascii=False, separators=(",", ":"))
        out.write("\n")
    entries = []
    for name, patch, options in variants():
        changed = with_patch(root, [p for p in patch if p["op"] != "add"])
        for step in patch:
            if step["op"] == "add":  # into a list
                keys = step["path"].strip("/").split("/")
                place = changed
                for key in keys[:-1]:
                    place = place[key]
                place.insert(int(keys[-1]), step["value"])
        tokenizer = Tokenizer.from_str(json.dumps(changed))
        tokenizer.encode_special_tokens = not options.get("parse_special", True)
        ids = [tokenizer.encode(text, add_special_tokens=options.get("add_special_tokens", True)).ids for text in texts]
        entry = {"name": name, "patch": patch, "parse_special": options.get("parse_special", True),
                 "add_special_tokens": options.get("add_special_tokens", True), "texts": blocks(ids, BLOCK),
                 "tokens": sum(map(len, ids)),
                 "decoded": blocks([tokenizer.decode(row, skip_special_tokens=False).encode() for row in ids], BLOCK),
                 "plain": blocks([tokenizer.decode(row, skip_special_tokens=True).encode() for row in ids], BLOCK),
                 "cases": [{"index": i, "text": texts[i], "ids": ids[i]} for i in range(FULL_CASES)]}
        print(f"  {name}: {entry['tokens']} tokens")
        entries.append(entry)
    # SentencePiece's own ids, of texts without the names of its control pieces and without U+2581.
    own = [text for text in texts if "<s>" not in text and "</s>" not in text and "<unk>" not in text
           and SPACE not in text and "\0" not in text]
    with open(os.path.join(FIXTURES, "sentencepiece_oracle.json"), "w", encoding="utf-8") as out:
        rows = ",\n".join(json.dumps(entry, separators=(",", ":")) for entry in entries)
        out.write('{"made_with":"tokenizers %s, sentencepiece %s","block":%d,"text_hash":"%s",\n"own":%s,\n'
                  '"variants":[\n%s\n]}\n' % (
                      tokenizers.__version__, sentencepiece.__version__, BLOCK,
                      hash_lists(text.encode() for text in texts),
                      json.dumps({"count": len(own), "texts": blocks([model.encode(text) for text in own], BLOCK)},
                                 separators=(",", ":")), rows))


if __name__ == "__main__":
    main()
