#!/usr/bin/env bash
# Installs the Debian packages named in the given lists, as far as they are missing.
# usage: install_packages.sh LIST_FILE...
set -euo pipefail

if [ $# -eq 0 ]; then
  echo "usage: $0 LIST_FILE..." >&2
  exit 2
fi
for list in "$@"; do
  if [ ! -r "$list" ]; then
    echo "$0: cannot read the package list $list" >&2
    exit 2
  fi
done
mapfile -t wanted < <(sed -e 's/#.*//' -e 's/[[:space:]]//g' -e '/^$/d' -- "$@" | sort -u)

if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
  echo "$0: no apt on this machine. Provide what these Debian 12 packages hold: ${wanted[*]}" >&2
  exit 1
fi

missing=()
for package in "${wanted[@]}"; do
  status=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
  [ "$status" = installed ] || missing+=("$package")
done
if [ ${#missing[@]} -eq 0 ]; then
  exit 0
fi
if [ "$(id -u)" -ne 0 ]; then
  echo "$0: packages are missing and only root can install them. Run:" >&2
  echo "  apt-get update && apt-get install --no-install-recommends ${missing[*]}" >&2
  exit 1
fi

echo "installing ${#missing[@]} Debian packages: ${missing[*]}" >&2
export DEBIAN_FRONTEND=noninteractive
options=(-q -o Acquire::Retries=3 -o DPkg::Lock::Timeout=600)
log=$(mktemp)
trap 'rm -f "$log"' EXIT
if ! { apt-get "${options[@]}" update &&
       apt-get "${options[@]}" install -y --no-install-recommends "${missing[@]}"; } \
     </dev/null >"$log" 2>&1; then
  tail -n 20 "$log" >&2
  echo "$0: apt-get could not install: ${missing[*]}" >&2
  exit 1
fi
