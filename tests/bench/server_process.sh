# Sourced by the scripts beside it: one server at a time, which ends with the script, and a folder
# for results that goes with it.
#
# Sets `results`; `server` is the process id of who starts one, with its output in $results/log.

results=$(mktemp -d)
server=
stop_server() {
  [ -z "$server" ] || { kill "$server" && wait "$server"; } 2>/dev/null || true
  server=
}
trap 'stop_server; rm -rf "$results"' EXIT

need_programs() {  # PATH...
  local program
  for program in "$@"; do
    [ -x "$program" ] || { echo "${0##*/}: $program is not there" >&2; exit 1; }
  done
}

# await COMMAND...: until it succeeds, while the server lives.
await() {
  until "$@" >/dev/null 2>&1; do
    kill -0 "$server" 2>/dev/null || { cat "$results/log" >&2; exit 1; }
    sleep 0.1
  done
}
