#!/usr/bin/env python3
"""First inputs of the fuzz targets: seeds.py DIRECTORY writes DIRECTORY/TARGET/NUMBER. Made here, from nothing else."""
import collections
import io
import json
import os
import pickle
import random
import struct
import sys
import types
import zipfile

DS_CONFIGS = [
    {"train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": 1, "bf16": {"enabled": "auto"},
     "zero_optimization": {"stage": 3, "reduce_bucket_size": 5e8, "stage3_prefetch_bucket_size": "auto",
                           "offload_optimizer": {"device": "cpu", "pin_memory": True}}},
    {"train_batch_size": 32, "fp16": {"enabled": True, "loss_scale": 0, "initial_scale_power": 16},
     "optimizer": {"type": "AdamW", "params": {"lr": 1e-5, "betas": [0.9, 0.999], "eps": 1e-8, "weight_decay": "auto"}},
     "scheduler": {"type": "WarmupDecayLR", "params": {"warmup_num_steps": 10, "total_num_steps": "auto"}}},
]
JINJA = [
    "{% for m in messages if m.role != 'x' %}{{ '<|' ~ m.role + '|>\n' }}{%- generation -%}{{ m.content | trim }}{% endgeneration %}{% endfor %}",
    "{% set ns = namespace(a=[1, 2.5, 'x', none]) %}{% macro f(x, y=2) %}{{ x[1:] | tojson(indent=2) }}{% endmacro %}{{ f(ns.a, y=n) }}",
    "{% if n is defined and n >= 3 %}{{ '%s %5.2f' % ('a', n) }}{{ '{:>4}'.format(n) }}{% elif not n %}{% raw %}{{{% endraw %}{% else %}{# c #}{% endif %}",
    "{{ messages | map(attribute='role') | join(', ') }}{% set x %}{{ 'a b'.split()[0].upper() }}{% endset %}{{ x ~ (n // 2) if n else {'k': (1,)} }}",
    "{% for a, b in {'x': 1}.items() recursive %}{{ loop.index }}{% continue %}{% else %}e{% endfor %}{% filter upper %}q{% endfilter %}",
]
HJSON = "{ # comment\n  train_batch_size: 8 // two\n  name: '''\n  many\n  lines'''\n  list: [1 2, 3,]\n}\n"
JOB = """apiVersion: training.dsj.dev/v1alpha1
kind: DeepSpeedJob
metadata: {name: a-job, labels: &l {x: "1"}}
spec:
  deepspeed:
    config: {train_micro_batch_size_per_gpu: auto, zero_optimization: {stage: 2}}
  training: {modelNameOrPath: m, dataPath: d.json, learningRate: 1e-6, bf16: yes, maxSteps: 010, saveStrategy: no}
  workers: {replicas: 1, slotsPerWorker: 2}
  other: *l
"""
ROLL = """defaults:
  - b@_here_
  - optional x: y
exp_name: run-${seed}
seed: 42
pretrain: m
actor_train:
  model_args: {dtype: bf16, lora_target: "q_proj,v_proj", lora_rank: 8}
  training_args: {learning_rate: 1.0e-6, per_device_train_batch_size: ${.gradient_accumulation_steps},
    gradient_accumulation_steps: 2, warmup_steps: 0x10}
  data_args: {file_name: [a.jsonl]}
  strategy_args: {strategy_name: deepspeed_train, strategy_config: "${zero}"}
  device_mapping: list(range(0,8)) + [9]
"""
ROLL_B = "# @package _global_\nzero: &z {zero_optimization: {stage: 2}}\nagain: {<<: *z, a: on, b: 1:30, c: 1_000}\n"
SCRIPT = """#!/bin/bash
GPUS=${1:-8}
ARGS=(--deepspeed ds.json --bf16 True)
export M="a model"
if [ -n "$X" ]; then M=b; fi
torchrun --nproc_per_node $GPUS --nnodes=1:2 \\
  train.py "${ARGS[@]}" --model_name_or_path "$M" --data_path `pwd`/d 2>&1 | tee log
deepspeed --hostfile hosts --include w0:0,1@w1 t.py --deepspeed_config ds.json <<EOF
text
EOF
"""
CONFIG = {"model_type": "qwen2", "hidden_size": 64, "vocab_size": 512, "intermediate_size": 128, "num_hidden_layers": 2,
          "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 128, "hidden_act": "silu",
          "rms_norm_eps": 1e-6, "rope_theta": 1e6, "tie_word_embeddings": False}


def byte_alphabet():
    printable = list(range(33, 127)) + list(range(161, 173)) + list(range(174, 256))
    table, more = {}, 256
    for byte in range(256):
        if byte in printable:
            table[byte] = chr(byte)
        else:
            table[byte] = chr(more)
            more += 1
    return table


def tokenizers():
    """One byte-level BPE, one of SentencePiece's form."""
    alphabet = list(byte_alphabet().values())
    vocab = {token: i for i, token in enumerate(alphabet + ["lo", "low", "er"])}
    added = [{"id": len(vocab), "content": "<s>", "single_word": False, "lstrip": False, "rstrip": True,
              "normalized": False, "special": True}]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    yield {"version": "1.0", "added_tokens": added, "normalizer": {"type": "NFC"},
           "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
               {"type": "Split", "pattern": {"Regex": "\\p{L}+|\\s+"}, "behavior": "Isolated", "invert": False},
               byte_level]},
           "post_processor": byte_level, "decoder": byte_level,
           "model": {"type": "BPE", "dropout": None, "unk_token": None, "fuse_unk": False, "byte_fallback": False,
                     "ignore_merges": True, "vocab": vocab, "merges": ["l o", ["lo", "w"], "e r"]}}
    pieces = ["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)] + list("\u2581lowern") + ["lo", "low", "\u2581low"]
    yield {"version": "1.0", "added_tokens": [
        {"id": i, "content": pieces[i], "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
         "special": True} for i in range(3)],
        "normalizer": {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "\u2581"}, {
            "type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}]},
        "pre_tokenizer": None,
        "post_processor": {"type": "TemplateProcessing",
                           "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}},
                                      {"Sequence": {"id": "A", "type_id": 0}}],
                           "pair": [], "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}}},
        "decoder": {"type": "Sequence", "decoders": [
            {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "}, {"type": "ByteFallback"},
            {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
        "model": {"type": "BPE", "dropout": None, "unk_token": "<unk>", "fuse_unk": True, "byte_fallback": True,
                  "ignore_merges": False, "vocab": {piece: i for i, piece in enumerate(pieces)},
                  "merges": ["l o", "lo w", "\u2581 low"]}}


def safetensors():
    header = json.dumps({"__metadata__": {"format": "pt"}, "a": {"dtype": "F32", "shape": [2, 2], "data_offsets": [0, 16]},
                         "b": {"dtype": "BF16", "shape": [], "data_offsets": [16, 18]}}).encode()
    return struct.pack("<Q", len(header)) + header + bytes(18)


def sentencepiece():
    """A byte-pair model: pieces, trainer_spec {model_type 2, byte_fallback}, normalizer_spec {no map, spaces kept}."""
    def field(number, data):
        return bytes([number << 3 | 2, len(data)]) + data

    pieces = [("<unk>", 2), ("<s>", 3), ("</s>", 3)] + [(f"<0x{b:02X}>", 6) for b in (0x0A, 0xC3, 0xA9)]
    pieces += [(text, 1) for text in list("\u2581lower") + ["lo", "low", "\u2581low"]]
    out = b""
    for rank, (text, kind) in enumerate(pieces):
        score = b"\x15" + struct.pack("<f", -rank)
        out += field(1, field(1, text.encode()) + score + bytes([0x18, kind]))
    return out + field(2, b"\x18\x02" + b"\x98\x02\x01") + field(3, field(1, b"identity") + b"\x18\x01\x20\x00\x28\x01")


def torch_pickle(root_of):
    """What torch.save writes for root_of(Tensor), by stand-ins for torch's names. All tensors view 4 floats."""
    torch, utils = types.ModuleType("torch"), types.ModuleType("torch._utils")

    class FloatStorage:
        pass

    def _rebuild_tensor_v2(*_):
        pass

    for module, item, name in ((torch, FloatStorage, "torch"), (utils, _rebuild_tensor_v2, "torch._utils")):
        item.__module__, item.__qualname__ = name, item.__name__
        setattr(module, item.__name__, item)
        sys.modules[name] = module

    class Storage:
        pass

    class Tensor:
        def __init__(self, shape, stride):
            self.shape, self.stride = shape, stride

        def __reduce__(self):
            return _rebuild_tensor_v2, (storage, 0, self.shape, self.stride, False, collections.OrderedDict())

    class Pickler(pickle.Pickler):
        def persistent_id(self, item):
            return ("storage", FloatStorage, "0", "cpu", 4) if isinstance(item, Storage) else None

    storage, out = Storage(), io.BytesIO()
    Pickler(out, protocol=2).dump(root_of(Tensor))
    return out.getvalue()


def state_dict_pickle():
    """{"a": 2 x 2 floats, "b": its first row}."""
    return torch_pickle(lambda tensor: collections.OrderedDict(a=tensor((2, 2), (2, 1)), b=tensor((2,), (1,))))


def deepspeed_model(tensor):
    """Model states of a run without ZeRO."""
    whole = [tensor((2, 2), (2, 1)) for _ in range(3)]
    return {"module": collections.OrderedDict(a=whole[0]), "buffer_names": ["b"], "param_shapes": None, "global_steps": 3,
            "skipped_steps": 1, "lr_scheduler": {"last_batch_iteration": 1}, "dp_world_size": 1, "ds_version": "0.19.8",
            "optimizer": {"state": {0: {"step": 2, "exp_avg": whole[1], "exp_avg_sq": whole[2]}},
                          "param_groups": [{"lr": 0.5, "betas": (0.9, 0.95), "params": [0]}]}}


def deepspeed_optimizer(tensor):
    """Optimizer states of a rank at stage 2."""
    flat = [tensor((4,), (1,)) for _ in range(3)]
    return {"optimizer_state_dict": {
        "loss_scaler": None, "dynamic_loss_scale": True, "partition_count": [1], "single_partition_of_fp32_groups": [flat[0]],
        "param_alignment_paddings": [[0]], "base_optimizer_state": {
            "state": {0: {"step": 2, "exp_avg": flat[1], "exp_avg_sq": flat[2]}}, "param_groups": [{"lr": 0.5, "params": [0]}]}}}


def torch_file(pickled):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as archive:
        for name, data in (("data.pkl", pickled), ("byteorder", b"little"), ("data/0", bytes(16)),
                           ("version", b"3\n")):
            archive.writestr(zipfile.ZipInfo("archive/" + name), data)
    return out.getvalue()


def indexed_lists():
    """Lists [7] and [1, 2] as DeepSpeed's analyzer writes them, in int32 and in uint8."""
    for code, letter in ((4, "i"), (1, "B")):
        size = struct.calcsize(letter)
        index = b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, code, 2, 2) + struct.pack("<2i", 1, 2) + \
            struct.pack("<4q", 0, size, 0, 2)
        yield struct.pack("<I", len(index)) + index + struct.pack(f"<3{letter}", 7, 1, 2)


def reviews():
    """What an API server asks the webhook: of a new job, and of an edit."""
    job = {"apiVersion": "training.dsj.dev/v1alpha1", "kind": "DeepSpeedJob", "metadata": {"name": "a"}, "spec": {
        "deepspeed": {"config": DS_CONFIGS[0]}, "training": {"modelNameOrPath": "/m", "dataPath": "/d", "outputDir": "/o", "lora": {"r": 8}},
        "workers": {"replicas": 2, "template": {"metadata": {"labels": {"a": "b"}}, "spec": {
            "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": []}]}}},
            "containers": [{"name": "worker", "image": "i", "env": [{"name": "A"}], "volumeMounts": [{"name": "v", "mountPath": "/v"}]}]}}},
        "failurePolicy": {"rules": [{"action": "Restart", "onExitCodes": {"values": [1]}}]}}}
    program = dict(job, spec=dict(job["spec"], launcher="Command"), status={"phase": "Running"})
    for operation, before in (("CREATE", None), ("UPDATE", program)):
        yield json.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
            "uid": "u", "operation": operation, "object": job, "oldObject": before}}).encode()


def main():
    tokenizer_files = [json.dumps(t).encode() for t in tokenizers()]
    seeds = {
        "ds_config_fuzz": [json.dumps(c, indent=1).encode() for c in DS_CONFIGS] + [HJSON.encode()],
        "yaml_fuzz": [JOB.encode(), ROLL.encode(), ROLL_B.encode()],
        "review_fuzz": list(reviews()),
        "safetensors_fuzz": [safetensors()],
        "indexed_lists_fuzz": list(indexed_lists()),
        "torch_file_fuzz": [torch_file(state_dict_pickle()), b"p" + state_dict_pickle()],
        "deepspeed_fuzz": [b"m" + torch_file(torch_pickle(deepspeed_model)), b"o" + torch_file(torch_pickle(deepspeed_optimizer))],
        "model_config_fuzz": [json.dumps(CONFIG).encode()],
        "tokenizer_json_fuzz": tokenizer_files + [tokenizer_files[0] + b"\0" + json.dumps(
            {"bos_token": "<s>", "eos_token": {"content": "<s>"}, "tokenizer_class": "Qwen2Tokenizer"}).encode()],
        "jinja_fuzz": [one.encode() + b"\0" + json.dumps({"messages": [{"role": "user", "content": "a"}], "n": 3}).encode() for one in JINJA],
        "sentencepiece_fuzz": [sentencepiece()],
        "roll_fuzz": [ROLL.encode() + b"\0" + ROLL_B.encode()],
        "reconcile_fuzz": [random.Random(seed).randbytes(512) for seed in range(16)],
        "launcher_fuzz": [b"s" + SCRIPT.encode(), b"hw0 slots=2\nw1 slots=2 # c\n\0w1:0@w0", b"dlist(range(0,8)) + [9]"],
    }
    for target, inputs in seeds.items():
        folder = os.path.join(sys.argv[1], target)
        os.makedirs(folder, exist_ok=True)
        for number, data in enumerate(inputs):
            with open(os.path.join(folder, str(number)), "wb") as out:
                out.write(data)


if __name__ == "__main__":
    main()
