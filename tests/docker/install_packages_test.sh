#!/usr/bin/env bash
# docker/install_packages.sh against a stand-in for apt: what it asks for, and what it says when it
# cannot ask.
set -euo pipefail
script=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)/docker/install_packages.sh
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail() { echo "FAILED: $*"; cat "$work/output" "$work/calls" 2>/dev/null; exit 1; }
expect_status() { [ "$status" = "$1" ] || fail "$2: exit status $status, expected $1"; }
expect_output() { grep -qF -- "$1" "$work/output" || fail "$2: the output lacks '$1'"; }

# Programs that the script finds first: dpkg-query knows what $work/installed names, apt-get notes
# its arguments and fails when told, id prints $user.
stand_in() {
  printf '#!/bin/sh\n%s\n' "$2" >"$work/bin/$1"
  chmod +x "$work/bin/$1"
}
mkdir "$work/bin"
stand_in dpkg-query "for last; do :; done; grep -qx \"\$last\" '$work/installed' && echo installed"
stand_in apt-get "echo \"\$*\" >>'$work/calls'; [ ! -e '$work/broken' ] || { echo no mirror; exit 100; }"
stand_in id "cat '$work/user'"

# run LIST...: fills $work/output, $work/calls and $status.
run() {
  : >"$work/calls"
  status=0
  PATH=$work/bin:$PATH "$script" "$@" >"$work/output" 2>&1 || status=$?
}

printf '# A comment.\nalpha\n\nbeta # why\n' >"$work/one.txt"
printf 'beta\ngamma\n' >"$work/two.txt"
echo 0 >"$work/user"

printf 'alpha\nbeta\ngamma\n' >"$work/installed"
run "$work/one.txt" "$work/two.txt"
expect_status 0 "nothing is missing"
[ ! -s "$work/calls" ] || fail "apt was called although nothing is missing"

printf 'alpha\n' >"$work/installed"
run "$work/one.txt" "$work/two.txt"
expect_status 0 "two are missing"
[ "$(grep -c ' update$' "$work/calls")" = 1 ] || fail "the lists were not updated once"
grep -q 'install .*--no-install-recommends beta gamma$' "$work/calls" ||
  fail "not exactly the missing packages were asked for, each once"

touch "$work/broken"
run "$work/one.txt"
expect_status 1 "apt fails"
expect_output "no mirror" "apt fails"
expect_output "apt-get could not install: beta" "apt fails"
rm "$work/broken"

echo 1000 >"$work/user"
run "$work/one.txt"
expect_status 1 "not root"
expect_output "only root can install" "not root"
expect_output "apt-get install --no-install-recommends beta" "not root"
[ ! -s "$work/calls" ] || fail "apt was called without root"

run "$work/absent.txt"
expect_status 2 "no such list"
expect_output "absent.txt" "no such list"
run
expect_status 2 "no list"

# A machine that has neither of the two programs.
mkdir "$work/bare"
for program in bash env sed sort dirname; do
  ln -s "$(command -v "$program")" "$work/bare/$program"
done
status=0
PATH=$work/bare "$script" "$work/one.txt" >"$work/output" 2>&1 || status=$?
expect_status 1 "no apt"
expect_output "no apt on this machine" "no apt"
expect_output "alpha beta" "no apt"

# The real lists: each name once in all but python3, which tests and the fetch both need.
lists=$(dirname "$script")
sed -e 's/#.*//' -e '/^[[:space:]]*$/d' "$lists"/packages-*.txt | sort | uniq -d >"$work/twice"
echo python3 | cmp -s - "$work/twice" || fail "named in several lists: $(cat "$work/twice")"
echo passed
