#!/usr/bin/env bash
# From a fresh Debian 12 machine to a streamed answer: installs what is missing, builds, fetches a
# small model, starts the server, asks one question, shows where the answer's tokens looked, and
# stops the server again.
# usage: quickstart.sh [PROMPT]
#
# VITRINE_MODEL, when set, names a model file to take instead of fetching one.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build=$root/build
prompt=${1:-The capital of France is}

work=$(mktemp -d)
server_pid=
current_log=

cleanup() {
  local code=$?
  trap - EXIT
  if [ -n "$server_pid" ] && kill -0 "$server_pid" 2>/dev/null; then
    kill -TERM "$server_pid"
    wait "$server_pid" || true
  fi
  if [ "$code" -ne 0 ] && [ -n "$current_log" ] && [ -s "$current_log" ]; then
    echo "--- last lines of the log:" >&2
    tail -n 40 "$current_log" | cut -c 1-300 >&2
  fi
  rm -rf "$work"
  exit "$code"
}
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

step() { echo "[$1/6] $2" >&2; }
fail() {
  echo "quickstart: $1" >&2
  exit 1
}

step 1 "installing what is missing"
"$root/docker/install_packages.sh" "$root"/docker/packages-{build,runtime}.txt

step 2 "building (a few minutes the first time)"
current_log=$work/build.log
# In the folder of tests/run.sh: whoever runs both builds the product once.
if ! { cmake -S "$root" -B "$build" -G Ninja -DVITRINE_BUILD_TESTS=OFF &&
       cmake --build "$build" --target vitrine vitrine-server; } >"$current_log" 2>&1; then
  fail "the build failed"
fi

step 3 "fetching the model"
current_log=
model=$("$root/docker/fetch_model.sh")

step 4 "starting the server"
current_log=$work/server.log
"$build/server/vitrine-server" --model "$model" --listen=127.0.0.1:0 --allow_inspection \
  >"$current_log" 2>&1 &
server_pid=$!
address=
for _ in $(seq 600); do
  address=$(sed -n 's/^.*listening on \([^ ]*:[0-9]*\).*$/\1/p' "$current_log" | head -n 1)
  [ -z "$address" ] || break
  kill -0 "$server_pid" 2>/dev/null || fail "the server ended before it was ready"
  sleep 0.1
done
[ -n "$address" ] || fail "the server was not ready after 60 seconds"

step 5 "asking: $prompt"
"$build/client/vitrine" generate --server="$address" --temperature=0 --max_tokens=48 "$prompt" ||
  fail "the request failed"
echo

step 6 "showing where each token looked"
"$build/client/vitrine" attention --server="$address" --temperature=0 --max_tokens=8 "$prompt" ||
  fail "the request failed"

kill -TERM "$server_pid"
wait "$server_pid" || fail "the server did not stop cleanly"
server_pid=
echo "done. To serve: build/server/vitrine-server --model $model" >&2
echo "To ask:         build/client/vitrine generate \"...\"" >&2
echo "To look inside: serve with --allow_inspection; build/client/vitrine attention \"...\"" >&2
