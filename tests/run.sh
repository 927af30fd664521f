#!/usr/bin/env bash
# From a clean clone on Debian 12 to every test passed. Stops at the first step that fails; closes
# with ctest's summary.
#
# usage: tests/run.sh              build with g++ and run every test
#        tests/run.sh --sanitize   formatter, thread sanitizer over the tests labelled tsan, address
#                                  and undefined-behaviour sanitizers over all tests, memory
#                                  sanitizer over the CUDA kernels and their emulator, which the
#                                  other two include
#        tests/run.sh --lint       formatter and linter over every source file
#
# Builds in build/, build-tsan/, build-asan/, build-msan/ and build-lint/. VITRINE_TEST_MODEL names
# the model file on machines without network; elsewhere docker/fetch_model.sh fetches it.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
exec </dev/null

jobs=$(nproc)
export NINJA_STATUS='[%f/%t %es] '

step() { printf '== %dm%02ds: %s\n' $((SECONDS / 60)) $((SECONDS % 60)) "$*"; }

# configure SOURCE_FOLDER BUILD_FOLDER [OPTION...]
configure() {
  local source=$1 folder=$2
  shift 2
  mkdir -p "$folder"
  local log=$folder/configure.log
  if ! cmake -S "$source" -B "$folder" -G Ninja "$@" >"$log" 2>&1; then
    cat "$log"
    exit 1
  fi
}

# run_tests BUILD_FOLDER [CTEST_OPTION...]
run_tests() {
  local folder=$1 status=0 output
  shift
  output=$(mktemp)
  ctest --test-dir "$folder" --output-on-failure --no-tests=error -j "$jobs" "$@" |
    tee "$output" || status=$?
  # Of tests that passed ctest shows nothing, not even what they skipped and why.
  grep -hE -A1 ': Skipped$|^SKIPPED:|skipped ' "$folder/Testing/Temporary/LastTest.log" || true
  grep -E '^[0-9]+% tests passed' "$output" || true
  rm "$output"
  return "$status"
}

prepare() {
  step "packages"
  docker/install_packages.sh docker/packages-build.txt docker/packages-test.txt
  step "model"
  VITRINE_TEST_MODEL=$(docker/fetch_model.sh)
  export VITRINE_TEST_MODEL
}

plain() {
  step "build"
  # client/quickstart.sh, which shares the folder, leaves the tests out.
  configure . build -DVITRINE_BUILD_TESTS=ON
  cmake --build build -j "$jobs"
  step "tests"
  run_tests build
}

sanitize() {
  step "format"
  tests/lint.sh --format
  # Takes half the time of -O2 -g. Suppressions name functions, inlined ones too, in full: that
  # needs lines and what is said to be for profiling.
  local clang=(-DCMAKE_CXX_COMPILER=clang++-22 -DVITRINE_CUDA=EMULATED
    -DCMAKE_CXX_FLAGS_RELWITHDEBINFO="-O1 -gline-tables-only -fdebug-info-for-profiling -DNDEBUG")
  step "build with thread sanitizer"
  configure . build-tsan "${clang[@]}" -DVITRINE_SANITIZE=thread
  cmake --build build-tsan -j "$jobs" --target tsan_tests
  step "tests with thread sanitizer"
  run_tests build-tsan -L '^tsan$'
  step "build with address and undefined-behaviour sanitizers"
  configure . build-asan "${clang[@]}" -DVITRINE_SANITIZE=address,undefined \
    -DVITRINE_BUILD_FUZZERS=ON
  cmake --build build-asan -j "$jobs"
  step "tests with address and undefined-behaviour sanitizers"
  run_tests build-asan -LE '^once$'
  step "build with memory sanitizer"
  configure tests/cuda_emulator build-msan -DCMAKE_CXX_COMPILER=clang++-22
  if grep -q '^VITRINE_CUDA_HEADERS:.*NOTFOUND$' build-msan/CMakeCache.txt; then
    step "tests with memory sanitizer: left out, no CUDA headers"
    return
  fi
  cmake --build build-msan -j "$jobs"
  step "tests with memory sanitizer"
  run_tests build-msan
}

lint() {
  step "generated headers"
  configure . build-lint -DCMAKE_CXX_COMPILER=clang++-22 -DVITRINE_CUDA=OFF
  cmake --build build-lint -j "$jobs" --target vitrine_proto
  step "format and lint"
  tests/lint.sh build-lint
}

case "${1:-}" in
  "") prepare; plain ;;
  --sanitize) prepare; sanitize ;;
  --lint) prepare; lint ;;
  *) echo "usage: $0 [--sanitize | --lint]" >&2; exit 2 ;;
esac
