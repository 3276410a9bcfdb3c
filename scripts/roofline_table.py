#!/usr/bin/env python3
"""Makes the table of docs/reports/roofline.md: what `dsj plan --device` computes for four models on 1 and 8 GPUs. Nothing is
measured.

Usage: roofline_table.py BIN            prints it
       roofline_table.py BIN --write    writes it into the page
       roofline_table.py BIN --check REPORT    checks that the page contains it

For each model it takes the first setting that fits, in the order of SETTINGS, with the largest micro-batch that fits.
"""
import json
import os
import subprocess
import sys
import tempfile

REPOSITORY = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
sys.path.insert(0, os.path.join(REPOSITORY, "tests/support"))
from cases import Report, expect  # noqa: E402

PAGE = os.path.join(REPOSITORY, "docs/reports/roofline.md")
BEGIN, END = "<!-- computed: begin -->\n", "<!-- computed: end -->\n"
ROW, BATCH = 1024, 524288  # tokens per row and per step
# Qwen2.5's sizes: hidden, inner, layers, heads, heads of keys and values, vocabulary, tied.
MODELS = {
    "0.5B": (896, 4864, 24, 14, 2, 151936, True),
    "1.5B": (1536, 8960, 28, 12, 2, 151936, True),
    "7B": (3584, 18944, 28, 28, 4, 152064, False),
    "32B": (5120, 27648, 64, 40, 8, 152064, False),
}
# Description for the table; stage, recompute, what is offloaded.
SETTINGS = {
    1: [("stage 0", 0, False, ()), ("stage 0, recompute", 0, True, ()),
        ("optimizer in host memory, recompute", 2, True, ("optimizer",)),
        ("optimizer and parameters in host memory, recompute", 3, True, ("optimizer", "param"))],
    8: [("stage 1", 1, False, ()), ("stage 1, recompute", 1, True, ()), ("stage 2, recompute", 2, True, ()),
        ("stage 3", 3, False, ()), ("stage 3, recompute", 3, True, ())],
}
DEVICES = ("h100", "h200")


def write_model(folder, sizes):
    hidden, inner, layers, heads, kv_heads, vocab, tied = sizes
    with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as file:
        json.dump({"model_type": "qwen2", "hidden_size": hidden, "intermediate_size": inner, "num_hidden_layers": layers,
                   "num_attention_heads": heads, "num_key_value_heads": kv_heads, "vocab_size": vocab,
                   "max_position_embeddings": 32768, "hidden_act": "silu", "rms_norm_eps": 1e-6, "rope_theta": 1e6,
                   "tie_word_embeddings": tied}, file)


def job(model, gpus, lora, setting, micro):
    _, stage, recompute, offloaded = setting
    zero = {"stage": stage, "overlap_comm": True}
    for what in offloaded:
        zero["offload_" + what] = {"device": "cpu"}
    training = {"modelNameOrPath": model, "dataPath": os.path.join(model, "rows.json"), "outputDir": model,
                "maxSteps": 1000, "maxSeqLength": ROW, "perDeviceTrainBatchSize": micro, "gradientCheckpointing": recompute}
    if lora:
        training["lora"] = {"r": 16, "targetModules": "all-linear"}
    config = {"bf16": {"enabled": True}, "train_micro_batch_size_per_gpu": micro,
              "gradient_accumulation_steps": BATCH // (ROW * micro * gpus), "zero_optimization": zero,
              "optimizer": {"type": "AdamW", "params": {"lr": 1e-5}}}
    return {"apiVersion": "training.dsj.dev/v1alpha1", "kind": "DeepSpeedJob", "metadata": {"name": "roofline"},
            "spec": {"deepspeed": {"config": config}, "training": training, 
                     # For other machines: the disk of this one is not a limit.
                     "workers": {"slotsPerWorker": gpus, "template": {"spec": {"containers": [{"name": "worker"}]}}}}}


def plan(binaries, folder, device, *what):
    """The plan, or None if it does not fit."""
    path = os.path.join(folder, "job.yaml")
    with open(path, "w", encoding="utf-8") as file:
        json.dump(job(folder, *what), file)
    done = subprocess.run([os.path.join(binaries, "dsj"), "plan", path, "-o", "json", "--device", device, "--memory",
                           "2000Gi"], capture_output=True, text=True)
    if "DoesNotFit" in done.stderr:
        return None
    expect(done.returncode == 0, done.stderr)
    return json.loads(done.stdout)


def best(binaries, folder, device, gpus, lora):
    """(description, micro-batch, plan) of the first setting that fits, or None."""
    for setting in SETTINGS[gpus]:
        for micro in (16, 8, 4, 2, 1):
            found = plan(binaries, folder, device, gpus, lora, setting, micro)
            if found:
                return setting[0], micro, found
    return None


def line(name, gpus, lora, found):
    head = f"| {name} | {gpus} | {'LoRA' if lora else 'full'} |"
    if not found:
        return f"{head} does not fit | | | | | |"
    words, micro, whole = found
    step = whole["roofline"]["step"]
    shown = max(whole["roofline"]["parts"], key=lambda part: part["milliseconds"] - part["hiddenMilliseconds"])
    share = (shown["milliseconds"] - shown["hiddenMilliseconds"]) / step["milliseconds"]
    return (f"{head} {words} | {micro} | {step['tokensPerSecond']:,.0f} | {step['shareOfPeak']:.0%} | "
            f"{step['launchesPerRank']:,} | {step['boundBy']}, {share:.0%} |")


def table(binaries):
    lines = []
    with tempfile.TemporaryDirectory() as folder:
        for device in DEVICES:
            lines += [f"Computed for `--device {device}`, not measured:\n",
                      "| model | GPUs | trains | setting | rows at a time | tokens/s | share of peak | launches of a step | most "
                      "of the time |",
                      "|---|---|---|---|---|---|---|---|---|"]
            for name, sizes in MODELS.items():
                write_model(folder, sizes)
                for gpus in SETTINGS:
                    for lora in (False, True):
                        lines.append(line(name, gpus, lora, best(binaries, folder, device, gpus, lora)))
            lines.append("")
    return "\n".join(lines)


def line_again(binaries, folder, device, there):
    """Computes a line with the setting that it names."""
    name, gpus, trains, words, micro = [cell.strip() for cell in there.split("|")[1:6]]
    gpus, lora = int(gpus), trains == "LoRA"
    write_model(folder, MODELS[name])
    if words == "does not fit":
        found = plan(binaries, folder, device, gpus, lora, SETTINGS[gpus][-1], 1)
        return line(name, gpus, lora, found and (SETTINGS[gpus][-1][0], 1, found))
    setting = next(one for one in SETTINGS[gpus] if one[0] == words)
    return line(name, gpus, lora, (words, int(micro), plan(binaries, folder, device, gpus, lora, setting, int(micro))))


def page():
    with open(PAGE, encoding="utf-8") as file:
        text = file.read()
    before, rest = text.split(BEGIN)
    return before, rest.split(END)


def check(binaries):
    _, (there, _) = page()
    device, rows = None, 0
    with tempfile.TemporaryDirectory() as folder:
        for one in there.splitlines():
            if one.startswith("Computed for"):
                device = one.split("`")[1].split()[-1]
            elif one.startswith("| ") and not one.startswith("| model"):
                again = line_again(binaries, folder, device, one)
                expect(again == one, f"{PAGE} has\n{one}\nand it is\n{again}\nscripts/roofline_table.py BIN --write")
                rows += 1
    expect(rows == 2 * len(MODELS) * len(SETTINGS) * len(DEVICES), f"{rows} lines")


def main():
    binaries, *rest = sys.argv[1:]
    if rest[:1] == ["--check"]:
        report = Report("roofline", rest[1])
        report.run("the_table_is_what_dsj_plan_computes", lambda: check(binaries))
        sys.exit(report.write())
    text = table(binaries)
    if rest == ["--write"]:
        before, (_, after) = page()
        with open(PAGE, "w", encoding="utf-8") as file:
            file.write(before + BEGIN + text + END + after)
    print(text)


if __name__ == "__main__":
    main()
