#!/bin/sh
# Functions that files compiled for a wider instruction set share with the rest of the program would
# run those instructions everywhere, if the linker kept their copy. They must share none.
#
# usage: instruction_sets_test.sh LIBRARY
set -eu
shared=$(nm -A -C "$1" | grep -E 'kernels_a[vm]x[a-z0-9]*\.cc\.o:' | grep -E ' [WVu] ' |
  grep -vE 'Avx2|AvxVnni|Avx512' || true)
if ! nm -A -C "$1" | grep -qE 'kernels_avx512\.cc\.o:'; then
  echo "no such files in $1"
  exit 1
fi
if [ -n "$shared" ]; then
  echo "$shared"
  exit 1
fi
