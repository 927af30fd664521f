#!/usr/bin/env bash
# Builds the image, runs it as it should be run in production (non-root, read-only root, no
# capabilities, no network), streams one answer, checks the health probe and a clean stop.
#
# Needs root, podman, runc, mmdebstrap and ccache. Exits 77 with the reason where containers cannot
# run.
# A base image made from apt's own mirror stands in for debian:bookworm-slim, so no image registry
# is asked; it is kept between runs as localhost/vitrine-test-base. It holds ccache, so that what
# this machine has compiled from the same text with the same compiler is not compiled again.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
exec </dev/null

readonly base=localhost/vitrine-test-base:bookworm-ccache
readonly image=localhost/vitrine-test:$$
readonly name=vitrine-test-$$
work=$(mktemp -d)

step() { printf '== %ds: %s\n' "$SECONDS" "$*"; }
skip() { echo "SKIPPED: $*"; exit 77; }
fail() {
  echo "FAILED: $*"
  podman logs "$name" 2>&1 | tail -n 20 || true
  exit 1
}
clean_up() {
  podman rm -f "$name" >/dev/null 2>&1 || true
  podman rmi "$image" >/dev/null 2>&1 || true
  rm -rf "$work"
}

for program in podman runc mmdebstrap ccache; do
  command -v "$program" >/dev/null || skip "$program is not installed"
done
[ "$(id -u)" -eq 0 ] || skip "only root can make the base image"
trap clean_up EXIT

# Without CAP_SYS_RESOURCE no limit can be raised above the one in force, and podman asks for more
# unless told. runc: crun refuses hosts that mount both cgroup versions.
write_container_settings() {
  local files processes pid_max
  files=$(ulimit -Hn)
  processes=$(ulimit -Hu)
  pid_max=$(cat /proc/sys/kernel/pid_max)
  if [ "$files" = unlimited ]; then files=1048576; fi
  if [ "$processes" = unlimited ] || [ "$processes" -gt "$pid_max" ]; then processes=$pid_max; fi
  cat >"$work/containers.conf" <<CONF
[containers]
default_ulimits = ["nofile=$files:$files", "nproc=$processes:$processes"]
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
CONF
  export CONTAINERS_CONF=$work/containers.conf
}

make_base_image() {
  if podman image exists "$base"; then return; fi
  step "base image"
  # The mirror that this machine's apt is set to, so that no file names one.
  local mirror
  mirror=$(apt-get indextargets --format '$(SITE)' 'Created-By: Packages' 'Codename: bookworm' |
    sort -u | head -n 1)
  [ -n "$mirror" ] || skip "apt knows no mirror of Debian 12"
  mmdebstrap -q --mode=root --variant=minbase --include=ccache bookworm "$work/base.tar" \
    "$mirror" >"$work/log" 2>&1 ||
    { tail -n 5 "$work/log"; skip "mmdebstrap could not make a base image"; }
  podman import -q --change ENV=CCACHE_DIR=/ccache "$work/base.tar" "$base" >/dev/null
  rm "$work/base.tar"
}

write_container_settings
podman info >"$work/log" 2>&1 || { tail -n 5 "$work/log"; skip "podman does not work here"; }
make_base_image
podman run --rm --network none "$base" true >"$work/log" 2>&1 ||
  { tail -n 5 "$work/log"; skip "this machine does not let containers run"; }
model=$(docker/fetch_model.sh)

step "image"
compiled=$(ccache --get-config cache_dir)
mkdir -p "$compiled"
podman build --pull=never --isolation chroot --format docker --build-arg "BASE=$base" \
  --volume "$compiled:/ccache" \
  -f docker/Dockerfile -t "$image" . >"$work/log" 2>&1 ||
  { tail -n 40 "$work/log"; fail "the image does not build"; }
podman image inspect "$image" --format 'image: {{.Size}} bytes, user {{.User}}'

step "run"
podman run -d --name "$name" --timeout 300 --network none --memory 2g \
  --read-only --read-only-tmpfs=false --cap-drop ALL --security-opt no-new-privileges \
  -v "$(dirname "$model"):/models:ro" "$image" "--model=/models/$(basename "$model")" >/dev/null

inside() { timeout 60 podman exec "$name" "$@"; }

serving() {
  local deadline=$((SECONDS + 60))
  until inside vitrine health >"$work/log" 2>&1; do
    if [ "$(podman inspect "$name" --format '{{.State.Running}}')" != true ]; then return 1; fi
    if [ "$SECONDS" -ge "$deadline" ]; then return 1; fi
    sleep 0.2
  done
}
serving || { cat "$work/log"; fail "the server does not come up"; }

[ "$(inside id -u)" != 0 ] || fail "the server runs as root"
if inside touch /a-file 2>/dev/null; then fail "the root is writable"; fi
if inside sh -c 'command -v g++ cmake ninja' >/dev/null; then fail "the image holds build tools"; fi

step "stream"
inside vitrine generate "The capital of France is" --max_tokens=8 --temperature=0 --json \
  >"$work/events" || { cat "$work/events"; fail "generate failed"; }
inside vitrine generate "The capital of France is" --max_tokens=8 --temperature=0 >"$work/answer" ||
  fail "generate failed"
echo "answer: $(cat "$work/answer")"
grep -q Paris "$work/answer" || fail "the answer does not name Paris"
[ "$(grep -c '"tokens"' "$work/events")" -ge 2 ] || fail "the answer came in one piece"

# Straight from the image's HEALTHCHECK; podman would need systemd's timers to run it on its own.
podman healthcheck run "$name" >/dev/null 2>&1 || fail "the image's health probe fails"

step "stop"
podman stop -t 20 "$name" >/dev/null
status=$(podman inspect "$name" --format '{{.State.ExitCode}}')
[ "$status" = 0 ] || fail "the server ended with status $status when asked to stop"
step "passed"
