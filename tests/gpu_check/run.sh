#!/usr/bin/env bash
# Runs gpu_check with the data that lies beside it. Needs a driver, and no more than bash, coreutils
# and tar.
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
tar -xzf "$here/program.tgz" -C "$here"
program=$here/program
export VITRINE_TEST_DATA=$here/data VITRINE_TEST_MODEL=$here/data/smollm2.gguf
set -- "$program/gpu_check" --json="$PWD/gpu_check.json" "$@"
libraries=$program/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
built_with=$(cat "$program/libc/version")
own=$(getconf GNU_LIBC_VERSION 2>/dev/null | cut -d' ' -f2) || own=
if [ "$(printf '%s\n' "$built_with" "$own" | sort -V | head -n 1)" = "$built_with" ]; then
  LD_LIBRARY_PATH=$libraries exec "$@"
fi
exec "$program/libc/loader" --library-path "$program/libc:$libraries" "$@"
