#include "server/request_trace.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <utility>

#include "absl/functional/function_ref.h"
#include "server/half.h"
#include "server/token_sink.h"

namespace vitrine::server {

// A rectangle of an array [layers, heads, rows, columns].
struct RequestTrace::Rectangle {
  int first_layer = 0;
  int layers = 0;
  int first_head = 0;
  int heads = 0;
  int first_row = 0;
  int rows = 0;
  int first_column = 0;
  int columns = 0;
};

namespace {

using Rectangle = RequestTrace::Rectangle;

static_assert(std::endian::native == std::endian::little, "tensor data are sent as they lie");

// Cuts `whole` into pieces of at most kMaxTraceChunkBytes, from the slowest axis on. A row has
// `row_bytes` besides `column_bytes` per column; without columns it is never cut.
void ForEachCut(Rectangle whole, size_t column_bytes, size_t row_bytes,
                absl::FunctionRef<void(const Rectangle&)> visit) {
  whole.columns = std::max(1, whole.columns);
  const auto fitting = [](size_t bytes, int most) {
    const size_t count = bytes == 0 ? static_cast<size_t>(most) : kMaxTraceChunkBytes / bytes;
    return static_cast<int>(std::clamp<size_t>(count, 1, static_cast<size_t>(std::max(most, 1))));
  };
  const auto size = [](int count) { return static_cast<size_t>(count); };
  const int columns = fitting(column_bytes, whole.columns);
  const size_t one_row = size(columns) * column_bytes + row_bytes;
  const int rows = columns < whole.columns ? 1 : fitting(one_row, whole.rows);
  const size_t one_head = size(rows) * one_row;
  const int heads =
      rows < whole.rows || columns < whole.columns ? 1 : fitting(one_head, whole.heads);
  const size_t one_layer = size(heads) * one_head;
  const bool has_whole_layers = heads == whole.heads && rows == whole.rows;
  const int layers =
      has_whole_layers && columns == whole.columns ? fitting(one_layer, whole.layers) : 1;
  for (int l = 0; l < whole.layers; l += layers) {
    for (int h = 0; h < whole.heads; h += heads) {
      for (int r = 0; r < whole.rows; r += rows) {
        for (int c = 0; c < whole.columns; c += columns) {
          visit({.first_layer = l,
                 .layers = std::min(layers, whole.layers - l),
                 .first_head = h,
                 .heads = std::min(heads, whole.heads - h),
                 .first_row = r,
                 .rows = std::min(rows, whole.rows - r),
                 .first_column = c,
                 .columns = std::min(columns, whole.columns - c)});
        }
      }
    }
  }
}

// Calls visit(index) with [layer, head, row] as one index, for every row of a rectangle of `whole`.
void ForEachRow(const Rectangle& whole, const Rectangle& part,
                absl::FunctionRef<void(size_t)> visit) {
  for (int l = part.first_layer; l < part.first_layer + part.layers; ++l) {
    for (int h = part.first_head; h < part.first_head + part.heads; ++h) {
      for (int r = part.first_row; r < part.first_row + part.rows; ++r) {
        visit(static_cast<size_t>((int64_t{l} * whole.heads + h) * whole.rows + r));
      }
    }
  }
}

size_t RowsOf(const Rectangle& part) {
  return static_cast<size_t>(part.layers) * static_cast<size_t>(part.heads) *
         static_cast<size_t>(part.rows);
}

void AppendBytes(std::string& data, const void* source, size_t bytes) {
  data.append(static_cast<const char*>(source), bytes);
}

std::vector<uint32_t> Dims(const Rectangle& part, int last) {
  const auto word = [](int value) { return static_cast<uint32_t>(value); };
  return {word(part.layers), word(part.heads), word(part.rows), word(last)};
}

void AppendHalves(std::string& data, std::span<const float> numbers) {
  const size_t begin = data.size();
  data.resize(begin + numbers.size() * sizeof(uint16_t));
  char* out = data.data() + begin;
  for (const float number : numbers) {
    const uint16_t half = ToHalf(number);
    std::memcpy(out, &half, sizeof(half));
    out += sizeof(half);
  }
}

}  // namespace

// Numbers of some rows for a rectangle of cells, and what is said beside them.
struct RequestTrace::Block {
  Rectangle whole;  // Within the block; columns are set per output.
  int first_layer = 0;
  int first_head = 0;
  const AttentionPiece* piece = nullptr;
  int choice = 0;
  float max_row_sum_error = 0.0f;
  float max_lse_delta = 0.0f;
};

RequestTrace::RequestTrace(const TraceSpec& spec, std::shared_ptr<TraceCredit> credit)
    : spec_(spec), credit_(std::move(credit)) {}

void RequestTrace::Add(TracedStep step, TokenSink& sink) {
  added_us_ += step.added_us;
  const bool is_prompt = std::ranges::all_of(step.pieces, [this](const AttentionPiece& piece) {
    return piece.first_position + piece.rows <= spec_.prompt_tokens;
  });
  if (is_prompt || spec_.origin.is_replay) {
    SendStep(step, sink);
    return;
  }
  // A row that waits for its token must not stop the sequence that computes the token.
  step.hold.Release();
  held_.push_back(std::move(step));
}

void RequestTrace::Release(int choice, int64_t end, TokenSink& sink) {
  std::erase_if(held_, [&](const TracedStep& step) {
    if (step.choice != choice) return false;
    for (const AttentionPiece& piece : step.pieces) {
      if (piece.first_position + piece.rows >= end) return false;
    }
    SendStep(step, sink);
    return true;
  });
}

void RequestTrace::EndChoice(int choice, bool is_cut, TokenSink& sink) {
  if (!is_cut) Release(choice, std::numeric_limits<int64_t>::max(), sink);
  std::erase_if(held_, [&](const TracedStep& step) { return step.choice == choice; });
}

void RequestTrace::SendStep(const TracedStep& step, TokenSink& sink) {
  max_lse_delta_ = std::max(max_lse_delta_, step.lse_delta);
  for (const AttentionPiece& piece : step.pieces) {
    const Block block = {
        .whole = {.layers = piece.layers, .heads = piece.heads, .rows = piece.rows},
        .first_layer = piece.first_layer,
        .first_head = piece.first_head,
        .piece = &piece,
        .choice =
            piece.first_position < spec_.prompt_tokens ? 0 : step.choice + spec_.origin.choice,
        .max_row_sum_error = piece.max_row_sum_error,
        .max_lse_delta = std::max(piece.max_lse_delta, step.lse_delta)};
    max_row_sum_error_ = std::max(max_row_sum_error_, block.max_row_sum_error);
    max_lse_delta_ = std::max(max_lse_delta_, block.max_lse_delta);
    if (piece.first_layer == 0 && piece.first_head == 0) rows_ += static_cast<uint64_t>(piece.rows);
    for (const TraceOutput& output : spec_.outputs) {
      switch (output.kind) {
        case TraceOutputKind::kStats:
          SendRows(block, output.kind, kAttentionStats, piece.stats, sink);
          break;
        case TraceOutputKind::kTopK:
          SendTopK(block, sink);
          break;
        case TraceOutputKind::kSpanMass:
          SendRows(block, output.kind, static_cast<size_t>(spec_.plan.spans()), piece.span_mass,
                   sink);
          break;
        case TraceOutputKind::kDense:
          SendDense(block, output.is_f16, sink);
          break;
        case TraceOutputKind::kColumnSum:
        case TraceOutputKind::kTile:
          break;
      }
    }
    const bool is_summed = std::ranges::any_of(spec_.outputs, [](const TraceOutput& output) {
      return output.kind == TraceOutputKind::kColumnSum || output.kind == TraceOutputKind::kTile;
    });
    if (!is_summed) continue;
    if (sums_ == nullptr) sums_ = std::make_unique<TraceSums>(spec_);
    sums_->Add(piece);
  }
}

void RequestTrace::SendRows(const Block& block, TraceOutputKind kind, size_t width,
                            std::span<const float> numbers, TokenSink& sink) {
  const size_t row_bytes = width * sizeof(float);
  ForEachCut(block.whole, 0, row_bytes, [&](const Rectangle& part) {
    TraceChunk chunk = Head(block, part, kind);
    chunk.values.dims = Dims(part, static_cast<int>(width));
    chunk.values.data.reserve(RowsOf(part) * row_bytes);
    ForEachRow(block.whole, part, [&](size_t row) {
      AppendBytes(chunk.values.data, numbers.data() + row * width, row_bytes);
    });
    Send(std::move(chunk), sink);
  });
}

void RequestTrace::SendTopK(const Block& block, TokenSink& sink) {
  const auto k = static_cast<size_t>(spec_.plan.top_k);
  const AttentionPiece& piece = *block.piece;
  const bool has_tail = spec_.plan.stage == AttentionStage::kWeights;
  const size_t row_bytes = k * (sizeof(uint32_t) + sizeof(float)) + (has_tail ? sizeof(float) : 0);
  ForEachCut(block.whole, 0, row_bytes, [&](const Rectangle& part) {
    TraceChunk chunk = Head(block, part, TraceOutputKind::kTopK);
    chunk.top_keys = {.dims = Dims(part, spec_.plan.top_k), .element = TraceElement::kU32};
    chunk.top_values.dims = chunk.top_keys.dims;
    chunk.top_keys.data.reserve(RowsOf(part) * k * sizeof(uint32_t));
    chunk.top_values.data.reserve(RowsOf(part) * k * sizeof(float));
    ForEachRow(block.whole, part, [&](size_t row) {
      AppendBytes(chunk.top_keys.data, piece.top_keys.data() + row * k, k * sizeof(uint32_t));
      AppendBytes(chunk.top_values.data, piece.top_values.data() + row * k, k * sizeof(float));
      if (has_tail) AppendBytes(chunk.tail_mass.data, &piece.tail_mass[row], sizeof(float));
    });
    if (has_tail) {
      chunk.tail_mass.dims = chunk.top_keys.dims;
      chunk.tail_mass.dims.pop_back();
    }
    Send(std::move(chunk), sink);
  });
}

// Rows of the prompt share a key axis, whatever the steps were that computed them; every later row
// has its own.
void RequestTrace::SendDense(const Block& block, bool is_f16, TokenSink& sink) {
  const AttentionPiece& piece = *block.piece;
  const bool is_prompt = piece.first_position < spec_.prompt_tokens;
  const size_t element_bytes = is_f16 ? sizeof(uint16_t) : sizeof(float);
  for (const KeyRange& wanted : spec_.keys) {
    for (int row = 0; row < piece.rows; row += is_prompt ? piece.rows : 1) {
      const KeyRange keys = Below(wanted, spec_.KeyAxis(piece.first_position + row));
      if (keys.begin == keys.end) continue;
      Rectangle whole = block.whole;
      whole.columns = keys.end - keys.begin;
      if (!is_prompt) whole.rows = 1;
      ForEachCut(whole, element_bytes, 0, [&](Rectangle part) {
        part.first_row += row;
        Send(DenseChunk(block, part, keys.begin, is_f16), sink);
      });
    }
  }
}

TraceChunk RequestTrace::DenseChunk(const Block& block, const Rectangle& part, int first_key,
                                    bool is_f16) const {
  const AttentionPiece& piece = *block.piece;
  const float unseen =
      spec_.plan.stage == AttentionStage::kWeights ? 0.0f : -std::numeric_limits<float>::infinity();
  TraceChunk chunk = Head(block, part, TraceOutputKind::kDense);
  chunk.key_start = first_key + part.first_column;
  chunk.key_count = part.columns;
  chunk.values = {.dims = Dims(part, part.columns),
                  .element = is_f16 ? TraceElement::kF16 : TraceElement::kF32};
  // Later keys of the axis than the step knew are not visible to its rows.
  const int known = std::clamp(piece.key_columns - chunk.key_start, 0, part.columns);
  std::vector<float> numbers;
  ForEachRow(block.whole, part, [&](size_t index) {
    const auto row = piece.values.subspan(index * static_cast<size_t>(piece.key_columns),
                                          static_cast<size_t>(piece.key_columns));
    numbers.assign(static_cast<size_t>(part.columns), unseen);
    std::copy_n(row.begin() + std::min(chunk.key_start, piece.key_columns), known, numbers.begin());
    if (is_f16) {
      AppendHalves(chunk.values.data, numbers);
    } else {
      AppendBytes(chunk.values.data, numbers.data(), numbers.size() * sizeof(float));
    }
  });
  return chunk;
}

void RequestTrace::SendColumnSums(TokenSink& sink) {
  std::vector<float> numbers;
  const int end = sums_->positions().empty() ? 0 : sums_->positions().back() + 1;
  for (size_t range = 0; range < spec_.keys.size(); ++range) {
    // Keys that no row has reached have no sum; there are some only where the answer ended early.
    const KeyRange keys = Below(sums_->Keys(range), end);
    if (keys.begin == keys.end) continue;
    const Rectangle whole = {.layers = spec_.plan.layer_axis(),
                             .heads = spec_.plan.head_axis(),
                             .rows = 1,
                             .columns = keys.end - keys.begin};
    ForEachCut(whole, sizeof(float), 0, [&](const Rectangle& part) {
      TraceChunk chunk = Head(SumBlock(whole), part, TraceOutputKind::kColumnSum);
      for (const int position : sums_->positions()) chunk.rows.push_back({.position = position});
      chunk.key_start = keys.begin + part.first_column;
      chunk.key_count = part.columns;
      chunk.values.dims = Dims(part, part.columns);
      ForEachRow(whole, part, [&](size_t cell) {
        const auto sums =
            sums_->ColumnSums(range, static_cast<int64_t>(cell))
                .subspan(static_cast<size_t>(part.first_column), static_cast<size_t>(part.columns));
        numbers.assign(sums.begin(), sums.end());
        AppendBytes(chunk.values.data, numbers.data(), numbers.size() * sizeof(float));
      });
      Send(std::move(chunk), sink);
    });
  }
}

void RequestTrace::SendTiles(TokenSink& sink) {
  const Bins queries = sums_->QueryBins();
  const float empty =
      spec_.plan.stage == AttentionStage::kWeights ? 0.0f : -std::numeric_limits<float>::infinity();
  for (size_t range = 0; range < spec_.keys.size(); ++range) {
    const KeyRange keys = sums_->Keys(range);
    const auto width = static_cast<size_t>(sums_->KeyBins(range).bins);
    if (width == 0) continue;
    const Rectangle whole = {.layers = spec_.plan.layer_axis(),
                             .heads = spec_.plan.head_axis(),
                             .rows = static_cast<int>(queries.bins)};
    ForEachCut(whole, 0, width * sizeof(float), [&](const Rectangle& part) {
      TraceChunk chunk = Head(SumBlock(whole), part, TraceOutputKind::kTile);
      for (const int position : sums_->positions()) {
        const int64_t bin = queries.BinOf(spec_.RowIndex(position));
        if (bin >= part.first_row && bin < part.first_row + part.rows) {
          chunk.rows.push_back({.position = position});
        }
      }
      chunk.key_start = keys.begin;
      chunk.key_count = keys.end - keys.begin;
      chunk.values.dims = Dims(part, static_cast<int>(width));
      for (int l = part.first_layer; l < part.first_layer + part.layers; ++l) {
        for (int h = part.first_head; h < part.first_head + part.heads; ++h) {
          const std::vector<float> tile = sums_->Tile(range, int64_t{l} * whole.heads + h, empty);
          AppendBytes(chunk.values.data, tile.data() + static_cast<size_t>(part.first_row) * width,
                      static_cast<size_t>(part.rows) * width * sizeof(float));
        }
      }
      Send(std::move(chunk), sink);
    });
  }
}

void RequestTrace::Finish(TokenSink& sink) {
  for (const TraceOutput& output : spec_.outputs) {
    if (sums_ == nullptr) break;
    if (output.kind == TraceOutputKind::kColumnSum) SendColumnSums(sink);
    if (output.kind == TraceOutputKind::kTile) SendTiles(sink);
  }
  TraceChunk chunk;
  chunk.end = {.is_complete = rows_ == static_cast<uint64_t>(spec_.total_rows()),
               .rows = rows_,
               .bytes = bytes_,
               .added_us = added_us_};
  chunk.max_row_sum_error = max_row_sum_error_;
  chunk.max_lse_delta = max_lse_delta_;
  Send(std::move(chunk), sink);
}

// What is summed over rows covers every cell.
RequestTrace::Block RequestTrace::SumBlock(const Rectangle& whole) const {
  return {.whole = whole, .max_row_sum_error = max_row_sum_error_, .max_lse_delta = max_lse_delta_};
}

TraceChunk RequestTrace::Head(const Block& block, const Rectangle& part,
                              TraceOutputKind kind) const {
  const AttentionPlan& plan = spec_.plan;
  TraceChunk chunk;
  chunk.kind = kind;
  chunk.max_row_sum_error = block.max_row_sum_error;
  chunk.max_lse_delta = block.max_lse_delta;
  if (block.piece != nullptr) {
    for (int row = part.first_row; row < part.first_row + part.rows; ++row) {
      chunk.rows.push_back({.position = block.piece->first_position + row, .choice = block.choice});
    }
  }
  const auto slice = [](const std::vector<int32_t>& all, int first, int count) {
    const auto begin = all.begin() + first;
    return std::vector<int32_t>(begin, begin + count);
  };
  const int head = block.first_head + part.first_head;
  const int layer = block.first_layer + part.first_layer;
  chunk.heads = plan.reduce_heads ? plan.heads : slice(plan.heads, head, part.heads);
  if (plan.is_paired) {
    chunk.layers = plan.reduce_heads ? plan.layers : slice(plan.layers, head, part.heads);
  } else {
    chunk.layers = plan.reduce_layers ? plan.layers : slice(plan.layers, layer, part.layers);
  }
  return chunk;
}

void RequestTrace::Send(TraceChunk chunk, TokenSink& sink) {
  chunk.sequence_number = next_sequence_number_++;
  const size_t bytes = chunk.bytes();
  bytes_ += bytes;
  chunk.hold = CreditHold(credit_, static_cast<int64_t>(bytes));
  sink.OnAttention(std::move(chunk));
}

}  // namespace vitrine::server
