#include "tests/gpu_check/step_speed.h"

#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

#include "kernels/check.h"
#include "model/kv_cache.h"

namespace vitrine::gpu_check {
namespace {

using Json = nlohmann::json;

constexpr int kWarmSteps = 3;  // Until the step is recorded and has been replayed.
constexpr double kUsed = 0.9;  // Of the free memory; the rest is for activations and graphs.

class StepBench {
 public:
  StepBench(Backend& backend, const SpeedPlan& plan, const DeviceLimits& limits, Report& report)
      : plan_(plan), limits_(limits), report_(report) {
    const int most_rows = *std::ranges::max_element(plan.prompts);
    const int most_batch = *std::ranges::max_element(plan.batches);
    const int most_context = *std::ranges::max_element(plan.contexts) + kMargin;
    const double free =
        kUsed * static_cast<double>(backend.FreeBytes().value_or(0)) - WeightBytes(plan.shape);
    const double block_bytes = KvBytesPerToken(plan.shape) * kKvBlockTokens;
    const int fitting = free > 0 ? static_cast<int>(free / block_bytes) : 0;
    const int wanted = most_batch * BlocksFor(most_context);
    if (free <= 0) {
      report_.Append("not_measured", {{"step", "all"}, {"needs_bytes", WeightBytes(plan.shape)}});
      return;
    }
    blocks_ = std::min(wanted, std::max(fitting, BlocksFor(most_context)));
    runner_ = CreateSynthetic(backend, plan.shape,
                              {.max_rows = std::max(most_rows, most_batch),
                               .max_samples = most_batch,
                               .max_positions = most_context,
                               .num_blocks = blocks_});
  }

  void Run() {
    if (runner_ == nullptr) return;
    for (const int rows : plan_.prompts) Measure("prompt", 1, 0, rows);
    for (const int context : plan_.contexts) {
      for (const int batch : plan_.batches) {
        for (const bool graphs : {true, false}) {
          runner_->set_records(graphs);
          Measure(graphs ? "decode" : "decode_without_graphs", batch, context - 1, 1);
        }
        runner_->set_records(true);
        runner_->set_runs_ahead(true);
        Measure("decode_ahead", batch, context - 1, 1);
        runner_->set_runs_ahead(false);
      }
    }
  }

 private:
  static constexpr int kMargin = 16;  // Steps that follow on each other at most.

  // Each step is the same, but where the runner runs ahead: there it takes what the last one drew.
  void Measure(const char* name, int sequences, int position, int rows) {
    const bool goes_on = runner_->limits().runs_ahead;
    const int blocks = BlocksFor(position + (goes_on ? kMargin : rows));
    Json what = {{"step", name}, {"batch", sequences}, {"context", position + rows}};
    if (sequences * blocks > blocks_) {
      report_.Append("not_measured", std::move(what));
      return;
    }
    VITRINE_CHECK_LE(kWarmSteps + plan_.repetitions.launches, kMargin);
    Batch batch = MakeBatch(sequences, position, rows, blocks);
    for (int s = 0; goes_on && s < sequences; ++s) batch.continuing.push_back(s);
    std::vector<TokenId> next(batch.sampling.size());
    std::vector<double> seconds;
    for (int i = -kWarmSteps; i < plan_.repetitions.launches; ++i) {
      const auto start = std::chrono::steady_clock::now();
      runner_->Step(batch, next);
      const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
      if (i >= 0) seconds.push_back(elapsed.count());
      if (goes_on) GoOn(batch, next);
    }
    report_.EndIfDeviceFailed();
    // A figure of a step whose logits are not numbers would mean nothing.
    if (std::ranges::find(next, kNoToken) != next.end()) what["failed"] = "a row has no token";
    std::ranges::sort(seconds);
    const double median = seconds[seconds.size() / 2];
    const double bytes =
        WeightBytes(plan_.shape) + KvBytesPerToken(plan_.shape) * sequences * (position + rows);
    what["ms"] = median * 1e3;
    what["tokens_per_s"] = sequences * rows / median;
    what["gb_per_s"] = bytes / median / 1e9;
    what["of_read"] = limits_.read_bytes_per_s > 0 ? bytes / median / limits_.read_bytes_per_s : 0;
    report_.Append("steps", std::move(what));
  }

  static void GoOn(Batch& batch, const std::vector<TokenId>& drawn) {
    batch.token_ids = drawn;
    for (int32_t& position : batch.first_position) ++position;
    for (SampleRow& row : batch.sampling) ++row.position;
  }

  Batch MakeBatch(int sequences, int position, int rows, int blocks) const {
    Batch batch;
    batch.max_blocks = blocks;
    for (int s = 0; s < sequences; ++s) {
      for (int r = 0; r < rows; ++r) {
        batch.token_ids.push_back((s * 131 + r * 17 + 5) % plan_.shape.vocabulary);
      }
      batch.row_begin.push_back(batch.rows());
      batch.first_position.push_back(position);
      for (int b = 0; b < blocks; ++b) batch.block_table.push_back(b * sequences + s);
      batch.sampled_rows.push_back(batch.rows() - 1);
      batch.sampling.push_back({.position = position + rows});
    }
    return batch;
  }

  const SpeedPlan& plan_;
  const DeviceLimits& limits_;
  Report& report_;
  int blocks_ = 0;
  std::unique_ptr<TransformerRunner> runner_;
};

}  // namespace

void MeasureSteps(Backend& backend, const SpeedPlan& plan, const DeviceLimits& limits,
                  Report& report) {
  StepBench(backend, plan, limits, report).Run();
}

}  // namespace vitrine::gpu_check
