// What a request wants to know about its attention, in native form: already valid, no protobuf.
// Everything that the answer will hold follows from it, its size included.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "model/attention_plan.h"

namespace vitrine::server {

// Numbered as on the wire.
enum class TraceOutputKind {
  kStats = 1,
  kTopK = 2,
  kSpanMass = 3,
  kColumnSum = 4,
  kDense = 5,
  kTile = 6,
};

struct TraceOutput {
  TraceOutputKind kind = TraceOutputKind::kStats;
  bool is_f16 = false;                                 // kDense.
  int query_bins = 0;                                  // kTile.
  int key_bins = 0;                                    // kTile.
  AttentionCombine combine = AttentionCombine::kMean;  // kTile.
};

// Where the numbers come from, as chunks repeat it.
struct TraceOrigin {
  bool is_replay = false;
  int choice = 0;  // That a replay computes.
  std::string kv_dtype;
  std::string numerics;
};

struct TraceSpec {
  AttentionPlan plan;
  std::vector<TraceOutput> outputs;
  std::vector<int> windows;    // Per layer of the plan; 0: none.
  std::vector<KeyRange> rows;  // Wanted rows that can exist; ascending, disjoint, not adjacent.
  std::vector<KeyRange> keys;  // Wanted keys; ascending, disjoint; at least one range.
  int prompt_tokens = 0;       // Rows before belong to all choices and are sent once.
  int choices = 1;
  TraceOrigin origin;

  // The first wanted row at or behind `position`; kNoRow: there is none.
  int NextRow(int position) const;
  // Of the wanted rows at or behind `position`, the one with `count` others before it; kNoRow:
  // none.
  int RowAfter(int position, int64_t count) const;
  // End of the unbroken run of wanted rows that begins with the wanted row `row`.
  int RunEnd(int row) const;
  int end_row() const { return rows.empty() ? 0 : rows.back().end; }
  // Wanted rows in [begin, end).
  int64_t RowsIn(int begin, int end) const;
  // Index of the wanted row at `position` among all of one choice.
  int64_t RowIndex(int position) const { return RowsIn(0, position); }
  // Wanted rows that one sequence has; the rows of its prompt come once, the others per choice.
  int64_t prompt_rows() const { return RowsIn(0, prompt_tokens); }
  int64_t rows_per_choice() const { return RowsIn(0, end_row()); }
  int64_t total_rows() const;

  // DENSE rows of the prompt have one key axis, [0, prompt_keys()); later rows end at themselves.
  int prompt_keys() const;
  int KeyAxis(int position) const;

  // Bytes of tensor data that a complete answer holds, exactly; saturates.
  uint64_t AnswerBytes() const;
  // Bytes that the row at `position` occupies between its step and its encoding.
  int64_t StepBytes(int position) const;
};

inline constexpr int kNoRow = INT32_MAX;

// The part of `range` below `end`; empty ranges have begin == end.
KeyRange Below(const KeyRange& range, int end);

// The sorted union of `ranges`, without what lies at or behind `end`.
std::vector<KeyRange> UnionBelow(std::vector<KeyRange> ranges, int end);

// "stats", "top_k", ...: the names of AttentionOutput.kind.
std::string_view NameOf(TraceOutputKind kind);

}  // namespace vitrine::server
