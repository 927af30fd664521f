#!/usr/bin/env bash
# Runs gpu_check with the data that lies beside it. Needs a driver, and nothing installed.
#
# usage: run.sh [gpu_check's flags]     as pack.sh made the folder; writes gpu_check.json
#        run.sh --emulated BUILD [...]  in the source tree: the same program over the emulated
#                                       device, correctness and every code path of the speed half
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
if [ "${1:-}" = --emulated ]; then
  program=$2/tests/cuda_emulator/gpu_check_emulated
  shift 2
  exec "$program" "$@"
fi
gunzip -c "$here/gpu_check.gz" >"$here/gpu_check"
chmod +x "$here/gpu_check"
export LD_LIBRARY_PATH=$here/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export VITRINE_TEST_DATA=$here/data VITRINE_TEST_MODEL=$here/data/smollm2.gguf
exec "$here/gpu_check" --json="$PWD/gpu_check.json" "$@"
