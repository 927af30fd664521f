#!/usr/bin/env bash
# Speed as clients see it beside llama-server's, on the same file, cores and minutes: per number of
# clients the two servers answer the same load in turn, each alone on the machine but for its
# clients. Prints the medians of the ratios round by round with their spread.
#
# usage: tests/bench/served.sh LLAMA_CPP_BIN MODEL.gguf [ROUNDS [CLIENTS...]]
#
# LLAMA_CPP_BIN is the folder with llama-server, which gets one slot per client, no shared cache and
# its own choice of flash attention. CLIENTS: default 1 4 8 16. Prompts of 128 different random
# tokens, answers of 128. THREADS (default: all cores) is for both sides. Our programs: VITRINE_BUILD
# (default build).
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)

if [ $# -lt 2 ]; then
  sed -n 's/^# usage: /usage: /p' "${BASH_SOURCE[0]}" >&2
  exit 2
fi
peer=$1/llama-server
model=$2
rounds=${3:-5}
clients=("${@:4}")
[ ${#clients[@]} -gt 0 ] || clients=(1 4 8 16)
threads=${THREADS:-$(nproc)}
build=${VITRINE_BUILD:-$root/build}
port=18080
source "$root/tests/bench/server_process.sh"
need_programs "$peer" "$build/server/vitrine-server" "$build/client/vitrine"

ours() {  # ROUND CLIENTS
  "$build/server/vitrine-server" --model="$model" --threads="$threads" \
    --listen="unix:$results/socket" >"$results/log" 2>&1 &
  server=$!
  local address=--server=unix:$results/socket
  await "$build/client/vitrine" health "$address"
  "$build/client/vitrine" bench "$address" --json --concurrency="$2" --requests=$((4 * $2)) \
    --prompt_tokens=128 --output_tokens=128 --temperature=0 --load_seed="$1" \
    >"$results/ours.$1.$2" 2>"$results/progress" || { cat "$results/progress" >&2; exit 1; }
  stop_server
}

theirs() {  # ROUND CLIENTS
  "$peer" -m "$model" -t "$threads" -np "$2" -c $((512 * $2)) --port "$port" \
    >"$results/log" 2>&1 &
  server=$!
  await python3 -c "import urllib.request as r; r.urlopen('http://127.0.0.1:$port/health')"
  local load=(python3 "$root/tests/bench/completion_load.py" --port="$port" --concurrency="$2")
  "${load[@]}" --requests="$2" --seed=0 >/dev/null
  "${load[@]}" --requests=$((4 * $2)) --seed="$1" >"$results/theirs.$1.$2"
  stop_server
}

for round in $(seq "$rounds"); do
  for count in "${clients[@]}"; do
    echo "round $round of $rounds, $count clients" >&2
    ours "$round" "$count"
    theirs "$round" "$count"
  done
done

python3 - "$results" "$rounds" "${clients[@]}" <<'PYTHON'
import json
import statistics
import sys

folder, rounds, clients = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
figures = (("output tokens/s", lambda run: run["output_tokens_per_s"]),
           ("TTFT p99, ms", lambda run: run["ttft_ms"]["p99"]),
           ("ITL p50, ms", lambda run: run["itl_ms"]["p50"]),
           ("ITL p99, ms", lambda run: run["itl_ms"]["p99"]))
print(f"{'clients':>7} {'':16} {'ours':>10} {'llama-server':>12} {'ratio':>7}  lowest to highest")
for count in clients:
    pairs = [[json.load(open(f"{folder}/{side}.{r}.{count}")) for side in ("ours", "theirs")]
             for r in range(1, rounds + 1)]
    for name, figure in figures:
        ratios = [figure(a) / figure(b) for a, b in pairs]
        print(f"{count:>7} {name:16} {statistics.median(figure(a) for a, _ in pairs):10.1f} "
              f"{statistics.median(figure(b) for _, b in pairs):12.1f} "
              f"{statistics.median(ratios):7.2f}  {min(ratios):.2f} to {max(ratios):.2f}")
PYTHON
