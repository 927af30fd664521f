// Collects the ops of a step and runs them with one dispatch.
#pragma once

#include <array>
#include <span>
#include <vector>

#include "kernels/cpu/kernel_table.h"

namespace vitrine::cpu {

class StepRecorder {
 public:
  StepRecorder(ThreadPool& pool, const KernelTable& kernels, std::span<WorkerScratch> scratch);

  // Appends a phase; runs what is there first when the list is full.
  void Add(const Phase& phase);

  // Makes the reduction part of the phase that computes its rows: they are read again while they
  // are near, and memory delivers the next keys meanwhile. False where the last phase is none that
  // computes just these.
  bool ReduceLastRows(const AttentionReduceArgs& args);

  // Run once all phases so far are through; both are shared by the ops of a step.
  const RowPlace* PlacesOf(const PagedBatch& batch, const KvStorageSpec& kv);
  AttentionPlan* PlanOf(const AttentionShape& shape);

  // Runs the phases; all are complete on return.
  void Flush();

 private:
  // Deep models have a few hundred phases per step.
  static constexpr size_t kMaxPhases = 2048;
  static constexpr size_t kMaxPlans = 4;

  struct Places {
    const PagedBatch* batch = nullptr;
    int num_blocks = 0;
    std::vector<RowPlace> rows;
  };

  bool NeedsBarrierBefore(const Phase& phase) const;
  void RunWorker(int worker);
  void RunPhase(const WorkerContext& context, const Phase& phase);
  // Starts to fetch the weights that the worker will read behind the barrier.
  void FetchWeightsAfter(const WorkerContext& context, size_t phase);

  ThreadPool& pool_;
  const KernelTable& kernels_;
  std::span<WorkerScratch> scratch_;
  std::vector<Phase> phases_;
  std::vector<char> barriers_;  // Whether one follows the phase.
  std::array<Places, kMaxPlans> places_;
  size_t places_in_use_ = 0;
  std::array<AttentionPlan, kMaxPlans> plans_;
  size_t plans_in_use_ = 0;
};

}  // namespace vitrine::cpu
