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
program=$build/tests/gpu_check/gpu_check
mkdir -p "$folder/data/models" "$folder/data/gpu_check" "$folder/program/lib" "$folder/program/libc"
strip -o "$folder/program/gpu_check" "$program"
cp "$source/tests/gpu_check/run.sh" "$folder/"
cp -r "$source/tests/data/ops" "$folder/data/"
cp "$source/tests/data/gpu_check/wrappers.txt" "$folder/data/gpu_check/"
# One of bf16 weights, one whose heads share keys.
for golden in llama-bf16 llama-gqa-tied-f32; do
  cp -r "$source/tests/data/models/$golden" "$folder/data/models/"
done
cp "$source"/tests/data/models/*.json "$source"/tests/data/models/*.jinja "$folder/data/models/"
"$source/tests/gpu_check/cut_model.py" "$model" $layers "$folder/data/smollm2.gguf"
# What is not part of every Linux, and a C library for those whose own is older than this one's:
# with all that the driver's libraries may ask of it.
ldd "$program" | awk '$3 ~ /^\// && $1 !~ /^lib(c|m)\.so/ {print $3}' |
  xargs -r cp -L -t "$folder/program/lib"
libc=$(dirname "$(ldd "$program" | awk '$1 == "libc.so.6" {print $3}')")
cp -L "$libc"/lib{c.so.6,m.so.6,dl.so.2,pthread.so.0,rt.so.1} "$folder/program/libc/"
cp -L "$(ldd "$program" | awk '$1 ~ /^\// {print $1}')" "$folder/program/libc/loader"
getconf GNU_LIBC_VERSION | cut -d' ' -f2 >"$folder/program/libc/version"
tar -C "$folder" -czf "$folder/program.tgz" program
rm -r "$folder/program"

mib=$(du -sm --apparent-size "$folder" | cut -f1)
echo "$folder: $mib MiB"
if [ "$mib" -ge $most_mib ]; then
  echo "$0: more than $most_mib MiB" >&2
  exit 1
fi
