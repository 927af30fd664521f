#!/usr/bin/env bash
# What the engine promises, measured through the built programs: fairness beside a long prompt, the
# work that a shared prefix saves, the cost of the prefix cache when it never hits, and overload.
#
# usage: tests/bench/engine.sh MODEL.gguf [fairness] [prefix] [cache_cost] [overload]
#
# Without names, all four; about five minutes on a quiet machine of two cores. The model's context
# must hold 6,100 tokens. ROUNDS (default 5) is for cache_cost, SECONDS_OVER (default 60) for
# overload. Our programs: VITRINE_BUILD (default build).
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)

if [ $# -lt 1 ]; then
  sed -n 's/^# usage: /usage: /p' "${BASH_SOURCE[0]}" >&2
  exit 2
fi
model=$1
parts=("${@:2}")
[ ${#parts[@]} -gt 0 ] || parts=(fairness prefix cache_cost overload)
build=${VITRINE_BUILD:-$root/build}
source "$root/tests/bench/server_process.sh"
need_programs "$build/server/vitrine-server" "$build/client/vitrine"

start_server() {  # FLAG...
  "$build/server/vitrine-server" --model="$model" --listen="unix:$results/socket" "$@" \
    >"$results/log" 2>&1 &
  server=$!
  await "$build/client/vitrine" health "--server=unix:$results/socket"
}

bench() {  # FLAG...
  "$build/client/vitrine" bench "--server=unix:$results/socket" "$@" 2>"$results/progress" ||
    { cat "$results/progress" >&2; exit 1; }
}

resident_mib() { awk '/^VmRSS/ {print int($2 / 1024)}' "/proc/$server/status"; }

field() {  # FILE EXPRESSION of the report r
  python3 -c "import json, sys; r = json.load(open(sys.argv[1])); print($2)" "$1"
}

fairness() {
  echo "== 16 running streams, a prompt of 6,000 tokens, and 2 s later one of 100"
  start_server --context_length=8192
  bench --concurrency=16 --requests=16 --prompt_tokens=32 --output_tokens=600 \
    --inject=6000:1@1s --inject=100:1@3s
  stop_server
}

prefix() {
  local load=(--concurrency=16 --requests=64 --shared_prefix=1000 --prompt_tokens=1032
              --output_tokens=16 --warmup=0 --json)
  echo "== 64 requests of 1,032 prompt tokens, 1,000 of them in common"
  for cache in true false; do
    start_server --prefix_cache=$cache
    bench "${load[@]}" >"$results/prefix.$cache"
    stop_server
  done
  python3 - "$results" <<'PYTHON'
import json
import sys

runs = {c: json.load(open(f"{sys.argv[1]}/prefix.{c}")) for c in ("true", "false")}
for cache, run in runs.items():
    computed = run["prompt_tokens"] - run["cached_prompt_tokens"]
    print(f"prefix cache {cache}: {computed} of {run['prompt_tokens']} prompt tokens computed "
          f"({run['computed_prompt_share']:.1%}), {run['wall_s']:.1f} s, "
          f"hash of answers {run['answers_hash']}")
equal = runs["true"]["answers_hash"] == runs["false"]["answers_hash"]
print("the answers are equal" if equal else "THE ANSWERS DIFFER")
sys.exit(0 if equal else 1)
PYTHON
}

cache_cost() {
  local rounds=${ROUNDS:-5}
  echo "== prompts without a common prefix, cache on and off in turn, $rounds rounds"
  for round in $(seq "$rounds"); do
    for cache in true false; do
      # A pool that both use up: else the one touches fresh memory and the other its own again.
      start_server --prefix_cache=$cache --kv_cache_bytes=$((128 << 20)) --context_length=2048
      bench --concurrency=16 --requests=64 --prompt_tokens=256 --output_tokens=64 \
        --load_seed="$round" --json >"$results/cost.$cache.$round"
      stop_server
    done
    echo "round $round: $(field "$results/cost.true.$round" 'r["total_tokens_per_s"]') with," \
      "$(field "$results/cost.false.$round" 'r["total_tokens_per_s"]') tokens/s without"
  done
  python3 - "$results" "$rounds" <<'PYTHON'
import json
import statistics
import sys

folder, rounds = sys.argv[1], int(sys.argv[2])
ratios = [json.load(open(f"{folder}/cost.true.{r}"))["total_tokens_per_s"] /
          json.load(open(f"{folder}/cost.false.{r}"))["total_tokens_per_s"]
          for r in range(1, rounds + 1)]
print(f"with / without: median {statistics.median(ratios):.3f}, "
      f"{min(ratios):.3f} to {max(ratios):.3f}")
PYTHON
}

overload() {
  local seconds=${SECONDS_OVER:-60}
  # A connection holds 128 streams, and the queue 256 requests.
  local load=(--prompt_tokens=64 --output_tokens=32 --connections=8 --json)
  echo "== five times the capacity for $seconds s"
  # Small enough to have been used as a whole before the memory is read for the first time.
  start_server --context_length=1024 --kv_cache_bytes=$((128 << 20))
  bench --concurrency=32 --duration=20s "${load[@]}" >"$results/peak"
  local peak before
  peak=$(field "$results/peak" 'r["requests_per_s"]')
  before=$(resident_mib)
  bench --rate="$(python3 -c "print(5 * $peak)")" --duration="${seconds}s" --warmup=0 \
    "${load[@]}" >"$results/over"
  python3 - "$results" <<'PYTHON'
import json
import sys

peak, over = (json.load(open(f"{sys.argv[1]}/{name}")) for name in ("peak", "over"))
share = over["requests_per_s"] / peak["requests_per_s"]
print(f"peak {peak['requests_per_s']:.2f} requests/s, overloaded {over['requests_per_s']:.2f} "
      f"({share:.1%} of it)")
print(f"{over['requests']} sent, {over['completed']} completed, {over['refused']} refused, "
      f"refusals answered in {over['refusal_ms']['p50']:.1f} ms (p50), "
      f"{over['refusal_ms']['p99']:.1f} ms (p99), other errors: {over['errors'] or 'none'}")
PYTHON
  echo "server memory: $before MiB before, $(resident_mib) MiB after"
  stop_server
}

for part in "${parts[@]}"; do
  case $part in
    fairness | prefix | cache_cost | overload) "$part" ;;
    *) echo "engine.sh: no part is called $part" >&2; exit 2 ;;
  esac
done
