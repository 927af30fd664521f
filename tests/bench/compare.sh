#!/usr/bin/env bash
# Speed of the bare model beside llama.cpp's on the same file, the same cores and the same minutes:
# the two are run in turn, and what is printed is the median of the ratios round by round with their
# spread, because a shared machine changes its speed from minute to minute.
#
# usage: tests/bench/compare.sh LLAMA_CPP_BIN MODEL.gguf [ROUNDS]
#
# LLAMA_CPP_BIN is the folder with llama-bench and llama-batched-bench. Threads: THREADS (default:
# all cores), for both sides. Our program: VITRINE_SERVER (default build/server/vitrine-server).
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)

if [ $# -lt 2 ] || [ $# -gt 3 ]; then
  sed -n 's/^# usage: /usage: /p' "${BASH_SOURCE[0]}" >&2
  exit 2
fi
peer=$1
model=$2
rounds=${3:-5}
threads=${THREADS:-$(nproc)}
server=${VITRINE_SERVER:-$root/build/server/vitrine-server}
for program in "$peer/llama-bench" "$peer/llama-batched-bench" "$server"; do
  [ -x "$program" ] || { echo "compare.sh: $program is not there" >&2; exit 1; }
done
[ -r "$model" ] || { echo "compare.sh: cannot read $model" >&2; exit 1; }

results=$(mktemp -d)
trap 'rm -rf "$results"' EXIT

for round in $(seq "$rounds"); do
  echo "round $round of $rounds" >&2
  "$server" bench-model "$model" --threads="$threads" --json \
    >"$results/ours.$round" 2>"$results/log" || { cat "$results/log" >&2; exit 1; }
  for depth in 0 4096; do
    "$peer/llama-bench" -m "$model" -t "$threads" -p 512 -n 128 -d "$depth" -r 2 -o json \
      >"$results/peer.$round.$depth" 2>"$results/log" || { cat "$results/log" >&2; exit 1; }
  done
  "$peer/llama-batched-bench" -m "$model" -t "$threads" -c 4096 -npp 128 -ntg 64 \
    -npl 2,4,8,16 --output-format jsonl \
    >"$results/batched.$round" 2>"$results/log" || { cat "$results/log" >&2; exit 1; }
done

python3 - "$results" "$rounds" <<'PYTHON'
import json
import statistics
import sys

folder, rounds = sys.argv[1], int(sys.argv[2])


def peer_figures(r):
    figures = {}
    for depth, suffix in (("0", ""), ("4096", "@4096")):
        for row in json.load(open(f"{folder}/peer.{r}.{depth}")):
            kind = "prefill" if row["n_gen"] == 0 else "decode"
            figures[kind + suffix] = row["avg_ts"]
    for line in open(f"{folder}/batched.{r}"):
        if line.startswith("{"):
            row = json.loads(line)
            figures[f"batch{row['pl']}"] = row["speed_tg"]
    return figures


ours = [json.loads(open(f"{folder}/ours.{r}").read()) for r in range(1, rounds + 1)]
peers = [peer_figures(r) for r in range(1, rounds + 1)]
limits = [(run["read_gb_s_before"], run["int8_gop_s_before"]) for run in ours]
print(f"read {min(l[0] for l in limits):.1f} to {max(l[0] for l in limits):.1f} GB/s, "
      f"int8 {min(l[1] for l in limits):.0f} to {max(l[1] for l in limits):.0f} GOP/s")
print(f"{'':14} {'ours':>10} {'llama.cpp':>10} {'ratio':>7}  lowest to highest")
for name in ("prefill", "decode", "batch2", "batch4", "batch8", "batch16", "prefill@4096",
             "decode@4096"):
    if not all(name in run for run in ours + peers):
        print(f"{name:14} not measured by both")
        continue
    ratios = [a[name] / b[name] for a, b in zip(ours, peers)]
    print(f"{name:14} {statistics.median(a[name] for a in ours):10.1f} "
          f"{statistics.median(b[name] for b in peers):10.1f} {statistics.median(ratios):7.2f}  "
          f"{min(ratios):.2f} to {max(ratios):.2f}")
PYTHON
