// Sampling without sorting: a block per part of a row, and a launch per pass. The last block of a
// row to finish a pass puts its parts together. A row of one part goes through all passes in one
// launch. Bound: at most 17 passes over vocabulary * 4 bytes from L2, greedy rows one.
#include <algorithm>

#include "kernels/cuda/cuda_check.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/sample.h"
#include "kernels/cuda/sample_filter.h"

namespace vitrine::cuda {
namespace {

constexpr int kDigits = 4;

__host__ __device__ bool IsDescent(SearchStage stage) {
  return stage == SearchStage::kTopK || stage == SearchStage::kTypical ||
         stage == SearchStage::kTopP;
}

// Of a row that is not greedy; ties are only found on the way.
__host__ __device__ SearchStage StageAfter(SearchStage stage, const SampleRow& row, int vocabulary,
                                           bool draws) {
  const bool is_typical = row.typical_p < 1.0f;
  if (stage < SearchStage::kTopK && row.top_k > 0 && row.top_k < vocabulary) {
    return SearchStage::kTopK;
  }
  if (stage < SearchStage::kMeanDepth && is_typical) return SearchStage::kMeanDepth;
  if (stage == SearchStage::kMeanDepth) return SearchStage::kTypical;
  if (stage < SearchStage::kTopP && row.top_p < 1.0f) return SearchStage::kTopP;
  if (stage < SearchStage::kLargestWeight && is_typical && row.min_p > 0.0f) {
    return SearchStage::kLargestWeight;
  }
  return draws && stage < SearchStage::kDraw ? SearchStage::kDraw : SearchStage::kDone;
}

int PartTokens(int vocabulary) {
  return std::max(kLeastPartTokens, (vocabulary + kMostParts - 1) / kMostParts);
}

// What a block knows of its row.
struct Row {
  SampleRow sampling;
  RowPart part;  // The block's own.
  int part_tokens = 0, vocabulary = 0;
  bool draws = false;

  __device__ SearchStage After(SearchStage stage) const {
    return StageAfter(stage, sampling, vocabulary, draws);
  }
  // The part in which the running sum of shares exceeds `target`, which becomes what it must
  // exceed within the part.
  __device__ RowPart Find(const RowSearch& search, U64& target) const {
    int index = 0;
    while (target >= search.shares[index]) target -= search.shares[index++];
    const int begin = index * part_tokens;
    return {part.logits, begin, min(begin + part_tokens, vocabulary)};
  }
};

__device__ Row RowOf(const SearchParams& p, int part_tokens) {
  int logits_row = static_cast<int>(blockIdx.y);
  SampleRow sampling;
  if (p.scored == nullptr) {
    sampling = p.rows[logits_row];
  } else {
    const LogprobsRow scored = p.scored[logits_row];
    logits_row = scored.row;
    if (scored.is_processed) sampling = p.rows[logits_row];
  }
  const float* logits = SourceOf(p.logits, p.adjusted, logits_row, sampling, p.vocabulary);
  const int begin = static_cast<int>(blockIdx.x) * part_tokens;
  const RowPart part{logits, begin, min(begin + part_tokens, p.vocabulary)};
  return {sampling, part, part_tokens, p.vocabulary, p.token_ids != nullptr};
}

// The part's share of what the stage is after.
__device__ void AddShare(const Row& row, RowSearch& search, Bins& bins, Scratch& scratch) {
  const SampleFilter filter = search.filter;
  const auto key = [](float logit) { return LogitKey(logit); };
  const auto mass = [&](float logit) { return U64{filter.Weight(logit, 0)}; };
  const auto weight = [&](float logit, int id) { return U64{filter.Weight(logit, id)}; };
  const auto nearness = [&](float logit) {
    return mass(logit) > 0 ? ~filter.DistanceFromMean(logit) : 0u;
  };
  U64 share = 0;
  switch (search.stage) {
    case SearchStage::kLargest:
      share = row.part.Max([](float logit, int id) { return OrderOf(logit, id); }, scratch);
      break;
    case SearchStage::kTopK:
      return AddToBins(row.part, search, bins, key, [](float) { return U64{1}; });
    case SearchStage::kMeanDepth: {
      WideSum depths = 0;
      row.part.ForEach([&](float logit, int) {
        const U64 one = mass(logit);
        if (one > 0) depths += WideSum{one} * SampleDepth(logit, filter.top, filter.temperature);
      });
      depths = BlockWideSum(depths, scratch);
      if (threadIdx.x == 0) {
        search.wide_shares[blockIdx.x][0] = static_cast<U64>(depths);
        search.wide_shares[blockIdx.x][1] = static_cast<U64>(depths >> 64);
      }
      share = row.part.Sum(weight, scratch);
      break;
    }
    case SearchStage::kTypical:
      return AddToBins(row.part, search, bins, nearness, mass);
    case SearchStage::kTopP:
      return AddToBins(row.part, search, bins, key, mass);
    case SearchStage::kTies:
      share = row.part.Sum(
          [&](float logit, int) { return U64{LogitKey(logit) == filter.least_key}; }, scratch);
      break;
    case SearchStage::kLargestWeight:
      share = row.part.Max(weight, scratch);
      break;
    default:
      share = row.part.Sum(weight, scratch);
  }
  if (threadIdx.x == 0) search.shares[blockIdx.x] = share;
}

// True in the block that is the last one of its row to have added its share.
__device__ bool IsLastPart(RowSearch& search) {
  GPU_SHARED(is_last, bool);
  __syncthreads();
  if (threadIdx.x == 0) {
    __threadfence();  // All that this block wrote comes before its count,
    is_last = atomicAdd(&search.parts_done, 1u) == gridDim.x - 1;
    __threadfence();  // and what the others wrote after theirs.
  }
  __syncthreads();
  return is_last;
}

// The row's histogram, which becomes zero.
__device__ void TakeBins(RowSearch& search, Bins& bins) {
  if (threadIdx.x < kBins) {
    bins[threadIdx.x] = search.bins[threadIdx.x];
    search.bins[threadIdx.x] = 0;
  }
  __syncthreads();
}

// One digit further; the next stage after the last one. Executed by one block.
__device__ SearchStage FinishDescent(const Row& row, RowSearch& search, SampleFilter& filter,
                                     Bins& bins, Scratch& scratch) {
  TakeBins(search, bins);
  const SearchStage stage = search.stage;
  U64 target = search.target;
  if (stage == SearchStage::kTopK) target = static_cast<U64>(row.sampling.top_k);
  if (stage == SearchStage::kTopP && search.shift == kTopShift) {
    const U64 total =
        gpu::BlockSum<kRowThreads>(threadIdx.x < kBins ? bins[threadIdx.x] : U64{0}, scratch);
    target = TopPMass(row.sampling.top_p, total);
  }
  const Crossing crossing = Descend(search, target, bins);
  if (!crossing.is_found) return stage;
  if (stage == SearchStage::kTypical) {
    filter.typical_distance = ~crossing.key;
    filter.is_typical = true;
    return row.After(stage);
  }
  filter.least_key = crossing.key;
  if (stage == SearchStage::kTopK) return row.After(stage);
  // All tokens of the crossing key weigh the same: as many stay as reach the target.
  const U64 weight = SampleWeight(LogitOf(crossing.key), filter.top, filter.temperature);
  const U64 needed = (target - crossing.above + weight - 1) / weight;
  if (needed * weight >= crossing.at_key) return row.After(stage);
  if (threadIdx.x == 0) search.target = needed - 1;
  return SearchStage::kTies;
}

// Makes of the shares of all parts what the stage is after; the next stage. Executed by one block.
__device__ SearchStage Finish(const Row& row, RowSearch& search, SampleFilter& filter, int& token,
                              Bins& bins, Scratch& scratch) {
  const SearchStage stage = search.stage;
  if (IsDescent(stage)) return FinishDescent(row, search, filter, bins, scratch);
  U64 target = search.target;
  const U64 share = threadIdx.x < gridDim.x ? search.shares[threadIdx.x] : 0;
  const auto weight = [&](float logit, int id) { return U64{filter.Weight(logit, id)}; };
  const auto is_tied = [&](float logit, int) { return U64{LogitKey(logit) == filter.least_key}; };
  switch (stage) {
    case SearchStage::kLargest:
      filter = SampleFilter();
      token = TokenOf(gpu::BlockMax<kRowThreads>(share, scratch));
      if (token == kNoToken) return SearchStage::kDone;
      filter.top = row.part.logits[token];
      if (row.sampling.temperature < kLeastTemperature) return SearchStage::kDone;
      filter.temperature = row.sampling.temperature;
      break;
    case SearchStage::kMeanDepth: {
      WideSum depths = 0;
      if (threadIdx.x < gridDim.x) {
        const U64* const wide = search.wide_shares[threadIdx.x];
        depths = WideSum{wide[1]} << 64 | wide[0];
      }
      const U64 total = gpu::BlockSum<kRowThreads>(share, scratch);
      filter.mean_depth = static_cast<uint32_t>(BlockWideSum(depths, scratch) / total);
      if (threadIdx.x == 0) search.target = TopPMass(row.sampling.typical_p, total);
      break;
    }
    case SearchStage::kTies: {
      const RowPart part = row.Find(search, target);
      filter.last_tied_id = FindRunningSum(part, target, is_tied);
      break;
    }
    case SearchStage::kLargestWeight:
      filter.least_weight =
          MinPWeight(row.sampling.min_p, gpu::BlockMax<kRowThreads>(share, scratch));
      break;
    default: {
      const U64 total = gpu::BlockSum<kRowThreads>(share, scratch);
      const SampleRow& how = row.sampling;
      target = UniformBelow(RandomBits(how.seed, how.position, how.choice), total);
      const RowPart part = row.Find(search, target);
      token = FindRunningSum(part, target, weight);
    }
  }
  return row.After(stage);
}

// Leaves the state for the next pass. Executed by one thread.
__device__ void Store(const Row& row, SearchStage next, const SampleFilter& filter, int token,
                      RowSearch& search) {
  if (next != search.stage) {
    search.key = 0;
    search.above = 0;
    search.shift = kTopShift;
  }
  search.filter = filter;
  // Where nothing but the largest token can be the most likely one, its weight is known.
  const bool has_min_p = row.sampling.min_p > 0.0f && row.sampling.typical_p >= 1.0f;
  if (next >= SearchStage::kDraw && has_min_p) {
    search.filter.least_weight = MinPWeight(row.sampling.min_p, kTopWeight);
  }
  search.token = token;
  search.stage = next;
  search.parts_done = 0;
}

// One block per multiprocessor at least: otherwise ptxas aims at three, and spills.
__global__ void __launch_bounds__(kRowThreads, 1) SearchKernel(SearchParams p, int part_tokens) {
  GPU_SHARED(scratch, Scratch);
  GPU_SHARED(bins, Bins);
  RowSearch& search = p.searches[blockIdx.y];
  if (search.stage == SearchStage::kDone) return;
  const Row row = RowOf(p, part_tokens);
  for (;;) {
    AddShare(row, search, bins, scratch);
    if (!IsLastPart(search)) return;
    SampleFilter filter = search.filter;
    int token = search.token;
    const SearchStage next = Finish(row, search, filter, token, bins, scratch);
    __syncthreads();  // All have read what is changed now.
    if (threadIdx.x == 0) {
      Store(row, next, filter, token, search);
      if (next == SearchStage::kDone && row.draws) p.token_ids[blockIdx.y] = token;
    }
    if (gridDim.x > 1 || next == SearchStage::kDone) return;
    __syncthreads();
  }
}

}  // namespace

int SearchPasses(const SampleRow& row, int vocabulary, bool draws) {
  int passes = 1;
  if (row.temperature < kLeastTemperature) return passes;
  SearchStage stage = SearchStage::kLargest;
  while ((stage = StageAfter(stage, row, vocabulary, draws)) != SearchStage::kDone) {
    passes += IsDescent(stage) ? kDigits : 1;
    if (stage == SearchStage::kTopP) ++passes;  // For ties.
  }
  return passes;
}

void SearchRows(const SearchParams& params, cudaStream_t stream) {
  VITRINE_CHECK_LE(params.vocabulary, kMaxSampleVocabulary);
  if (params.count == 0) return;
  CheckCuda(cudaMemsetAsync(params.searches, 0,
                            static_cast<size_t>(params.count) * sizeof(RowSearch), stream));
  const int part_tokens = PartTokens(params.vocabulary);
  const int parts = (params.vocabulary + part_tokens - 1) / part_tokens;
  const int launches = parts == 1 ? 1 : params.passes;
  for (int pass = 0; pass < launches; ++pass) {
    CheckCuda(gpu::Launch(
        &SearchKernel,
        {.grid = dim3(static_cast<unsigned>(parts), static_cast<unsigned>(params.count)),
         .block = dim3(kRowThreads),
         .stream = stream},
        params, part_tokens));
  }
}

}  // namespace vitrine::cuda
