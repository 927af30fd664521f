// Sample of kernels/sample.h, with the rows in device memory: the token that SampleToken() of
// kernels/sampling_math.h draws, bit for bit, and the filter that MakeSampleFilter() gives there.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <span>

#include "kernels/logprobs.h"
#include "kernels/sample.h"
#include "kernels/sampling_math.h"

namespace vitrine::cuda {

using U64 = unsigned long long;  // The type that CUDA's 64-bit atomics take.

// Threads of a block that works on a row of logits, or a part of one.
inline constexpr int kRowThreads = 512, kRowWarps = kRowThreads / 32;
inline constexpr int kBins = 256;

// A row is cut into parts of at least so many tokens, each of which has its own block.
inline constexpr int kLeastPartTokens = 16384, kMostParts = 64;

// What one pass over a row finds. The descents take four passes each.
enum class SearchStage : int32_t {
  kLargest,        // The largest logit.
  kTopK,           // Descent.
  kMeanDepth,      // For typical.
  kTypical,        // Descent.
  kTopP,           // Descent.
  kTies,           // Up to which id tokens tied at the border of top-p stay.
  kLargestWeight,  // Of what typical left, for min-p.
  kDraw,
  kDone,
};

// A row whose distribution is being found; starts as zeros.
struct RowSearch {
  U64 bins[kBins] = {};         // Zero between passes.
  U64 shares[kMostParts] = {};  // What each part has found in this pass.
  U64 wide_shares[kMostParts][2] = {};
  unsigned parts_done = 0;  // Zero between passes.
  SearchStage stage = SearchStage::kLargest;
  int token = 0;  // Of the largest logit, or kNoToken; kDraw: the one that was drawn.
  int shift = 0;  // Of the digit of keys that a descent looks at.
  uint32_t key = 0;
  U64 above = 0;   // Sum of the weights of all keys above those that begin with `key`.
  U64 target = 0;  // What a descent or the ties must reach.
  SampleFilter filter;
};

struct SearchParams {
  const float* logits = nullptr;        // [rows, vocabulary]
  const float* adjusted = nullptr;      // [adjusted rows, vocabulary]
  const SampleRow* rows = nullptr;      // [rows]
  const LogprobsRow* scored = nullptr;  // [count]; null: every row
  RowSearch* searches = nullptr;        // [count], any contents
  int32_t* token_ids = nullptr;         // [count], what was drawn; null: the filter alone
  int count = 0;
  int vocabulary = 0;
  int passes = 0;  // The largest SearchPasses of a row.
};

// Passes over a row that is drawn from, or filtered only.
int SearchPasses(const SampleRow& row, int vocabulary, bool draws);

// Leaves the filter of each row in its search, and draws where params say so.
void SearchRows(const SearchParams& params, cudaStream_t stream);

}  // namespace vitrine::cuda
