// Attention in f64 from its definition, with bounds for what a backend may differ by.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "kernels/dtype.h"
#include "tests/kernels/backends.h"
#include "tests/kernels/paged.h"

namespace vitrine::testing {

struct AttentionOptions {
  float scale = 1.0f;
  float softcap = 0.0f;
  int window = 0;
  std::vector<float> sinks{};         // [num_heads], or empty
  std::vector<float> alibi_slopes{};  // [num_heads], or empty
};

// Keys and values of one sequence from position 0 on, as a cache of `dtype` stores them.
struct SequenceKv {
  DType dtype = DType::kF32;
  std::vector<float> keys{};    // [positions, num_kv_heads, head_dim]
  std::vector<float> values{};  // the same
};

struct AttentionRow {
  std::vector<Bounded> scores{};   // [position + 1]; of keys outside the window: -infinity
  std::vector<Bounded> weights{};  // [position + 1]
  std::vector<Bounded> output{};   // [head_dim]
  Bounded log_sum_exp{};
};

// One query head of the row at `position`; `q` is that head's [head_dim].
AttentionRow AttendExactly(const BackendCase& backend_case, const AttentionOptions& options,
                           const HeadShape& shape, const SequenceKv& kv, std::span<const float> q,
                           int head, int position);

// The relative error of queries and softmax weights in attention over a cache of `dtype`.
double OperandRounding(const BackendCase& backend_case, DType dtype);

// What a cache of `dtype` makes of values, and of the keys of heads of `head_dim`.
std::vector<float> StoredValues(DType dtype, std::vector<float> values);
std::vector<float> StoredKeys(DType dtype, int head_dim, std::vector<float> keys);

}  // namespace vitrine::testing
