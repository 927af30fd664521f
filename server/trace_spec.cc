#include "server/trace_spec.h"

#include <algorithm>

#include "absl/numeric/int128.h"

namespace vitrine::server {
namespace {

int64_t Length(const KeyRange& range) { return int64_t{range.end} - range.begin; }

// Sum over the rows p of [begin, end) of the keys of `keys` that are at most p.
absl::uint128 SumOfVisibleKeys(const KeyRange& rows, const KeyRange& keys) {
  absl::uint128 sum = 0;
  // Rows within the range see p + 1 - keys.begin of it, later ones all.
  const int64_t begin = std::max(rows.begin, keys.begin);
  const int64_t count = std::min(rows.end, keys.end) - begin;
  if (count > 0) {
    const int64_t first = begin + 1 - keys.begin;
    sum += absl::uint128(static_cast<uint64_t>(count)) *
           static_cast<uint64_t>(2 * first + count - 1) / 2;
  }
  const int64_t behind = int64_t{rows.end} - std::max(rows.begin, keys.end);
  if (behind > 0) {
    sum += absl::uint128(static_cast<uint64_t>(behind)) * static_cast<uint64_t>(Length(keys));
  }
  return sum;
}

absl::uint128 Wide(int64_t value) { return {static_cast<uint64_t>(value)}; }

// Dense numbers of one cell.
absl::uint128 DenseEntries(const TraceSpec& spec, const KeyRange& keys) {
  absl::uint128 entries = Wide(spec.prompt_rows()) * Wide(Length(Below(keys, spec.prompt_keys())));
  for (KeyRange rows : spec.rows) {
    rows.begin = std::max(rows.begin, spec.prompt_tokens);
    if (rows.begin < rows.end) entries += SumOfVisibleKeys(rows, keys) * Wide(spec.choices);
  }
  return entries;
}

// Bytes of one cell of an output.
absl::uint128 CellBytes(const TraceSpec& spec, const TraceOutput& output) {
  const int end = spec.end_row();
  absl::uint128 numbers = 0;
  switch (output.kind) {
    case TraceOutputKind::kStats:
      numbers = Wide(spec.total_rows()) * kAttentionStats;
      break;
    case TraceOutputKind::kTopK: {
      const bool has_tail = spec.plan.stage == AttentionStage::kWeights;
      numbers = Wide(spec.total_rows()) * Wide(2 * spec.plan.top_k + (has_tail ? 1 : 0));
      break;
    }
    case TraceOutputKind::kSpanMass:
      numbers = Wide(spec.total_rows()) * Wide(spec.plan.spans());
      break;
    case TraceOutputKind::kColumnSum:
      for (const KeyRange& keys : spec.keys) numbers += Wide(Length(Below(keys, end)));
      break;
    case TraceOutputKind::kDense:
      for (const KeyRange& keys : spec.keys) numbers += DenseEntries(spec, keys);
      break;
    case TraceOutputKind::kTile:
      for (const KeyRange& keys : spec.keys) {
        numbers += Wide(std::min<int64_t>(output.query_bins, spec.rows_per_choice())) *
                   Wide(std::min<int64_t>(output.key_bins, Length(Below(keys, end))));
      }
      break;
  }
  return numbers * (output.is_f16 ? 2 : 4);
}

}  // namespace

KeyRange Below(const KeyRange& range, int end) {
  return {.begin = std::min(range.begin, end), .end = std::min(range.end, end)};
}

std::vector<KeyRange> UnionBelow(std::vector<KeyRange> ranges, int end) {
  std::ranges::sort(ranges, {}, &KeyRange::begin);
  std::vector<KeyRange> joined;
  for (const KeyRange& range : ranges) {
    const KeyRange part = Below(range, end);
    if (part.begin >= part.end) continue;
    if (!joined.empty() && part.begin <= joined.back().end) {
      joined.back().end = std::max(joined.back().end, part.end);
    } else {
      joined.push_back(part);
    }
  }
  return joined;
}

int TraceSpec::NextRow(int position) const {
  for (const KeyRange& range : rows) {
    if (position < range.end) return std::max(position, range.begin);
  }
  return kNoRow;
}

int TraceSpec::RowAfter(int position, int64_t count) const {
  for (const KeyRange& range : rows) {
    if (position >= range.end) continue;
    const int begin = std::max(position, range.begin);
    if (count < range.end - begin) return begin + static_cast<int>(count);
    count -= range.end - begin;
  }
  return kNoRow;
}

int TraceSpec::RunEnd(int row) const {
  for (const KeyRange& range : rows) {
    if (row < range.end) return range.end;
  }
  return kNoRow;
}

int64_t TraceSpec::RowsIn(int begin, int end) const {
  int64_t count = 0;
  for (const KeyRange& range : rows) {
    count += std::max(0, std::min(end, range.end) - std::max(begin, range.begin));
  }
  return count;
}

int64_t TraceSpec::total_rows() const {
  return prompt_rows() + choices * (rows_per_choice() - prompt_rows());
}

int TraceSpec::prompt_keys() const {
  int end = 0;
  for (const KeyRange& range : rows) {
    if (range.begin < prompt_tokens) end = std::min(range.end, prompt_tokens);
  }
  return end;
}

int TraceSpec::KeyAxis(int position) const {
  return position < prompt_tokens ? prompt_keys() : position + 1;
}

uint64_t TraceSpec::AnswerBytes() const {
  absl::uint128 bytes = 0;
  for (const TraceOutput& output : outputs) bytes += CellBytes(*this, output);
  bytes *= Wide(plan.cells());
  return bytes > absl::uint128(UINT64_MAX) ? UINT64_MAX : static_cast<uint64_t>(bytes);
}

int64_t TraceSpec::StepBytes(int position) const {
  const int64_t numbers = (plan.wants_stats ? kAttentionStats : 0) + 2 * int64_t{plan.top_k} + 1 +
                          plan.spans() + (plan.wants_rows ? int64_t{position} + 1 : 0);
  return numbers * plan.cells() * static_cast<int64_t>(sizeof(float));
}

std::string_view NameOf(TraceOutputKind kind) {
  switch (kind) {
    case TraceOutputKind::kStats:
      return "stats";
    case TraceOutputKind::kTopK:
      return "top_k";
    case TraceOutputKind::kSpanMass:
      return "span_mass";
    case TraceOutputKind::kColumnSum:
      return "column_sum";
    case TraceOutputKind::kDense:
      return "dense";
    case TraceOutputKind::kTile:
      return "tile";
  }
  return "";
}

}  // namespace vitrine::server
