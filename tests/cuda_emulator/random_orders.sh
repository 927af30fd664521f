#!/usr/bin/env bash
# Runs tests under the emulator in random orders of threads, streams and tests.
#
# usage: random_orders.sh COUNT PROGRAM...      COUNT orders that no run before had
#        random_orders.sh =SEED PROGRAM...      the one of SEED again
#
# Each program runs its tests once per order, with stream work deferred. A failure prints the seed.
set -uo pipefail

run() {  # run SEED PROGRAM
  local seed=$1 program=$2 log
  log=$(mktemp)
  if EMU_SEED=$seed EMU_DEFERRED=1 "$program" --gtest_shuffle --gtest_random_seed="$seed" \
     --gtest_brief=1 >"$log" 2>&1; then
    echo "seed $seed: $(basename "$program") passed"
    rm -f "$log"
    return
  fi
  cat "$log"
  rm -f "$log"
  echo "seed $seed: $(basename "$program") FAILED; again: $0 =$seed $program" >&2
  return 1
}

if [ $# -lt 2 ]; then
  sed -n '4,5s/^# //p' "$0" >&2
  exit 2
fi
seeds=()
if [[ $1 == =* ]]; then
  seeds=("${1#=}")
else
  # GoogleTest takes seeds up to 99999.
  for ((i = 0; i < $1; ++i)); do seeds+=($((1 + (RANDOM * 32768 + RANDOM) % 99999))); done
fi
shift
result=0
for seed in "${seeds[@]}"; do
  for program in "$@"; do
    run "$seed" "$program" || result=1
  done
done
exit $result
