#!/usr/bin/env bash
# A request's attention as it was streamed, and computed again minutes later from what the server
# has kept, after other requests took its blocks: prints the largest difference and the certificate.
#
# usage: tests/bench/replay.sh MODEL.gguf [SECONDS]
#
# SECONDS (default 300) pass between the two; other requests keep the server busy meanwhile. Numerics
# are exact and the cache f32. Exit code 1 when a number differs by more than 1e-6. Our programs:
# VITRINE_BUILD (default build). Needs python3-numpy.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)

if [ $# -lt 1 ]; then
  sed -n 's/^# usage: /usage: /p' "${BASH_SOURCE[0]}" >&2
  exit 2
fi
model=$1
seconds=${2:-300}
build=${VITRINE_BUILD:-$root/build}
source "$root/tests/bench/server_process.sh"
need_programs "$build/server/vitrine-server" "$build/client/vitrine"
address=--server=unix:$results/socket
# Only Debian's own interpreter sees the Python modules that Debian packages.
python=/usr/bin/python3
[ -x "$python" ] || python=python3

# A small cache: the traffic below goes through all of its blocks a dozen times.
"$build/server/vitrine-server" --model="$model" --listen="unix:$results/socket" --numerics=exact \
  --kv_dtype=f32 --context_length=1024 --kv_cache_bytes=$((96 << 20)) --allow_inspection \
  --inspection_retention=24h \
  >"$results/log" 2>&1 &
server=$!
await "$build/client/vitrine" health "$address"

prompt="The lighthouse keeper climbed the stairs every evening, lit the lamp, and wrote one line into \
the book that nobody read. Then, one night,"
spec=(--queries=all --output=dense,stats --dtype=f32)
"$build/client/vitrine" attention "$prompt" --max_tokens=24 --temperature=0 "${spec[@]}" \
  --npz="$results/live.npz" "$address" >/dev/null
request=$("$python" -c "import numpy; print(numpy.load('$results/live.npz')['request_id'][0].decode())")
echo "request $request traced; other requests for $seconds s"

"$build/client/vitrine" bench "$address" --rate=0.5 --duration="${seconds}s" \
  --prompt_tokens=64-512 --output_tokens=64 >"$results/traffic" 2>/dev/null
sed -n 1p "$results/traffic"
"$build/client/vitrine" attention --request="$request" "${spec[@]}" --npz="$results/replay.npz" \
  "$address" >/dev/null
stop_server

"$python" - "$results" <<'PYTHON'
import sys

import numpy

live, replay = (numpy.load(f"{sys.argv[1]}/{name}.npz") for name in ("live", "replay"))
worst = 0.0
for name in ("dense", "stats"):
    if live[name].shape != replay[name].shape:
        sys.exit(f"{name}: {live[name].shape} live, {replay[name].shape} replayed")
    difference = numpy.abs(live[name] - replay[name])
    worst = max(worst, float(numpy.nanmax(difference)))
    print(f"{name} {live[name].shape}: largest difference {numpy.nanmax(difference):.3g}")
print(f"methods {live['method'][0]} and {replay['method'][0]}, certificate max_lse_delta "
      f"{float(replay['max_lse_delta']):.3g}")
sys.exit(0 if worst <= 1e-6 else "more than 1e-6")
PYTHON
