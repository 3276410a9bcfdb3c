#!/usr/bin/env bash
# quickstart.sh BUILD [DIRECTORY]: makes a small model and rows to train it on, asks it held-out questions, trains it with
# `dsj run` on two ranks, and asks again. Exit 1 when it did not learn every task.
# QUICKSTART_SEED: another model, other rows.
set -euo pipefail
cd "$(dirname "$0")/.."
bin="$1/bin" here="${2:-out/quickstart}" seed="${QUICKSTART_SEED:-1}"
tasks=(sums reversals lookups)

ask() {  # ask MODEL_DIRECTORY NAME: answers into answers/NAME-TASK.jsonl; the last line of each counts the exact matches
  for task in "${tasks[@]}"; do
    "$bin/dsj" generate --model "$1" --data "$here/data/heldout-$task.json" --max-new-tokens 32 -o json \
      >"$here/answers/$2-$task.jsonl"
  done
}

rm -rf "$here"; mkdir -p "$here/answers"
"$bin/dsj-make-quickstart" --output "$here" --seed "$seed"
ask "$here/model" before
"$bin/dsj" run "$here/job.yaml"
ask "$here/run/model" after
"$bin/dsj" plot "$here/run" >/dev/null

python3 - "$bin" "$here" "${tasks[@]}" <<'END'
import json, sys
bin, here, tasks = sys.argv[1], sys.argv[2], sys.argv[3:]
def answers(name):
    return [json.loads(line) for line in open(f"{here}/answers/{name}.jsonl", encoding="utf-8")]
print(f"\n{'held-out questions':<20} {'before':>12} {'after':>12}   one answer after training")
learnt = True
for task in tasks:
    before, after = answers("before-" + task), answers("after-" + task)
    row, total = after[0], after[-1]["judged"]
    learnt &= after[-1]["exact"] >= before[-1]["exact"] + total // 2
    question = (row["instruction"] + " " + row.get("input", "")).strip()
    print(f"{task:<20} {before[-1]['exact']:>6} / {total:<3} {after[-1]['exact']:>6} / {total:<3}   "
          f"{question} -> {row['completion']}")
print(f"""
model      {here}/run/model, a Hugging Face directory
curves     {here}/run/plot.html, a page; in the terminal: {bin}/dsj plot {here}/run
read next  docs/quickstart.md: the same by hand, a stop and a resume, ZeRO-3""")
if not learnt:
    sys.exit("quickstart: a task was not learnt: fewer than half of its questions more than before are right")
END
