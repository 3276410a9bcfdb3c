#!/usr/bin/env bash
# real_data.sh BUILD SHARED [DIRECTORY]: a Qwen2-shaped model over the full Qwen vocabulary on real alpaca rows, 2 ranks,
# 30 steps, for each ds_config below: checks that the loss falls, prints peak RSS and tokens/s; one run is stopped and resumed.
# SHARED contains corpus/ (tokenizers/qwen/qwen.tiktoken, alpaca/alpaca_sample.json, ds_configs/).
set -euo pipefail
cd "$(dirname "$0")/.."
bin="$1/bin" corpus="$2/corpus" here="${3:-out/real_data}"
configs=(configs/finetune_zero2.json configs/finetune_zero3.json "$corpus/ds_configs/QwenLM__Qwen__finetune__ds_config_zero3.json")
if [ ! -e "$corpus/alpaca/alpaca_sample.json" ]; then echo "real_data: no corpus at $corpus: skipped" >&2; exit 0; fi

rm -rf "$here"; mkdir -p "$here"
"$bin/dsj-make-model" --output "$here/model" --tokenizer "$corpus/tokenizers/qwen/qwen.tiktoken"

job() {  # job DS_CONFIG OUT: sets command
  command=("$bin/dsj" run --nproc_per_node=2 --deepspeed "$1" --model_name_or_path "$here/model"
    --data_path "$corpus/alpaca/alpaca_sample.json" --bf16 True --output_dir "$2" --max_steps 30
    --per_device_train_batch_size 4 --gradient_accumulation_steps 1 --evaluation_strategy no
    --save_strategy steps --save_steps 10 --save_total_limit 1 --learning_rate 1e-3 --weight_decay 0.
    --warmup_ratio 0.03 --model_max_length 512 --seed 1234 --logging_steps 5)
}

for config in "${configs[@]}"; do
  name="$(basename "$config" .json)"
  echo; echo "== $config"
  job "$config" "$here/$name"; "${command[@]}"
done

echo; echo "== resume: the first one again, stopped after step 10 and started again"
first="$(basename "${configs[0]}" .json)"
job "${configs[0]}" "$here/resumed"
"${command[@]}" &
run=$!
until grep -q '"step":12[,}]' "$here/resumed/metrics.jsonl" 2>/dev/null; do
  kill -0 "$run" 2>/dev/null || break
  sleep 0.1
done
kill -TERM "$run"; wait "$run" || echo "stopped with exit code $?"
"${command[@]}"

python3 - "$here" "$first" <<'END'
import glob, json, os, sys
here, first = sys.argv[1:]
def steps(name):
    return [json.loads(line) for line in open(f"{here}/{name}/metrics.jsonl", encoding="utf-8")]
print(f"\n{'run':<44} {'first loss':>10} {'last loss':>10} {'tokens/s':>9} {'peak RSS MiB':>13} {'wire MB/step':>13}")
ok = True
for path in sorted(glob.glob(f"{here}/*/metrics.jsonl")):
    name = os.path.basename(os.path.dirname(path))
    rows = steps(name)
    speed = sorted(row["tokens_per_second"] for row in rows[3:])[len(rows[3:]) // 2]
    print(f"{name:<44} {rows[0]['loss']:>10.4f} {rows[-1]['loss']:>10.4f} {speed:>9.0f} "
          f"{rows[-1]['host_rss_bytes'] / 2**20:>13.0f} {rows[-1]['wire_bytes'] / 1e6:>13.1f}")
    ok &= len(rows) == 30 and rows[-1]["loss"] < rows[0]["loss"] - 1
whole, resumed = steps(first), steps("resumed")
same = [a["loss"] for a in whole] == [b["loss"] for b in resumed]
print(f"resumed run: {len(resumed)} lines, losses {'bit-identical to' if same else 'DIFFERENT from'} the uninterrupted run")
sys.exit(0 if ok and same else "real_data: the loss did not fall, or the resumed run differs")
END
