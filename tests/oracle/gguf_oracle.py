#!/usr/bin/env python3
"""What llama.cpp makes of the files that `dsj export gguf` writes, and what its own converter writes instead.

Writes tests/engine/gguf/fixtures/gguf_oracle.json. Of each model: the keys and tensors of the file that
convert_hf_to_gguf writes; how far llama.cpp's logits on our file are from transformers', and whether both choose the
same tokens; the checksum of that file, so that the test knows it again. Of each tokenizer the same, with the ids that
llama.cpp makes of hard texts. A difference that is not allowed for stops the script.

Needs build/bin/dsj. GGUFReader of gguf reads every file.
"""
# python: tests/oracle/gguf_venv.sh
import importlib.metadata
import json
import logging
import os
import shutil
import subprocess
import sys
import tempfile
import zlib

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
LLAMA_CPP = os.path.join(sys.prefix, "llama.cpp")
sys.path[1:1] = [LLAMA_CPP, os.path.join(LLAMA_CPP, "gguf-py")]

import numpy
import torch
import transformers
from gguf import GGUFReader, GGUFValueType, LlamaFileType

import llama_cpp

DSJ = os.path.join(ROOT, "build", "bin", "dsj")
FIXTURES = os.path.join(ROOT, "tests", "fixtures")
OLMOE = os.path.join("engine", "gguf", "fixtures", "olmoe")
OUT = os.path.join(ROOT, "tests", "engine", "gguf", "fixtures", "gguf_oracle.json")
IDS = [[26, 38, 36, 46, 28, 5, 4, 30, 21, 46, 28, 5], [88, 70, 35, 123, 2, 9, 9, 64, 14, 77, 101, 3]]

# A fixture with changes of its config.json, where the fixture has what llama.cpp cannot compute.
MODELS = {
    "llama": ("fixtures/tiny-llama", {}),
    "llama-linear": ("fixtures/tiny-llama-linear", {}),
    "llama-yarn": ("fixtures/tiny-llama-yarn", {}),
    "mistral": ("fixtures/tiny-mistral", {"sliding_window": None}),
    "internlm3": ("fixtures/tiny-internlm3", {}),
    "mixtral": ("fixtures/tiny-mixtral", {"sliding_window": None}),
    "qwen2": ("fixtures/tiny-qwen2", {}),
    "qwen2-tied": ("fixtures/tiny-qwen2-tied", {}),
    "qwen3": ("fixtures/tiny-qwen3", {"use_sliding_window": False, "sliding_window": None}),
    "qwen2-moe": ("fixtures/tiny-qwen2-moe", {}),
    "qwen3-moe": ("fixtures/tiny-qwen3-moe-balanced", {}),
    "gemma": ("fixtures/tiny-gemma", {}),
    "gemma2": ("fixtures/tiny-gemma2", {"query_pre_attn_scalar": 16}),
    "gemma3": ("fixtures/tiny-gemma3", {"query_pre_attn_scalar": 16}),
    "gemma3-vision": ("fixtures/tiny-gemma3-vision", {}),
    # llama.cpp takes the long factors when its context is longer than the original one: 256 at least.
    "phi3-short": ("fixtures/tiny-phi3", {"sliding_window": None, "max_position_embeddings": 1024,
                                 "original_max_position_embeddings": 512}),
    "phi3-long": ("fixtures/tiny-phi3", {"sliding_window": None, "original_max_position_embeddings": 8}),
    "phi4-mini": ("fixtures/tiny-phi4-mini", {}),
    "phi": ("fixtures/tiny-phi", {}),
    "smollm3": ("fixtures/tiny-smollm3", {"no_rope_layers": [1, 1, 1, 0]}),
    "granite": ("fixtures/tiny-granite", {}),
    "granitemoe": ("fixtures/tiny-granitemoe", {}),
    "olmo": ("fixtures/tiny-olmo", {}),
    "olmo2": ("fixtures/tiny-olmo2", {}),
    "olmo3": ("fixtures/tiny-olmo3", {}),
    "olmoe": (OLMOE, {}),
    "seed-oss": ("fixtures/tiny-seed-oss", {}),
    "ernie4.5": ("fixtures/tiny-ernie4.5", {"use_bias": False}),
    "arcee": ("fixtures/tiny-arcee", {}),
    "nemotron": ("fixtures/tiny-nemotron", {}),
    "starcoder2": ("fixtures/tiny-starcoder2", {"sliding_window": None}),
    "stablelm": ("fixtures/tiny-stablelm", {}),
    "stablelm-parallel": ("fixtures/tiny-stablelm-parallel", {}),
    "jais2": ("fixtures/tiny-jais2", {}),
    "cohere": ("fixtures/tiny-cohere", {}),
    "cohere2": ("fixtures/tiny-cohere2", {"attention_bias": False}),
    "gpt-neox": ("fixtures/tiny-gpt-neox", {}),
    "glm4": ("fixtures/tiny-glm4", {}),
    "hunyuan": ("fixtures/tiny-hunyuan", {}),
    "gpt-bigcode": ("fixtures/tiny-gpt-bigcode", {}),
    "gpt-bigcode-heads": ("fixtures/tiny-gpt-bigcode-heads", {}),
    "gpt2": ("fixtures/lora/gpt2-base", {"n_ctx": 32}),
}


def make_olmoe(folder):
    """llama.cpp's OLMoE has as many key heads as query heads; tiny-olmoe has fewer."""
    config = transformers.OlmoeConfig(vocab_size=128, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
                                      num_attention_heads=4, num_key_value_heads=4, num_experts=4,
                                      num_experts_per_tok=2, max_position_embeddings=64, pad_token_id=None,
                                      eos_token_id=None)
    torch.manual_seed(1)
    model = transformers.OlmoeForCausalLM(config)
    with torch.no_grad():
        for weight in model.parameters():
            weight.copy_(torch.randn_like(weight) * 0.3)
    model.save_pretrained(folder)
    for name in os.listdir(folder):
        if name not in ("config.json", "model.safetensors"):
            os.remove(os.path.join(folder, name))


def make_model(name, folder):
    fixture, changes = MODELS[name]
    shutil.copytree(os.path.join(ROOT, "tests", fixture), folder)
    path = os.path.join(folder, "config.json")
    with open(path) as file:
        config = json.load(file)
    config.update(changes)
    with open(path, "w") as file:
        json.dump(config, file)


def export(model, out, outtype):
    done = subprocess.run([DSJ, "export", "gguf", model, "--outfile", out, "--outtype", outtype, "--model-name", "Tiny"],
                          capture_output=True, text=True)
    if done.returncode != 0:
        raise ValueError(done.stderr.strip())
    return done.stderr


def convert(model, out, outtype, pre=None):
    """llama.cpp's converter. Without `pre` no tokenizer; else its name, which the converter's hash does not know."""
    import conversion
    from conversion import ModelBase, ModelType, get_model_architecture, get_model_class
    stub = os.path.join(model, "tokenizer.json")  # Gemma 3's class counts its tokens
    if pre is None:
        with open(stub, "w") as file:
            json.dump({"model": {"vocab": {str(i): i for i in range(128)}}, "added_tokens": []}, file)
    hparams = ModelBase.load_hparams(conversion.base.Path(model), False)
    kind = get_model_class(get_model_architecture(hparams, ModelType.TEXT), mmproj=False)
    if pre is None:
        kind = type(kind.__name__, (kind,), {"model_arch": kind.model_arch, "set_vocab": lambda self: None})
    else:
        kind = type(kind.__name__, (kind,), {"model_arch": kind.model_arch,
                                             "get_vocab_base_pre": lambda self, tokenizer: pre})
    ftype = {"f32": LlamaFileType.ALL_F32, "f16": LlamaFileType.MOSTLY_F16, "bf16": LlamaFileType.MOSTLY_BF16,
             "q8_0": LlamaFileType.MOSTLY_Q8_0}[outtype]
    with torch.inference_mode():
        kind(conversion.base.Path(model), ftype, conversion.base.Path(out), eager=False, model_name="Tiny").write()
    if pre is None:
        os.remove(stub)


def value_of(field):
    value = field.contents()
    if isinstance(value, numpy.generic):
        value = value.item()
    return value


def keys_of(reader):
    return {name: value_of(field) for name, field in reader.fields.items() if not name.startswith("GGUF.")}


def tensors_of(reader):
    return {one.name: [one.tensor_type.name, [int(n) for n in reversed(one.shape)],
                       zlib.crc32(one.data.tobytes())] for one in reader.tensors}


def expected_logits(model, ids):
    kind = transformers.AutoModelForCausalLM
    config = transformers.AutoConfig.from_pretrained(model)
    if hasattr(config, "text_config"):
        kind = transformers.AutoModelForImageTextToText
    loaded = kind.from_pretrained(model, dtype=torch.float32, attn_implementation="eager").eval()
    with torch.inference_mode():
        return loaded(input_ids=torch.tensor([ids])).logits[0].numpy()


def compare_logits(model, path):
    """(largest difference over the spread of the logits, whether the tokens chosen are the same)."""
    loaded = llama_cpp.Model(path)
    worst, same = 0.0, True
    for ids in IDS:
        ids = [one % loaded.vocab_size for one in ids]
        expected, found = expected_logits(model, ids), loaded.logits(ids)
        worst = max(worst, float(numpy.abs(expected - found).max() / expected.std()))
        same = same and bool((expected.argmax(-1) == found.argmax(-1)).all())
    loaded.close()
    return worst, same

# A tokenizer of tests/engine/data/fixtures, a change of its tokenizer.json, and llama.cpp's name of its pre-tokenizer.
DATA = os.path.join(ROOT, "tests", "engine", "data", "fixtures")
TOKENIZERS = {
    "gpt2": ("gpt2", None, "gpt-2"),
    "smollm": ("gpt2", "digits", "smollm"),
    "qwen2": ("qwen2", None, "qwen2"),
    "llama3": ("llama3", None, "llama-bpe"),
    "dbrx": ("llama3", "merges", "dbrx"),
    "tekken": ("llama3", "tekken", "tekken"),
    "gpt-4o": ("llama3", "gpt-4o", "gpt-4o"),
    "qwen35": ("qwen2", "qwen35", "qwen35"),
    "spm-merges": ("spm", None, "default"),
    "spm-scores": ("spm", "scores", "default"),
    "spm-first": ("spm", "first", "default"),
    "spm-gemma": ("spm", "gemma", "default"),
}
PATTERNS = {
    "tekken": r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    "gpt-4o": r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    "qwen35": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
}
TEMPLATE = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
VOCAB = 3072


def hard_texts():
    """50 texts of the tokenizer oracle's generator, and texts that people write."""
    from text_generator import make_text
    with open(os.path.join(DATA, "unicode14.txt")) as file:
        ranges = [(int(first, 16), int(count)) for first, count in map(str.split, file)]
    made = [make_text(7, index, ranges) for index in range(50)]
    return made


def make_tokenizer(name, folder):
    """A model directory: tiny-llama with random rows for VOCAB tokens, and the tokenizer."""
    base, change, _ = TOKENIZERS[name]
    shutil.copytree(os.path.join(FIXTURES, "tiny-llama"), folder)
    with open(os.path.join(folder, "config.json")) as file:
        config = json.load(file)
    config["vocab_size"] = VOCAB
    for key in ("bos_token_id", "eos_token_id", "pad_token_id"):
        config.pop(key, None)
    with open(os.path.join(folder, "config.json"), "w") as file:
        json.dump(config, file)
    from safetensors.torch import load_file, save_file
    weights = load_file(os.path.join(folder, "model.safetensors"))
    generator = torch.Generator().manual_seed(1)
    weights["model.embed_tokens.weight"] = torch.randn(VOCAB, config["hidden_size"], generator=generator) * 0.1
    save_file(weights, os.path.join(folder, "model.safetensors"), {"format": "pt"})
    write_tokenizer(base, change, folder)


def write_tokenizer(base, change, folder):
    with open(os.path.join(DATA, base, "tokenizer.json")) as file:
        tokenizer = json.load(file)
    # Flags that GGUF has no form for: the test of the refusals and notes has them.
    tokenizer["added_tokens"] = [one for one in tokenizer["added_tokens"]
                                 if not (one["single_word"] or one["lstrip"] or one["rstrip"]) and one["content"].isascii()]
    new = len(tokenizer["model"]["vocab"])
    for one in tokenizer["added_tokens"]:
        one["normalized"] = False
        if one["content"] not in tokenizer["model"]["vocab"]:
            one["id"], new = new, new + 1
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "chat_template": TEMPLATE}
    texts = {one["content"] for one in tokenizer["added_tokens"]}
    for role, names in (("bos_token", ["<|begin_of_text|>", "<s>"]),
                        ("eos_token", ["<|end_of_text|>", "</s>", "<|im_end|>", "<|endoftext|>"]),
                        ("unk_token", ["<unk>"])):
        found = [one for one in names if one in texts]
        if found:
            config[role] = found[0]
    if change == "digits":
        tokenizer["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [
            {"type": "Digits", "individual_digits": True}, tokenizer["pre_tokenizer"]]}
    elif change == "merges":
        tokenizer["model"]["ignore_merges"] = False
    elif change in PATTERNS:
        tokenizer["pre_tokenizer"]["pretokenizers"][0]["pattern"] = {"Regex": PATTERNS[change]}
        tokenizer["model"]["ignore_merges"] = change == "tekken"
        tokenizer["normalizer"] = None
    elif change == "scores":
        shutil.copy(os.path.join(DATA, base, "tokenizer.model"), folder)
    elif change == "first":
        tokenizer["normalizer"] = None
        tokenizer["pre_tokenizer"] = {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "first",
                                      "split": False}
    elif change == "gemma":
        tokenizer["normalizer"] = {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}
        tokenizer["pre_tokenizer"] = {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious",
                                      "invert": False}
    with open(os.path.join(folder, "tokenizer.json"), "w") as file:
        json.dump(tokenizer, file)
    with open(os.path.join(folder, "tokenizer_config.json"), "w") as file:
        json.dump(config, file)


# Of a model, where the converter's file cannot be compared: it gives up, or has tensors of the changed config.json.
NOT_CONVERTED = {
    "gpt-neox": "it needs rotary_pct, which transformers 5 no longer writes",
    "gpt-bigcode-heads": "it takes one key head",
    "hunyuan": "it takes alpha only of the published models",
    "ernie4.5": "it copies the biases that the changed config.json leaves out",
    "cohere2": "it copies the biases that the changed config.json leaves out",
    "gemma3-vision": "it reads a whole model of pictures",
}


def text_key(key):
    """Keys that describe a model to people, and depend on where it lies."""
    return key.startswith("general.") and key not in ("general.architecture", "general.type", "general.file_type",
                                                      "general.quantization_version")


def converted(model, name, outtype, pre=None):
    path = f"{model}.converted.{outtype}.gguf"
    convert(model, path, outtype, pre)
    reader = GGUFReader(path)
    keys = {key: value for key, value in keys_of(reader).items() if not text_key(key)}
    return {"keys": keys, "tensors": tensors_of(reader)}


def record_model(name, folder):
    model = os.path.join(folder, name)
    make_model(name, model)
    ours = os.path.join(folder, name + ".f32.gguf")
    export(model, ours, "f32")
    difference, same = compare_logits(model, ours)
    # Its GELU is a table of 16-bit numbers.
    gelu = name.split("-")[0] in ("gemma", "gemma2", "gemma3", "phi", "starcoder2", "gpt", "gpt2")
    assert same and difference < (5e-3 if gelu else 1e-5), (name, difference, same)
    record = {"fixture": MODELS[name][0], "config": MODELS[name][1],
              "llama_cpp": {"largest_difference": float(f"{difference:.1e}"), "crc32": crc_of(ours)}}
    if name in NOT_CONVERTED:
        record["not_converted"] = NOT_CONVERTED[name]
        return record
    for outtype in ("f32", "q8_0") + (("f16", "bf16") if name == "llama" else ()):
        record[outtype] = converted(model, name, outtype)
        if outtype != "f32":
            export(model, f"{model}.{outtype}.gguf", outtype)
        assert tensors_of(GGUFReader(f"{model}.{outtype}.gguf")) == record[outtype]["tensors"], (name, outtype)
    return record


def record_tokenizer(name, folder):
    import unicodedata
    from tokenizers import Tokenizer
    model = os.path.join(folder, name)
    make_tokenizer(name, model)
    ours = os.path.join(folder, name + ".f32.gguf")
    notes = export(model, ours, "f32")
    loaded, expected = llama_cpp.Model(ours), Tokenizer.from_file(os.path.join(model, "tokenizer.json"))
    texts = hard_texts()
    if "NFC" in notes:
        texts = [unicodedata.normalize("NFC", text) for text in texts]
    if "begins with one" in notes:
        texts = [text for text in texts if not text.startswith((" ", "\u2581"))]
    for text in texts:
        assert loaded.tokenize(text) == expected.encode(text).ids, (name, text)
    loaded.close()
    keys = converted(model, name, "f32", TOKENIZERS[name][2])["keys"]
    keys = {key: value for key, value in keys.items() if key.startswith("tokenizer.")}
    for key in ("tokens", "scores", "token_type", "merges"):  # long lists, by what they are
        found = keys.pop("tokenizer.ggml." + key, None)
        mine = keys_of(GGUFReader(ours)).get("tokenizer.ggml." + key)
        # Its tokenizers of tokenizer.json alone have equal scores, and no tokens for the rows behind them.
        if name.startswith("spm") and name != "spm-scores":
            continue
        assert found == mine, (name, key, [pair for pair in enumerate(zip(found, mine)) if pair[1][0] != pair[1][1]][:3])
    files = {}
    for file_name in ("config.json", "tokenizer.json", "tokenizer_config.json"):
        with open(os.path.join(model, file_name)) as file:
            files[file_name] = json.load(file)
    base = files["tokenizer.json"]
    base["model"] = {key: value for key, value in base["model"].items() if key not in ("vocab", "merges")}
    return {"base": TOKENIZERS[name][0], "files": files, "model_file": TOKENIZERS[name][1] == "scores", "keys": keys,
            "texts": len(texts), "crc32": vocabulary_crc(ours)}


def crc_of(path):
    with open(path, "rb") as file:
        return zlib.crc32(file.read())


def vocabulary_crc(path):
    """Of the tokens, kinds, merges and scores that llama.cpp was given."""
    keys = keys_of(GGUFReader(path))
    parts = ["\n".join(keys["tokenizer.ggml.tokens"]), ",".join(map(str, keys["tokenizer.ggml.token_type"])),
             "\n".join(keys.get("tokenizer.ggml.merges", [])),
             numpy.array(keys.get("tokenizer.ggml.scores", []), dtype="<f4").tobytes().hex()]
    return zlib.crc32("\0".join(parts).encode())


def main():
    logging.disable(logging.CRITICAL)
    folder = os.path.join(ROOT, "tests", OLMOE)
    shutil.rmtree(folder, ignore_errors=True)
    make_olmoe(folder)
    record = {"versions": {"xllamacpp": llama_cpp.VERSION, "gguf": importlib.metadata.version("gguf"),
                           "transformers": transformers.__version__, "torch": torch.__version__},
              "models": {}, "tokenizers": {}}
    with tempfile.TemporaryDirectory() as folder:
        for name in MODELS:
            record["models"][name] = record_model(name, folder)
            print(f"  {name}: {record['models'][name]['llama_cpp']['largest_difference']}", flush=True)
        os.mkdir(os.path.join(folder, "tokenizers"))
        for name in TOKENIZERS:
            record["tokenizers"][name] = record_tokenizer(name, os.path.join(folder, "tokenizers"))
            print(f"  {name}: {record['tokenizers'][name]['texts']} texts", flush=True)
    with open(OUT, "w") as file:
        json.dump(record, file, indent=None, separators=(",", ":"), ensure_ascii=False, sort_keys=True)
        file.write("\n")


if __name__ == "__main__":
    main()
