#include "kernels/cpu/step_recorder.h"

#include <algorithm>
#include <cstring>

#include "kernels/cpu/attention_reduce.h"
#include "kernels/sampling_math.h"

namespace vitrine::cpu {
namespace {

// The part of a weight stream that is fetched before it is read; with more rows more of it, because
// their activations come from the other cores at the same time.
constexpr size_t kFetchBytes = 8192;
constexpr int kFewRows = 8;
constexpr size_t kManyRowsFetchBytes = 16384;  // To L2, to leave L1 to the rows.

template <class... Cases>
struct Overloaded : Cases... {
  using Cases::operator()...;
};
template <class... Cases>
Overloaded(Cases...) -> Overloaded<Cases...>;

const PackedMatrix* WeightOf(const Phase& phase) {
  return std::visit(
      [](const auto& op) -> const PackedMatrix* {
        if constexpr (requires { op.args.weight->layout(); }) return op.args.weight;
        return nullptr;
      },
      phase);
}

// Rows of a phase that has weights.
int RowsOf(const Phase& phase) {
  return std::visit(
      [](const auto& op) -> int {
        if constexpr (requires { op.args.target.batch->rows(); })
          return op.args.target.batch->rows();
        if constexpr (requires { op.args.rows + 1; }) return op.args.rows;
        return 0;
      },
      phase);
}

bool IsPrivate(const Phase& phase) {
  return std::visit(
      [](const auto& op) {
        if constexpr (requires { op.is_private; }) return op.is_private;
        return false;
      },
      phase);
}

// The rows that a private phase reads.
DeviceSpan<const float> ReadBy(const Phase& phase) {
  return std::visit(
      [](const auto& op) -> DeviceSpan<const float> {
        if constexpr (requires { op.is_private; }) return op.args.input;
        return {};
      },
      phase);
}

bool Overlap(DeviceSpan<const float> a, DeviceSpan<const float> b) {
  return a.data() < b.data() + b.size() && b.data() < a.data() + a.size();
}

void RunEmbed(const WorkerContext& context, const EmbedPhase& phase) {
  const EmbedArgs& args = phase.args;
  const CpuMatrix& table = AsMatrix(args.table);
  const int64_t columns = table.columns();
  float* block = context.scratch.columns;
  const auto rows = static_cast<int64_t>(args.token_ids.size());
  context.pool.ForEach(context.worker, rows, 1, [&](int64_t row) {
    const CpuMatrix::Lane place =
        table.LaneOf(TokenOf(args.token_ids[static_cast<size_t>(row)], args.drawn.data()));
    const DType dtype = place.panel->dtype;
    float* out = args.output.data() + row * columns;
    for (int64_t k = 0; k < columns; k += kBlockColumns) {
      context.kernels.decode_block[static_cast<size_t>(dtype)](
          place.panel->data, static_cast<int>(k / kBlockColumns), block);
      const int64_t count = std::min<int64_t>(kBlockColumns, columns - k);
      for (int64_t i = 0; i < count; ++i) {
        out[k + i] = args.scale * block[i * kPanelRows + place.lane];
      }
    }
    if (args.position_table.empty()) return;
    const float* learned = args.position_table.data() +
                           int64_t{PositionOf(*args.batch, static_cast<int>(row))} * columns;
    for (int64_t k = 0; k < columns; ++k) out[k] += learned[k];
  });
}

void RunGatherRows(const WorkerContext& context, const GatherRowsPhase& phase) {
  const GatherRowsArgs& args = phase.args;
  const auto columns = static_cast<size_t>(args.columns);
  const auto rows = static_cast<int64_t>(args.row_ids.size());
  context.pool.ForEach(context.worker, rows, 1, [&](int64_t item) {
    const auto i = static_cast<size_t>(item);
    const float* source = args.input.data() + static_cast<size_t>(args.row_ids[i]) * columns;
    std::memcpy(args.output.data() + i * columns, source, columns * sizeof(float));
  });
}

void RunScatterAdd(const WorkerContext& context, const ScatterAddPhase& phase) {
  const ScatterAddArgs& args = phase.args;
  const auto columns = static_cast<size_t>(args.columns);
  const auto rows = static_cast<int64_t>(args.row_ids.size());
  context.pool.ForEach(context.worker, rows, 1, [&](int64_t item) {
    const auto i = static_cast<size_t>(item);
    const float* input = args.input.data() + i * columns;
    float* output = args.output.data() + static_cast<size_t>(args.row_ids[i]) * columns;
    for (size_t c = 0; c < columns; ++c) output[c] += args.scales[i] * input[c];
  });
}

void RunAttentionReduce(const WorkerContext& context, const AttentionReducePhase& phase) {
  const auto rows = static_cast<int64_t>(phase.args.rows.size());
  context.pool.ForEach(context.worker, rows, 1, [&](int64_t row) {
    ReduceAttentionRow(context.kernels, phase.args, static_cast<size_t>(row));
  });
}

void RunAdjustLogits(const WorkerContext& context, const AdjustLogitsPhase& phase) {
  const AdjustLogitsArgs& args = phase.args;
  const auto vocabulary = static_cast<size_t>(args.vocabulary);
  const auto count = static_cast<int64_t>(args.adjustments.size());
  context.pool.ForEach(context.worker, count, 1, [&](int64_t item) {
    const auto i = static_cast<size_t>(item);
    const LogitAdjustment& adjustment = args.adjustments[i];
    const float* logits = args.logits.data() + static_cast<size_t>(adjustment.row) * vocabulary;
    AdjustLogitsRow({logits, vocabulary}, adjustment,
                    {args.output.data() + i * vocabulary, vocabulary});
  });
}

void RunSample(const WorkerContext& context, const SamplePhase& phase) {
  const SampleArgs& args = phase.args;
  const auto vocabulary = static_cast<size_t>(args.vocabulary);
  const auto rows = static_cast<int64_t>(args.rows.size());
  context.pool.ForEach(context.worker, rows, 1, [&](int64_t item) {
    const auto i = static_cast<size_t>(item);
    args.token_ids.data()[i] = context.kernels.draw_token({args.SourceOf(i), vocabulary},
                                                          args.rows[i], context.scratch.vocabulary);
  });
}

void RunLogprobs(const WorkerContext& context, const LogprobsPhase& phase) {
  const auto rows = static_cast<int64_t>(phase.args.rows.size());
  context.pool.ForEach(context.worker, rows, 1, [&](int64_t item) {
    const auto row = static_cast<size_t>(item);
    phase.args.output.data()[row] =
        context.kernels.row_logprobs(phase.args, row, context.scratch.vocabulary);
  });
}

}  // namespace

StepRecorder::StepRecorder(ThreadPool& pool, const KernelTable& kernels,
                           std::span<WorkerScratch> scratch)
    : pool_(pool), kernels_(kernels), scratch_(scratch) {
  phases_.reserve(kMaxPhases);
  barriers_.reserve(kMaxPhases);
}

void StepRecorder::Add(const Phase& phase) {
  if (!barriers_.empty()) barriers_.back() = NeedsBarrierBefore(phase) ? 1 : 0;
  phases_.push_back(phase);
  barriers_.push_back(0);  // Run itself ends with one.
  // Places and plans of the phase are in use: they must outlive a flush that it causes, so the list
  // is flushed when it is full, not when the next phase finds it full.
  if (phases_.size() == kMaxPhases) Flush();
}

bool StepRecorder::ReduceLastRows(const AttentionReduceArgs& args) {
  auto* rows = phases_.empty() ? nullptr : std::get_if<AttentionRowsPhase>(&phases_.back());
  if (rows == nullptr || rows->reduction.has_value() || args.members != 1) return false;
  if (args.input.data() != rows->args.output.data() || args.key_columns != rows->args.key_columns ||
      args.rows.size() != rows->args.items.size()) {
    return false;
  }
  rows->reduction = args;
  return true;
}

// None is needed behind private phases, whose rows the same worker reads, unless the phase writes
// what other workers may still be reading in them.
bool StepRecorder::NeedsBarrierBefore(const Phase& phase) const {
  if (!IsPrivate(phases_.back())) return true;
  if (IsPrivate(phase)) return false;
  DeviceSpan<const float> written;
  if (const auto* op = std::get_if<MatMulPhase>(&phase)) {
    written = op->args.output;
  } else if (const auto* heads = std::get_if<MatMulRopeWriteKvPhase>(&phase)) {
    written = heads->args.target.q;
  } else if (!std::holds_alternative<ActivatedMatMulPhase>(phase)) {
    return true;
  }
  for (size_t i = phases_.size(); i > 0 && IsPrivate(phases_[i - 1]); --i) {
    if (Overlap(ReadBy(phases_[i - 1]), written)) return true;
  }
  return false;
}

const RowPlace* StepRecorder::PlacesOf(const PagedBatch& batch, const KvStorageSpec& kv) {
  for (size_t i = 0; i < places_in_use_; ++i) {
    if (places_[i].batch == &batch && places_[i].num_blocks == kv.num_blocks) {
      return places_[i].rows.data();
    }
  }
  if (places_in_use_ == kMaxPlans) Flush();
  Places& places = places_[places_in_use_++];
  places.batch = &batch;
  places.num_blocks = kv.num_blocks;
  places.rows.resize(static_cast<size_t>(batch.rows()));
  ForEachPlace(batch, kv.num_blocks, [&](int row, const RowPlace& place) {
    places.rows[static_cast<size_t>(row)] = place;
  });
  return places.rows.data();
}

AttentionPlan* StepRecorder::PlanOf(const AttentionShape& shape) {
  for (size_t i = 0; i < plans_in_use_; ++i) {
    if (plans_[i].shape() == shape) return &plans_[i];
  }
  if (plans_in_use_ == kMaxPlans) Flush();
  AttentionPlan& plan = plans_[plans_in_use_++];
  plan.Build(shape, pool_.workers());
  return &plan;
}

void StepRecorder::Flush() {
  if (!phases_.empty()) {
    pool_.Run([](void* self, int worker) { static_cast<StepRecorder*>(self)->RunWorker(worker); },
              this);
  }
  phases_.clear();
  barriers_.clear();
  places_in_use_ = 0;
  plans_in_use_ = 0;
}

void StepRecorder::RunWorker(int worker) {
  const WorkerContext context{pool_, kernels_, worker, scratch_[static_cast<size_t>(worker)]};
  if (kernels_.enter_step != nullptr) kernels_.enter_step();
  for (size_t i = 0; i < phases_.size(); ++i) {
    RunPhase(context, phases_[i]);
    if (barriers_[i] == 0) continue;
    FetchWeightsAfter(context, i);
    pool_.Barrier();
  }
  if (kernels_.leave_step != nullptr) kernels_.leave_step();
}

void StepRecorder::RunPhase(const WorkerContext& context, const Phase& phase) {
  std::visit(
      Overloaded{
          [&](const EmbedPhase& op) { RunEmbed(context, op); },
          [&](const GatherRowsPhase& op) { RunGatherRows(context, op); },
          [&](const RmsNormPhase& op) { kernels_.rms_norm(context, op); },
          [&](const MatMulPhase& op) { kernels_.mat_mul(context, op); },
          [&](const ActivatedMatMulPhase& op) { kernels_.activated_mat_mul(context, op); },
          [&](const RopeWriteKvPhase& op) { kernels_.rope_write_kv(context, op); },
          [&](const MatMulRopeWriteKvPhase& op) { kernels_.mat_mul_rope_write_kv(context, op); },
          [&](const PagedAttentionPhase& op) { kernels_.paged_attention(context, op); },
          [&](const QuantizePhase& op) { kernels_.quantize(context, op); },
          [&](const LayerNormPhase& op) { kernels_.layer_norm(context, op); },
          [&](const PackRowsPhase& op) { kernels_.pack_rows(context, op); },
          [&](const RmsNormAddPhase& op) { kernels_.rms_norm_add(context, op); },
          [&](const AttentionRowsPhase& op) { kernels_.attention_rows(context, op); },
          [&](const AttentionReducePhase& op) { RunAttentionReduce(context, op); },
          [&](const AdjustLogitsPhase& op) { RunAdjustLogits(context, op); },
          [&](const SamplePhase& op) { RunSample(context, op); },
          [&](const LogprobsPhase& op) { RunLogprobs(context, op); },
          [&](const ScatterAddPhase& op) { RunScatterAdd(context, op); },
      },
      phase);
}

void StepRecorder::FetchWeightsAfter(const WorkerContext& context, size_t phase) {
  size_t next = phase + 1;
  if (IsPrivate(phases_[next]) && next + 1 < phases_.size()) ++next;
  const PackedMatrix* weight = WeightOf(phases_[next]);
  if (weight == nullptr) return;
  const std::vector<Panel>& panels = AsMatrix(weight).panels();
  const int64_t first = pool_.RangeBegin(context.worker, static_cast<int64_t>(panels.size()));
  const uint8_t* begin = panels[static_cast<size_t>(first)].data;
  if (RowsOf(phases_[next]) <= kFewRows) {
    for (size_t at = 0; at < kFetchBytes; at += 64) __builtin_prefetch(begin + at);
  } else {
    for (size_t at = 0; at < kManyRowsFetchBytes; at += 64) __builtin_prefetch(begin + at, 0, 2);
  }
}

}  // namespace vitrine::cpu
