// A part of a trace on its way to its consumer: numbers with their shape, at most
// kMaxTraceChunkBytes of them, native but already in the byte order of the wire.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "server/trace_credit.h"
#include "server/trace_spec.h"

namespace vitrine::server {

inline constexpr size_t kMaxTraceChunkBytes = size_t{1} << 20;

// Numbered as on the wire.
enum class TraceElement { kF32 = 1, kF16 = 2, kU32 = 3 };

// Last dimension fastest, little-endian.
struct TraceTensor {
  std::vector<uint32_t> dims = {};
  TraceElement element = TraceElement::kF32;
  std::string data = {};
};

struct TraceRow {
  int position = 0;
  int choice = 0;  // 0 for rows of the prompt.
};

// How a trace ended; `is_complete`: every row that was asked for has been sent.
struct TraceEnd {
  bool is_complete = false;
  uint64_t rows = 0;
  uint64_t bytes = 0;
  int64_t added_us = 0;
};

struct TraceChunk {
  uint64_t sequence_number = 0;
  std::optional<TraceEnd> end = {};  // Then all below is empty.

  TraceOutputKind kind = TraceOutputKind::kStats;
  std::vector<TraceRow> rows = {};
  int key_start = 0;  // kDense, kColumnSum, kTile.
  int key_count = 0;
  std::vector<int32_t> layers = {};  // Along the layer axis, or those reduced.
  std::vector<int32_t> heads = {};
  TraceTensor values = {};    // All kinds but kTopK.
  TraceTensor top_keys = {};  // kTopK, as the two below.
  TraceTensor top_values = {};
  TraceTensor tail_mass = {};  // Empty for scores.
  float max_row_sum_error = 0.0f;
  float max_lse_delta = 0.0f;

  CreditHold hold = {};
  size_t bytes() const {
    return values.data.size() + top_keys.data.size() + top_values.data.size() +
           tail_mass.data.size();
  }
};

}  // namespace vitrine::server
