// The real model on the CPU, and a view of it with fewer KV blocks.
#pragma once

#include <cstdlib>
#include <memory>
#include <span>
#include <stdexcept>
#include <string_view>
#include <utility>
#include <vector>

#include "kernels/backend_factory.h"
#include "model/loader.h"

namespace vitrine::server {

class RealModel {
 public:
  // Loads the file that VITRINE_TEST_MODEL names. `max_traced_rows`: 0: without inspection.
  explicit RealModel(Numerics numerics = Numerics::kFast, int max_traced_rows = 0) {
    const char* const path = std::getenv("VITRINE_TEST_MODEL");
    if (path == nullptr) {
      throw std::runtime_error("VITRINE_TEST_MODEL must name SmolLM2-135M-Instruct.Q4_1.gguf");
    }
    auto backend = CreateBackend("cpu", {.numerics = numerics});
    if (!backend.ok()) throw std::runtime_error(backend.status().ToString());
    backend_ = *std::move(backend);
    auto model = LoadModel(path, *backend_,
                           {.context_length = 1024,
                            .kv_cache_bytes = int64_t{256} << 20,
                            .max_step_rows = 256,
                            .max_step_sequences = 40,
                            .max_traced_rows = max_traced_rows,
                            .weights = {}});
    if (!model.ok()) throw std::runtime_error(model.status().ToString());
    model_ = *std::move(model);
  }

  Runner& runner() { return *model_.runner; }
  void set_runs_ahead(bool runs_ahead) { model_.runner->set_runs_ahead(runs_ahead); }
  const Tokenizer& tokenizer() const { return *model_.tokenizer; }
  std::vector<TokenId> Encode(std::string_view text) const {
    return tokenizer().Encode(text, {})->ids;
  }

 private:
  std::unique_ptr<Backend> backend_;
  LoadedModel model_;
};

// The same model for an engine that has only the first blocks of its KV storage.
class SmallPool final : public Runner {
 public:
  SmallPool(Runner& runner, int num_blocks) : runner_(runner), limits_(runner.limits()) {
    limits_.num_blocks = num_blocks;
  }
  const RunnerLimits& limits() const override { return limits_; }
  void Step(const Batch& batch, std::span<TokenId> next) override { runner_.Step(batch, next); }
  std::span<const TokenLogprobs> logprobs() const override { return runner_.logprobs(); }
  std::span<const TokenLogprobs> prompt_logprobs() const override {
    return runner_.prompt_logprobs();
  }
  void ReadAttention(const Batch& batch, std::vector<AttentionPiece>& pieces) override {
    runner_.ReadAttention(batch, pieces);
  }
  void ReadLogSumExp(const Batch& batch, std::span<float> values) override {
    runner_.ReadLogSumExp(batch, values);
  }

 private:
  Runner& runner_;
  RunnerLimits limits_;
};

}  // namespace vitrine::server
