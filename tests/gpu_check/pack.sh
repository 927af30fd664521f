#!/usr/bin/env bash
# Puts everything that a GPU machine needs into one folder: no build, no package, no network there.
#
# usage: tests/gpu_check/pack.sh BUILD_FOLDER FOLDER
#
# BUILD_FOLDER was configured with -DVITRINE_CUDA=ON and holds the target gpu_check. Of SmolLM2,
# which docker/fetch_model.sh finds, the first layers go in. Then, on the other machine:
# FOLDER/run.sh
set -euo pipefail
if [ $# -ne 2 ]; then
  sed -n '4s/^# //p' "$0" >&2
  exit 2
fi
source=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
build=$1 folder=$2
readonly most_mib=60 layers=7

model=$("$source/docker/fetch_model.sh")
mkdir -p "$folder/data/models" "$folder/data/gpu_check" "$folder/lib"
strip -o "$folder/gpu_check" "$build/tests/gpu_check/gpu_check"
gzip -f -6 "$folder/gpu_check"
cp "$source/tests/gpu_check/run.sh" "$folder/"
cp -r "$source/tests/data/ops" "$folder/data/"
cp "$source/tests/data/gpu_check/wrappers.txt" "$folder/data/gpu_check/"
# One of bf16 weights, one whose heads share keys.
for golden in llama-bf16 llama-gqa-tied-f32; do
  cp -r "$source/tests/data/models/$golden" "$folder/data/models/"
done
cp "$source"/tests/data/models/*.json "$source"/tests/data/models/*.jinja "$folder/data/models/"
"$source/tests/gpu_check/cut_model.py" "$model" $layers "$folder/data/smollm2.gguf"
# What is not part of every Linux.
ldd "$build/tests/gpu_check/gpu_check" |
  awk '$3 ~ /^\// && $1 !~ /^lib(c|m|dl|rt|pthread)\.so/ {print $3}' |
  xargs -r cp -L -t "$folder/lib"

mib=$(du -sm --apparent-size "$folder" | cut -f1)
echo "$folder: $mib MiB"
if [ "$mib" -ge $most_mib ]; then
  echo "$0: more than $most_mib MiB" >&2
  exit 1
fi
