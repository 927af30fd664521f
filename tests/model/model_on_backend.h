// A golden or random model on any backend, for tests that compare whole models.
//
// The stated bound. With exact numerics both compute in f32, so the golden file's own tolerance
// holds. With fast numerics activations, keys, values and softmax weights are rounded to bf16: to
// first order an error is linear in the unit roundoff, so the measured noise of an f32 run (2^-24)
// times 2^15 bounds a bf16 run (2^-9).
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <fstream>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "kernels/backend_factory.h"
#include "model/kv_cache.h"
#include "model/model_files.h"
#include "model/tensor_map.h"
#include "model/transformer_runner.h"
#include "model/weights.h"
#include "tests/model/random_llama.h"
#include "tests/test_data.h"

namespace vitrine::testing {

inline constexpr float kF32ToBf16 = 0x1p15f;

inline float LargestDifference(const std::vector<float>& a, const std::vector<float>& b) {
  float largest = 0.0f;
  for (size_t i = 0; i < a.size(); ++i) largest = std::max(largest, std::abs(a[i] - b[i]));
  return largest;
}

inline constexpr int kTokens = 40;
inline constexpr int kSequences = 16;
inline constexpr int kBlocksPerSequence = BlocksFor(kTokens + 1);

inline constexpr DType kRandomTypes[] = {DType::kF16, DType::kBF16, DType::kQ8_0, DType::kQ4_0,
                                         DType::kQ4_1};

inline std::string RandomName(DType dtype) { return "random-" + std::string(TraitsOf(dtype).name); }

// Where a model lies: a golden folder, or a random llama that is written first.
inline std::string PathOf(const std::string& model) {
  for (const DType dtype : kRandomTypes) {
    if (model != RandomName(dtype)) continue;
    const std::string path = ::testing::TempDir() + "/" + model + ".gguf";
    std::ofstream(path, std::ios::binary) << RandomLlama(dtype).Bytes();
    return path;
  }
  return TestData() + "/models/" + model;
}

// A model on a backend, with blocks for kSequences sequences.
class ModelOnBackend {
 public:
  ModelOnBackend(const std::string& model, const std::string& backend, Numerics numerics)
      : backend_(*CreateBackend(backend, {.numerics = numerics, .threads = 1})) {
    const auto files = *ModelFiles::Open(PathOf(model));
    const ModelDescription description = *files->Describe();
    vocabulary_ = description.config.vocabulary;
    const ModelTensors tensors =
        *MapTensors(description.config, **files->Weights(), description.names);
    runner_ = *TransformerRunner::Create(
        *backend_, description.config, *LoadWeights(description.config, tensors, *backend_),
        {.max_rows = kTokens,
         .max_samples = kTokens,
         .max_positions = kTokens + 1,
         .num_blocks = kSequences * kBlocksPerSequence,
         .kv_dtype = numerics == Numerics::kExact ? DType::kF32 : DType::kBF16});
  }

  int vocabulary() const { return vocabulary_; }

  struct Piece {
    int sequence = 0;
    int begin = 0;  // Position of the first token.
    std::vector<TokenId> tokens = {};
  };

  Batch MakeBatch(const std::vector<Piece>& pieces) const {
    Batch batch;
    batch.max_blocks = kBlocksPerSequence;
    for (const Piece& piece : pieces) {
      batch.first_position.push_back(piece.begin);
      for (int b = 0; b < kBlocksPerSequence; ++b) {
        batch.block_table.push_back(b * kSequences + piece.sequence);  // Blocks lie apart.
      }
      for (const TokenId token : piece.tokens) {
        batch.sampled_rows.push_back(batch.rows());
        const int position = piece.begin + batch.rows() - batch.row_begin.back() + 1;
        batch.sampling.push_back({.temperature = 0.8f, .seed = 5, .position = position});
        batch.token_ids.push_back(token);
      }
      batch.row_begin.push_back(batch.rows());
    }
    return batch;
  }

  // Computes the pieces in one step. The logits of all their rows, [rows, vocabulary].
  std::vector<float> Logits(const std::vector<Piece>& pieces) {
    const Batch batch = MakeBatch(pieces);
    drawn_.resize(batch.sampling.size());
    runner_->Step(batch, drawn_);
    std::vector<float> logits(drawn_.size() * static_cast<size_t>(vocabulary_));
    runner_->CopyLogits(logits);
    return logits;
  }
  // The tokens that the last step drew at temperature 0.8.
  const std::vector<TokenId>& drawn() const { return drawn_; }
  TransformerRunner& runner() { return *runner_; }

 private:
  std::unique_ptr<Backend> backend_;
  int vocabulary_ = 0;
  std::unique_ptr<TransformerRunner> runner_;
  std::vector<TokenId> drawn_;
};

inline std::vector<TokenId> RandomTokens(int count, int vocabulary, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<TokenId> tokens;
  for (int i = 0; i < count; ++i) {
    tokens.push_back(static_cast<TokenId>(random() % static_cast<uint32_t>(vocabulary)));
  }
  return tokens;
}

}  // namespace vitrine::testing
