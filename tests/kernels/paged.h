// Sequences in a paged cache, for the tests of ops that read or write it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/paged_batch.h"
#include "tests/kernels/backends.h"

namespace vitrine::testing {

// Rows of one sequence in a step.
struct StepPart {
  int sequence = 0;
  int first_position = 0;
  int rows = 0;
};

// A PagedBatch with the arrays it points to.
class Step {
 public:
  Step(std::vector<int32_t> row_begin, std::vector<int32_t> first_position,
       std::vector<int32_t> block_table, int max_blocks);
  Step(const Step&) = delete;
  Step& operator=(const Step&) = delete;

  const PagedBatch& batch() const { return batch_; }
  int rows() const { return batch_.rows(); }

 private:
  std::vector<int32_t> row_begin_;
  std::vector<int32_t> first_position_;
  std::vector<int32_t> block_table_;
  PagedBatch batch_;
};

// Gives each sequence blocks of its own, in random order.
class PagedSequences {
 public:
  PagedSequences(int sequences, int max_tokens, Random& random);

  int num_blocks() const { return static_cast<int>(blocks_.size()); }
  Step MakeStep(const std::vector<StepPart>& parts) const;

 private:
  int blocks_per_sequence_;
  std::vector<int32_t> blocks_;
};

struct HeadShape {
  int num_heads = 1;
  int num_kv_heads = 1;
  int head_dim = 8;

  int64_t q_columns() const { return int64_t{num_heads} * head_dim; }
  int64_t kv_columns() const { return int64_t{num_kv_heads} * head_dim; }
  int64_t qkv_columns() const { return q_columns() + 2 * kv_columns(); }
  KvStorageSpec KvSpec(DType dtype, int num_blocks, int num_layers = 1) const;
};

// The types of cache that a backend offers.
std::vector<DType> CacheTypes(const BackendCase& backend_case);

// Writes keys and values of a step, unrotated, and returns the device copy of its queries.
// `qkv` is [rows, num_heads + 2 num_kv_heads, head_dim].
DeviceSpan<float> WriteUnrotated(Harness& harness, KvStorage* kv, int layer, const Step& step,
                                 const HeadShape& shape, std::span<const float> qkv);

// What the cache holds for the rows of a step, read through attention of each row to itself alone:
// its output is the value, and its log-sum-exp for a unit query is one element of the key.
struct CachedRows {
  std::vector<float> keys;    // [rows, num_kv_heads, head_dim]
  std::vector<float> values;  // the same
};
CachedRows ReadCache(Harness& harness, const KvStorage* kv, int layer, const Step& step);

// Largest error of ReadCache relative to the magnitude of the element.
inline constexpr double kReadCacheError = 6 * kF32Rounding;

}  // namespace vitrine::testing
