// The offline command bench-model: tokens per second of the bare model, beside what the machine can
// do in the same minute.
#pragma once

#include "absl/status/status.h"
#include "server/options.h"

namespace vitrine::server {

// Prints a table, or with options.json one object: tokens/s of `prefill` (512 tokens), `decode`
// (128 from depth 0), `prefill@4096`, `decode@4096`, `batch2` to `batch16` (64 each after a prompt
// of 128), and the limits measured before and after. Where the context is too short for a row, the
// row is left out. Progress goes to stderr.
absl::Status BenchModel(const ServerOptions& options);

}  // namespace vitrine::server
