#!/usr/bin/env bash
# Checks the format of every source file, and lints those that a clang build compiles.
# usage: tests/lint.sh --format
#        tests/lint.sh BUILD_FOLDER [PATH_PATTERN]
#
# The build folder must be built: the linter reads generated headers. PATH_PATTERN (a regular
# expression over paths) limits the linter to some files.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
if [ "${1:-}" != --format ] && [ ! -r "${1:-}/compile_commands.json" ]; then
  echo "usage: $0 --format | BUILD_FOLDER [PATH_PATTERN] (a folder that cmake has configured)" >&2
  exit 2
fi

git ls-files -z -- '*.h' '*.cc' '*.cu' '*.cuh' '*.proto' ':!tests/data' |
  xargs -0 -r clang-format-22 --dry-run --Werror
[ "$1" != --format ] || exit 0
build=$1
pattern=${2:-.}

# One line per file: what CMake compiles of ours, without what it generates.
python3 - "$build" "$PWD" "$pattern" <<'PYTHON' >"$build/lint_files"
import json
import os
import re
import sys

build, root, pattern = sys.argv[1:]
with open(os.path.join(build, "compile_commands.json"), encoding="utf-8") as commands:
    files = {os.path.realpath(os.path.join(c["directory"], c["file"])) for c in json.load(commands)}
for path in sorted(files):
    relative = os.path.relpath(path, root)
    if (not relative.startswith("..") and not path.startswith(os.path.realpath(build) + os.sep)
            and re.search(pattern, relative)):
        print(relative)
PYTHON
echo "linting $(wc -l <"$build/lint_files") files"
xargs -r -a "$build/lint_files" -P "$(nproc)" -n 4 \
  clang-tidy-22 --quiet --warnings-as-errors='*' -p "$build" 2> >(grep -v 'warnings generated' >&2)
