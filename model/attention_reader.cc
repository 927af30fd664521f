#include "model/attention_reader.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "model/status.h"

namespace vitrine {
namespace {

constexpr size_t kScratchFloats = size_t{1} << 21;
constexpr size_t kMaxItems = size_t{1} << 15;
// Every number of a result that does not grow with the keys: top-k, spans, statistics, sums.
constexpr size_t kMaxResultFloats = size_t{1} << 14;
constexpr int kAllKeys = std::numeric_limits<int32_t>::max();

size_t Size(int64_t a, int64_t b) { return static_cast<size_t>(a) * static_cast<size_t>(b); }

int MembersOf(const AttentionPlan& plan) {
  const auto heads = static_cast<int>(plan.heads.size());
  const auto layers = static_cast<int>(plan.layers.size());
  if (plan.reduce_heads.has_value()) return heads;
  return plan.reduce_layers.has_value() ? layers : 1;
}

AttentionCombine CombineOf(const AttentionPlan& plan) {
  if (plan.reduce_heads.has_value()) return *plan.reduce_heads;
  return plan.reduce_layers.value_or(AttentionCombine::kMean);
}

bool HasTwoStages(const AttentionPlan& plan) {
  return plan.reduce_heads.has_value() && plan.reduce_layers.has_value();
}

// Whether results are numbers of single rows of weights, whose sums then ride behind their spans.
bool HasSingleRows(const AttentionPlan& plan) {
  return MembersOf(plan) == 1 && !HasTwoStages(plan) && plan.stage == AttentionStage::kWeights;
}

// Whether a run may be computed layer by layer with others. Whole rows are large.
bool IsSingleRow(const TracedRows& run) {
  const AttentionPlan& plan = *run.plan;
  return run.rows == 1 && HasSingleRows(plan) && !plan.is_paired && !plan.wants_rows;
}

int PositionOf(const Batch& batch, const TracedRows& run) {
  const auto sequence = static_cast<size_t>(run.sequence);
  return batch.first_position[sequence] + run.first_row - batch.row_begin[sequence];
}

// Most that one result takes in the output area.
size_t OutputFloats(const AttentionPlan& plan, size_t keys) {
  const auto members =
      static_cast<size_t>(MembersOf(plan)) * (HasTwoStages(plan) ? plan.layers.size() : 1);
  return static_cast<size_t>(kAttentionStats) + 2 * static_cast<size_t>(plan.top_k) + 1 +
         static_cast<size_t>(plan.spans()) + 1 + members + (plan.wants_rows ? keys : 0);
}

}  // namespace

absl::StatusOr<std::unique_ptr<AttentionReader>> AttentionReader::Create(Backend& backend,
                                                                         const ModelConfig& config,
                                                                         int max_positions) {
  std::unique_ptr<AttentionReader> reader(new AttentionReader(backend, config));
  for (int layer = 0; layer < config.num_layers; ++layer) {
    reader->windows_.push_back(config.layer(layer).window);
  }
  const size_t scratch = std::max(kScratchFloats, Size(MaxReducedHeads(config), max_positions));
  const auto allocate = [&](size_t floats) { return backend.Allocate(floats * sizeof(float)); };
  VITRINE_ASSIGN_OR_RETURN(reader->scratch_, allocate(scratch));
  VITRINE_ASSIGN_OR_RETURN(reader->layers_, allocate(Size(config.num_layers, max_positions)));
  VITRINE_ASSIGN_OR_RETURN(reader->layer_stats_,
                           allocate(Size(config.num_layers, kAttentionStats)));
  VITRINE_ASSIGN_OR_RETURN(reader->log_sum_exp_, allocate(kMaxItems));
  const size_t sums = Size(config.num_layers, config.num_heads);
  VITRINE_ASSIGN_OR_RETURN(reader->outputs_,
                           allocate(scratch + kMaxItems + kMaxResultFloats + sums));
  return reader;
}

int AttentionReader::MaxReducedHeads(const ModelConfig& config) {
  return std::max({64, config.num_layers, config.num_heads});
}

void AttentionReader::Begin(const Batch& batch, const KvStorage& kv,
                            DeviceSpan<const float> alibi_slopes) {
  kv_ = &kv;
  alibi_slopes_ = alibi_slopes;
  passes_.clear();
  outputs_used_ = 0;
  lse_deltas_.clear();
  is_approximate_ = kv.spec().dtype != DType::kF32;
  read_by_layer_.assign(batch.traces.size(), 0);
  for (size_t first = 0; first < batch.traces.size(); ++first) {
    if (read_by_layer_[first] == 0 && IsSingleRow(batch.traces[first])) JoinRuns(batch, first);
  }
}

// Runs from `first` on that ask the same become one pass, as many as the scratch memory holds.
void AttentionReader::JoinRuns(const Batch& batch, size_t first) {
  Pass pass;
  pass.plan = batch.traces[first].plan;
  pass.piece.rows = 1;
  pass.piece.layers = pass.plan->layer_axis();
  pass.piece.heads = pass.plan->head_axis();
  for (size_t trace = first; trace < batch.traces.size(); ++trace) {
    const TracedRows& run = batch.traces[trace];
    const bool asks_the_same = run.plan == pass.plan || *run.plan == *pass.plan;
    if (read_by_layer_[trace] != 0 || !IsSingleRow(run) || !asks_the_same) continue;
    const Pass::SingleRow row = {
        .trace = static_cast<int>(trace), .position = PositionOf(batch, run), .row = run.first_row};
    const int keys = std::max(pass.piece.key_columns, row.position + 1);
    const size_t items = (pass.single_rows.size() + 1) * pass.plan->heads.size();
    if (items > kMaxItems || items * static_cast<size_t>(keys) > scratch_.As<float>().size()) break;
    pass.piece.key_columns = keys;
    pass.single_rows.push_back(row);
  }
  for (size_t layer = 0; layer < pass.plan->layers.size(); ++layer) {
    for (const Pass::SingleRow& row : pass.single_rows) {
      for (size_t head = 0; head < pass.plan->heads.size(); ++head) {
        AddItem(pass, layer, head, row.row, row.position);
        pass.log_sum_exp_ids.push_back(row.row * config_.num_heads + pass.plan->heads[head]);
        pass.keys.push_back(pass.item_keys.back());
      }
    }
  }
  ListSpans(pass);
  if (pass.single_rows.empty() || !PlaceOutputs(pass)) return;
  for (const Pass::SingleRow& row : pass.single_rows) {
    read_by_layer_[static_cast<size_t>(row.trace)] = 1;
  }
  passes_.push_back(std::move(pass));
}

void AttentionReader::ReadLayer(int layer, const PagedBatch& batch, DeviceSpan<const float> q,
                                DeviceSpan<const float> log_sum_exp) {
  const Source source = {.q = q, .log_sum_exp = log_sum_exp, .batch = &batch, .first_layer = layer};
  for (const Pass& pass : passes_) {
    const size_t count = pass.results_per_layer();
    for (size_t i = 0; i < pass.plan->layers.size(); ++i) {
      if (pass.plan->layers[i] != layer) continue;
      const size_t first = i * count;
      DeviceSpan<const float> of_results;
      if (pass.plan->wants_stats) {
        of_results = LogSumExp(std::span(pass.log_sum_exp_ids).subspan(first, count), source);
      }
      ComputeRows(std::span(pass.items).subspan(first, count), pass.piece.key_columns,
                  AttentionStage::kWeights, source);
      Reduce(pass, scratch_.As<float>(), of_results, first, count);
    }
  }
}

void AttentionReader::Read(const Batch& batch, const AttentionCapture& capture,
                           std::vector<AttentionPiece>& pieces) {
  const auto first = static_cast<ptrdiff_t>(pieces.size());
  Source source = {
      .q = capture.queries(), .log_sum_exp = capture.log_sum_exp(), .batch = &capture.traced()};
  const auto needs_sums_first = [](const TracedRows& run) { return !HasSingleRows(*run.plan); };
  if (is_approximate_ && std::ranges::any_of(batch.traces, needs_sums_first)) {
    Drain(pieces);  // Normalize needs the output area.
    Normalize(batch, source, capture.log_sum_exp());
  }
  for (size_t trace = 0; trace < batch.traces.size(); ++trace) {
    if (read_by_layer_[trace] != 0) continue;
    ReadRun(batch, static_cast<int>(trace), source, pieces);
    source.first_row += batch.traces[trace].rows;
  }
  Drain(pieces);
  const auto read = std::ranges::subrange(pieces.begin() + first, pieces.end());
  std::ranges::stable_sort(read, {}, &AttentionPiece::trace);
  double work = 0;
  for (const AttentionPiece& piece : read) work += piece.share;
  for (AttentionPiece& piece : read) piece.share /= work;
}

// Replaces the log-sum-exp of every row that is part of another by that of its recomputed scores.
void AttentionReader::Normalize(const Batch& batch, const Source& source,
                                DeviceSpan<float> log_sum_exp) {
  const size_t size = Size(config_.num_layers, int64_t{source.batch->rows()} * config_.num_heads);
  const DeviceSpan<float> on_device = log_sum_exp.subspan(0, size);
  host_log_sum_exp_.resize(size);
  lse_deltas_.assign(size, 0.0f);
  backend_.CopyToHost(DeviceSpan<const float>(on_device), std::span(host_log_sum_exp_));
  Source at = source;
  for (size_t trace = 0; trace < batch.traces.size(); ++trace) {
    const TracedRows& run = batch.traces[trace];
    if (read_by_layer_[trace] != 0) continue;
    if (!HasSingleRows(*run.plan)) SumRun(batch, run, at);
    at.first_row += run.rows;
  }
  TakeSums();
  backend_.CopyToDevice(std::span<const float>(host_log_sum_exp_), on_device);
}

void AttentionReader::SumRun(const Batch& batch, const TracedRows& run, const Source& source) {
  // Every pair of layer and head once, as if nothing were reduced.
  AttentionPlan single;
  single.layers = run.plan->layers;
  single.heads = run.plan->heads;
  single.is_paired = run.plan->is_paired;
  const int position = PositionOf(batch, run);
  const size_t keys = static_cast<size_t>(position) + static_cast<size_t>(run.rows);
  const auto fitting = static_cast<int>(std::min(scratch_.As<float>().size() / keys, kMaxItems));
  const int rows = std::min(run.rows, fitting);
  const int heads = std::min(single.head_axis(), fitting / rows);
  const int layers =
      heads < single.head_axis() ? 1 : std::clamp(fitting / (rows * heads), 1, single.layer_axis());
  for (int row = 0; row < run.rows; row += rows) {
    for (int layer = 0; layer < single.layer_axis(); layer += layers) {
      for (int head = 0; head < single.head_axis(); head += heads) {
        Pass pass;
        pass.plan = &single;
        pass.piece.first_position = position + row;
        pass.piece.rows = std::min(rows, run.rows - row);
        pass.piece.first_layer = layer;
        pass.piece.layers = std::min(layers, single.layer_axis() - layer);
        pass.piece.first_head = head;
        pass.piece.heads = std::min(heads, single.head_axis() - head);
        pass.piece.key_columns = pass.piece.first_position + pass.piece.rows;
        Source at = source;
        at.first_row += row;
        ListItems(pass, at);
        pass.plan = nullptr;  // Not of a result.
        if (outputs_used_ + pass.items.size() > outputs_.As<float>().size()) TakeSums();
        pass.row_sums = outputs_used_;
        outputs_used_ += pass.items.size();
        passes_.push_back(std::move(pass));
        ComputeRows(passes_.back().items, passes_.back().piece.key_columns,
                    AttentionStage::kWeights, at);
        SumRows(passes_.back());
      }
    }
  }
}

void AttentionReader::TakeSums() {
  std::vector<float> sums(outputs_used_);
  backend_.CopyToHost(DeviceSpan<const float>(outputs_.As<float>().subspan(0, sums.size())),
                      std::span(sums));
  for (const Pass& pass : passes_) {
    for (size_t i = 0; i < pass.items.size(); ++i) {
      const auto id = static_cast<size_t>(pass.log_sum_exp_ids[i]);
      const float delta = std::log(sums[pass.row_sums + i]);
      lse_deltas_[id] = delta;
      host_log_sum_exp_[id] += delta;
    }
  }
  passes_.clear();
  outputs_used_ = 0;
}

void AttentionReader::ReadRun(const Batch& batch, int trace, const Source& source,
                              std::vector<AttentionPiece>& pieces) {
  const TracedRows& run = batch.traces[static_cast<size_t>(trace)];
  const AttentionPlan& plan = *run.plan;
  const int position = PositionOf(batch, run);
  const size_t keys = static_cast<size_t>(position) + static_cast<size_t>(run.rows);
  const size_t items = std::min(scratch_.As<float>().size() / keys, kMaxItems);
  const size_t fitting = std::min(items / static_cast<size_t>(MembersOf(plan)),
                                  outputs_.As<float>().size() / OutputFloats(plan, keys));
  // Results of one pass: as many rows as fit, then heads, then layers.
  const int results = std::max(1, static_cast<int>(fitting));
  const int rows = HasTwoStages(plan) ? 1 : std::min<int>(run.rows, results);
  const int heads = std::min(plan.head_axis(), results / rows);
  const int layers =
      heads < plan.head_axis() ? 1 : std::clamp(results / (rows * heads), 1, plan.layer_axis());
  for (int row = 0; row < run.rows; row += rows) {
    for (int layer = 0; layer < plan.layer_axis(); layer += layers) {
      for (int head = 0; head < plan.head_axis(); head += heads) {
        AttentionPiece piece;
        piece.trace = trace;
        piece.first_position = position + row;
        piece.rows = std::min(rows, run.rows - row);
        piece.first_layer = layer;
        piece.layers = std::min(layers, plan.layer_axis() - layer);
        piece.first_head = head;
        piece.heads = std::min(heads, plan.head_axis() - head);
        piece.key_columns = piece.first_position + piece.rows;
        Source at = source;
        at.first_row += row;
        AddPass(plan, piece, at, pieces);
      }
    }
  }
}

void AttentionReader::AddPass(const AttentionPlan& plan, const AttentionPiece& piece,
                              const Source& source, std::vector<AttentionPiece>& pieces) {
  Pass pass;
  pass.plan = &plan;
  pass.piece = piece;
  pass.members = HasTwoStages(plan) ? static_cast<int>(plan.layers.size()) : MembersOf(plan);
  ListItems(pass, source);
  pass.piece.share =
      static_cast<double>(Size(static_cast<int64_t>(pass.items.size()), piece.key_columns));
  ListSpans(pass);
  if (!PlaceOutputs(pass)) {
    Drain(pieces);
    VITRINE_CHECK(PlaceOutputs(pass));
  }
  if (HasTwoStages(plan)) {
    EnqueueLayers(pass, source);
    passes_.push_back(std::move(pass));
    Reduce(passes_.back(), layers_.As<float>(), log_sum_exp_.As<float>(), 0,
           passes_.back().results());
    return;
  }
  passes_.push_back(std::move(pass));
  Enqueue(passes_.back(), source);
}

void AttentionReader::AddItem(Pass& pass, size_t layer, size_t head, int row, int position) const {
  const int32_t at = pass.plan->layers[layer];
  const int window = windows_[static_cast<size_t>(at)];
  pass.items.push_back({.row = row, .layer = at, .head = pass.plan->heads[head]});
  pass.item_keys.push_back(
      {.first_key = window == 0 ? 0 : std::max(0, position - window + 1), .position = position});
}

// Results in the order [layer, head, row]; behind each other the members of one.
void AttentionReader::ListItems(Pass& pass, const Source& source) const {
  const AttentionPlan& plan = *pass.plan;
  const AttentionPiece& piece = pass.piece;
  const bool all_layers = plan.reduce_layers.has_value();
  const bool all_heads = plan.reduce_heads.has_value();
  const auto add = [&](size_t layer, size_t head, int row) {
    AddItem(pass, layer, head, source.first_row + row, piece.first_position + row);
    const AttentionItem& item = pass.items.back();
    pass.log_sum_exp_ids.push_back(
        (item.layer * source.batch->rows() + item.row) * config_.num_heads + item.head);
  };
  const auto add_result = [&](int layer, int head, int row) {
    const size_t begin = pass.item_keys.size();
    const auto h = static_cast<size_t>(head);
    const size_t first_layer = all_layers ? 0 : static_cast<size_t>(layer);
    const size_t last_layer = all_layers ? plan.layers.size() : first_layer + 1;
    for (size_t l = first_layer; l < last_layer; ++l) {
      for (size_t i = all_heads ? 0 : h; i < (all_heads ? plan.heads.size() : h + 1); ++i) {
        add(plan.is_paired ? i : l, i, row);
      }
    }
    AttentionRowKeys keys = pass.item_keys[begin];
    for (size_t i = begin; i < pass.item_keys.size(); ++i) {
      keys.first_key = std::min(keys.first_key, pass.item_keys[i].first_key);
    }
    pass.keys.push_back(keys);
  };
  for (int layer = 0; layer < piece.layers; ++layer) {
    for (int head = 0; head < piece.heads; ++head) {
      for (int row = 0; row < piece.rows; ++row) {
        add_result(piece.first_layer + layer, piece.first_head + head, row);
      }
    }
  }
}

void AttentionReader::ListSpans(Pass& pass) const {
  const AttentionPlan& plan = *pass.plan;
  pass.span_ranges = plan.span_ranges;
  pass.span_begin = plan.span_begin;
  // Where the reduction reads other rows, the sums are an op of their own.
  pass.sums_in_spans = HasSingleRows(plan);
  if (!pass.sums_in_spans) return;
  if (pass.span_begin.empty()) pass.span_begin.push_back(0);
  pass.span_ranges.push_back({.begin = 0, .end = kAllKeys});
  pass.span_begin.push_back(static_cast<int32_t>(pass.span_ranges.size()));
}

// False: the output area has no room left.
bool AttentionReader::PlaceOutputs(Pass& pass) {
  const size_t end = PlaceResults(pass, outputs_used_);
  if (end > outputs_.As<float>().size()) return false;
  outputs_used_ = end;
  return true;
}

void AttentionReader::Enqueue(const Pass& pass, const Source& source) {
  const int keys = pass.piece.key_columns;
  DeviceSpan<const float> log_sum_exp;
  if (pass.plan->wants_stats) log_sum_exp = LogSumExp(pass.log_sum_exp_ids, source);
  ComputeRows(pass.items, keys, AttentionStage::kWeights, source);
  if (!pass.sums_in_spans) SumRows(pass);
  if (pass.plan->stage == AttentionStage::kScores) {
    ComputeRows(pass.items, keys, AttentionStage::kScores, source);
  }
  Reduce(pass, scratch_.As<float>(), log_sum_exp, 0, pass.results());
}

// The first of two stages: the heads of each layer become one row of layers_.
void AttentionReader::EnqueueLayers(const Pass& outer, const Source& source) {
  const AttentionPlan& plan = *outer.plan;
  const size_t heads = plan.heads.size();
  const size_t keys = static_cast<size_t>(outer.piece.key_columns);
  const size_t fitting = std::min(scratch_.As<float>().size() / keys, kMaxItems) / heads;
  for (size_t begin = 0; begin < plan.layers.size(); begin += fitting) {
    const size_t layers = std::min(fitting, plan.layers.size() - begin);
    Pass& pass = passes_.emplace_back();
    pass.plan = &plan;
    pass.is_inner = true;
    pass.piece.key_columns = outer.piece.key_columns;
    pass.members = static_cast<int>(heads);
    const auto slice = [&](const auto& all) {
      const auto first = all.begin() + static_cast<ptrdiff_t>(begin * heads);
      return std::vector(first, first + static_cast<ptrdiff_t>(layers * heads));
    };
    pass.items = slice(outer.items);
    pass.item_keys = slice(outer.item_keys);
    pass.log_sum_exp_ids = slice(outer.log_sum_exp_ids);
    for (size_t l = 0; l < layers; ++l) pass.keys.push_back(pass.item_keys[l * heads]);
    pass.row_sums = outer.row_sums + begin * heads;
    pass.values = begin * keys;                                 // Of layers_.
    pass.stats = begin * static_cast<size_t>(kAttentionStats);  // Of layer_stats_.
    Enqueue(pass, source);
  }
  if (!plan.wants_stats) return;
  Pass& gather = passes_.emplace_back();
  gather.plan = &plan;
  gather.is_inner = true;
  for (size_t l = 0; l < plan.layers.size(); ++l) {
    gather.log_sum_exp_ids.push_back(static_cast<int32_t>(l) * kAttentionStats);
  }
  backend_.GatherRows({.input = layer_stats_.As<float>(),
                       .row_ids = gather.log_sum_exp_ids,
                       .columns = 1,
                       .output = log_sum_exp_.As<float>()});
}

void AttentionReader::ComputeRows(std::span<const AttentionItem> items, int key_columns,
                                  AttentionStage stage, const Source& source) {
  backend_.AttentionRows({.q = source.q,
                          .log_sum_exp = source.log_sum_exp,
                          .row_capacity = source.batch->rows(),
                          .first_layer = source.first_layer,
                          .batch = source.batch,
                          .kv = kv_,
                          .num_heads = config_.num_heads,
                          .scale = config_.attention_scale,
                          .softcap = config_.attention_softcap,
                          .windows = windows_,
                          .alibi_slopes = alibi_slopes_,
                          .items = items,
                          .stage = stage,
                          .key_columns = key_columns,
                          .output = scratch_.As<float>()});
}

// Those of the source, [ids]; valid until the next call.
DeviceSpan<const float> AttentionReader::LogSumExp(std::span<const int32_t> ids,
                                                   const Source& source) {
  const auto is_gap = [](int32_t a, int32_t b) { return b != a + 1; };
  if (std::ranges::adjacent_find(ids, is_gap) == ids.end()) {
    return source.log_sum_exp.subspan(static_cast<size_t>(ids.front()), ids.size());
  }
  backend_.GatherRows({.input = source.log_sum_exp,
                       .row_ids = ids,
                       .columns = 1,
                       .output = log_sum_exp_.As<float>()});
  return log_sum_exp_.As<float>().subspan(0, ids.size());
}

void AttentionReader::SumRows(const Pass& pass) {
  static constexpr KeyRange kEverything[] = {{.begin = 0, .end = kAllKeys}};
  static constexpr int32_t kOneSpan[] = {0, 1};
  backend_.AttentionReduce(
      {.input = scratch_.As<float>(),
       .key_columns = pass.piece.key_columns,
       .rows = pass.item_keys,
       .span_ranges = kEverything,
       .span_begin = kOneSpan,
       .span_mass = outputs_.As<float>().subspan(pass.row_sums, pass.items.size())});
}

// Results [first, first + results) of the pass, whose rows are in `input`.
void AttentionReader::Reduce(const Pass& pass, DeviceSpan<const float> input,
                             DeviceSpan<const float> log_sum_exp, size_t first, size_t results) {
  const AttentionPlan& plan = *pass.plan;
  const auto keys = static_cast<size_t>(pass.piece.key_columns);
  AttentionReduceArgs args = {.input = input,
                              .key_columns = pass.piece.key_columns,
                              .members = pass.members,
                              .combine = CombineOf(plan),
                              .rows = std::span(pass.keys).subspan(first, results),
                              .log_sum_exp = log_sum_exp};
  const auto place = [&](size_t begin, size_t per_result) {
    return outputs_.As<float>().subspan(begin + first * per_result, results * per_result);
  };
  if (pass.is_inner) {
    args.combined = layers_.As<float>().subspan(pass.values, results * keys);
    if (plan.wants_stats) {
      args.stats = layer_stats_.As<float>().subspan(pass.stats, results * kAttentionStats);
    }
    backend_.AttentionReduce(args);
    return;
  }
  if (HasTwoStages(plan)) args.combine = plan.reduce_layers.value_or(AttentionCombine::kMean);
  if (plan.wants_stats) args.stats = place(pass.stats, kAttentionStats);
  if (plan.top_k > 0) {
    const auto top_k = static_cast<size_t>(plan.top_k);
    args.top_k = plan.top_k;
    args.top_ranges = plan.top_ranges;
    args.top_keys = outputs_.As<uint32_t>().subspan(pass.top_keys + first * top_k, results * top_k);
    args.top_values = place(pass.top_values, top_k);
    if (plan.stage == AttentionStage::kWeights) args.tail_mass = place(pass.tail_mass, 1);
  }
  if (!pass.span_begin.empty()) {
    args.span_ranges = pass.span_ranges;
    args.span_begin = pass.span_begin;
    args.span_mass = place(pass.span_mass, pass.span_begin.size() - 1);
  }
  if (plan.wants_rows) args.combined = place(pass.values, keys);
  backend_.AttentionReduce(args);
}

void AttentionReader::Drain(std::vector<AttentionPiece>& pieces) {
  if (passes_.empty()) return;
  const std::shared_ptr<float[]> memory(new float[outputs_used_]);
  backend_.CopyToHost(DeviceSpan<const float>(outputs_.As<float>().subspan(0, outputs_used_)),
                      std::span(memory.get(), outputs_used_));
  const RowSumRule rule = {.divides = is_approximate_, .lse_deltas = lse_deltas_};
  for (const Pass& pass : passes_) {
    if (!pass.single_rows.empty()) {
      CollectPieces(pass, rule, memory.get(), pieces);
    } else if (!pass.is_inner) {
      pieces.push_back(CollectPiece(pass, rule, memory));
    }
  }
  passes_.clear();
  outputs_used_ = 0;
}

}  // namespace vitrine
