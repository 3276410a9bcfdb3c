#!/usr/bin/env python3
"""Prints CASES.json for deepspeed_run.py: settings beyond the recorded runs, one mechanism each.

deepspeed_cases.py > cases.json
"$(tests/oracle/deepspeed_venv.sh)" tests/oracle/deepspeed_run.py cases.json --models ../shared/golden/models -o recorded
scripts/golden_table.py --golden recorded
"""
import json

BF16 = {"bf16": {"enabled": True}}
UNTESTED = {"zero_allow_untested_optimizer": True}
CASES = {}


def fp16(**more):
    return {"fp16": {"enabled": True, "initial_scale_power": 16, "loss_scale_window": 4, "hysteresis": 2,
                     "min_loss_scale": 1, **more}}


def typed(name, **params):
    return {"type": name, "params": params}


ADAMW = typed("AdamW", lr=2e-3, betas=[0.9, 0.95], eps=1e-8, weight_decay=0.1, torch_adam=True)


def add(name, precision=None, accum=1, zero=None, optimizer=ADAMW, scheduler=None, **more):
    """`name` as deepspeed_run.py wants it: model_precision_zSTAGE_wWORLD[_what]."""
    model, _, stage, world = name.split("_")[:4]
    config = {"train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": accum, "optimizer": optimizer,
              "zero_optimization": {"stage": int(stage[1:]), **(zero or {})}, **(precision or {}),
              "gradient_clipping": 1.0, **more}
    if scheduler:
        config["scheduler"] = scheduler
    CASES[name] = {"model": "tiny-" + model, "data": "data_s64_v512.json", "world": int(world[1:]), "ds_config": config}


def precision_cases():
    add("llama_fp16_z1_w2", fp16())
    add("llama_fp16_z2_w2_scale32", fp16(initial_scale_power=32))
    add("llama_fp16_z3_w2_scale32cons", fp16(initial_scale_power=32, consecutive_hysteresis=True, hysteresis=3))
    add("qwen2_fp16_z2_w2_scale24acc2", fp16(initial_scale_power=24, loss_scale_window=2), accum=2)
    add("qwen2_fp16_z3_w2", fp16())
    add("gpt2_fp16_z1_w2_scale28", fp16(initial_scale_power=28))
    add("gpt2_fp16_z3_w2", fp16())
    add("gpt2_bf16_z2_w2", BF16)
    add("gpt2_bf16_z3_w2_acc2", BF16, accum=2)
    add("llama_bf16_z1_w2", BF16)
    add("llama_bf16_z3_w2", BF16)
    add("llama_bf16_z2_w2_commfp32", BF16, communication_data_type="fp32")
    add("qwen2_fp32_z2_w2_commbf16", communication_data_type="bf16")
    add("qwen2_fp32_z1_w2_commfp16", communication_data_type="fp16")
    add("qwen2_fp16_z2_w2_accfp32", fp16(), accum=2, data_types={"grad_accum_dtype": "fp32"})
    add("qwen2_fp32_z2_w2_prescale", prescale_gradients=True)
    add("qwen2_bf16_z2_w2_predivide", BF16, gradient_predivide_factor=4.0)
    add("qwen2_fp32_z0_w2_predivide", gradient_predivide_factor=4.0)
    add("qwen2_fp32_z0_w2_sum", gradient_allreduce_op="sum")
    add("qwen2_fp32_z2_w2_sum", gradient_allreduce_op="sum")
    add("llama_fp16_z2_w2_static", {"fp16": {"enabled": True, "loss_scale": 512}})
    add("llama_fp16_z2_w2_minscale", fp16(initial_scale_power=32, min_loss_scale=2 ** 31))
    add("qwen2_fp32_z3_w4")
    add("llama_fp32_z2_w3")


def optimizer_cases():
    params = {"RMSprop": {"lr": 1e-3, "alpha": 0.9, "momentum": 0.9, "centered": True, "weight_decay": 0.01},
              "Adamax": {"lr": 2e-3}, "NAdam": {"lr": 2e-3, "weight_decay": 0.01}, "RAdam": {"lr": 2e-3},
              "Adadelta": {"lr": 1.0}, "ASGD": {"lr": 1e-2}, "Rprop": {"lr": 1e-3},
              "Adagrad": {"lr": 1e-2, "weight_decay": 0.01}}
    for name, values in params.items():
        add("qwen2_fp32_z2_w2_" + name.lower(), optimizer=typed(name, **values), **UNTESTED)
        add("llama_fp32_z0_w2_" + name.lower(), optimizer=typed(name, **values), **UNTESTED)
    add("qwen2_fp32_z3_w2_sgd", optimizer=typed("SGD", lr=0.05, momentum=0.9), **UNTESTED)
    add("qwen2_fp32_z2_w2_amsgrad", optimizer=typed("Adam", lr=1e-3, torch_adam=True, amsgrad=True))
    add("gpt2_fp32_z1_w2_sgdplain", optimizer=typed("SGD", lr=0.1, weight_decay=0.1), **UNTESTED)
    add("qwen2_bf16_z2_w2_sgd", BF16, optimizer=typed("SGD", lr=0.05, momentum=0.9, dampening=0.1), **UNTESTED)
    add("qwen2_fp16_z1_w2_adagrad", fp16(), optimizer=typed("Adagrad", lr=1e-2), **UNTESTED)


def schedule_cases():
    add("llama_fp32_z1_w2_onecycle", scheduler=typed(
        "OneCycle", cycle_min_lr=1e-4, cycle_max_lr=2e-3, cycle_first_step_size=6, cycle_second_step_size=4,
        decay_lr_rate=0.1, decay_step_size=2, cycle_min_mom=0.8, cycle_max_mom=0.95, decay_mom_rate=0.05))
    add("llama_fp32_z2_w2_onecyclestair", scheduler=typed(
        "OneCycle", cycle_min_lr=1e-4, cycle_max_lr=2e-3, cycle_first_step_size=6, cycle_first_stair_count=3,
        cycle_second_stair_count=2))
    add("llama_fp32_z2_w2_lrrange", scheduler=typed(
        "LRRangeTest", lr_range_test_min_lr=1e-4, lr_range_test_step_size=3, lr_range_test_step_rate=2.0,
        lr_range_test_staircase=True))
    add("llama_fp32_z2_w2_cosine", scheduler=typed(
        "WarmupCosineLR", total_num_steps=20, warmup_num_steps=5, warmup_min_ratio=0.1, cos_min_ratio=0.05))
    add("llama_fp32_z2_w2_decay15", scheduler=typed(
        "WarmupDecayLR", total_num_steps=15, warmup_num_steps=4, warmup_max_lr=2e-3))
    add("llama_fp16_z2_w2_warmupscale32", fp16(initial_scale_power=32),
        scheduler=typed("WarmupLR", warmup_max_lr=2e-3, warmup_num_steps=6))
    add("llama_fp32_z2_w2_steplr", scheduler=typed("StepLR", step_size=5, gamma=0.5))
    add("llama_fp32_z2_w2_cosannealing", scheduler=typed("CosineAnnealingLR", T_max=15))


def offload_cases():
    both = {"offload_optimizer": {"device": "cpu"}, "offload_param": {"device": "cpu"}}
    add("qwen2_fp32_z3_w2_offall", zero=both)
    add("llama_bf16_z2_w2_off", BF16, zero={"offload_optimizer": {"device": "cpu"}})
    add("llama_fp16_z2_w2_off", fp16(), zero={"offload_optimizer": {"device": "cpu"}})


precision_cases()
optimizer_cases()
schedule_cases()
offload_cases()
print(json.dumps(CASES, indent=1))
