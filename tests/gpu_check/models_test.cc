// A real and a synthetic model on the device: logits beside the CPU's, and recorded steps beside
// those that are not.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "tests/gpu_check/required.h"
#include "tests/gpu_check/synthetic_model.h"
#include "tests/model/model_on_backend.h"
#include "tests/model/random_streams.h"

namespace vitrine::gpu_check {
namespace {

constexpr int kPromptTokens = 5;
constexpr int kBlocks = 1;  // Of one sequence.

constexpr double kDeepShare = 1.1;  // Of the weights' bytes, what a model needs in all.
#ifdef GPU_CHECK_EMULATED
constexpr ModelShape kSynthetic = kTiny, kDeep = kTiny;
#else
constexpr ModelShape kDeep = kEightBillion;
// As wide as Llama 3 8B, and as deep as the CPU and its oracle can follow in seconds.
constexpr ModelShape kSynthetic = {.layers = 2,
                                   .d_model = kEightBillion.d_model,
                                   .heads = kEightBillion.heads,
                                   .kv_heads = kEightBillion.kv_heads,
                                   .head_dim = kEightBillion.head_dim,
                                   .d_ff = kEightBillion.d_ff,
                                   .vocabulary = 4096};
#endif

const char* RealModel() { return std::getenv("VITRINE_TEST_MODEL"); }

// A model on a backend with room for two sequences of kBlocks blocks. `shape`: of a synthetic one;
// null: the real one.
class LoadedModel {
 public:
  LoadedModel(const ModelShape* shape, const std::string& backend, Numerics numerics)
      : backend_(Required(CreateBackend(backend, {.numerics = numerics}))) {
    const TransformerLimits limits = {
        .max_rows = kPromptTokens,
        .max_samples = kPromptTokens,
        .max_positions = kBlocks * kKvBlockTokens,
        .num_blocks = 2 * kBlocks,
        .kv_dtype = numerics == Numerics::kExact ? DType::kF32 : DType::kBF16};
    runner_ = shape == nullptr ? CreateReal(limits) : CreateSynthetic(*backend_, *shape, limits);
  }

  int vocabulary() const { return runner_->limits().vocabulary; }
  TransformerRunner& runner() { return *runner_; }

  // Of the last rows of a step with `tokens` from position `begin` on, [tokens, vocabulary].
  std::vector<float> Logits(const std::vector<TokenId>& tokens, int begin) {
    Batch batch;
    batch.max_blocks = kBlocks;
    batch.token_ids = tokens;
    batch.row_begin = {0, static_cast<int32_t>(tokens.size())};
    batch.first_position = {begin};
    batch.block_table = {1};
    for (size_t i = 0; i < tokens.size(); ++i) {
      batch.sampled_rows.push_back(static_cast<int32_t>(i));
      batch.sampling.push_back({.position = begin + static_cast<int32_t>(i) + 1});
    }
    std::vector<TokenId> next(tokens.size());
    runner_->Step(batch, next);
    std::vector<float> logits(tokens.size() * static_cast<size_t>(vocabulary()));
    runner_->CopyLogits(logits);
    return logits;
  }

 private:
  std::unique_ptr<TransformerRunner> CreateReal(const TransformerLimits& limits) {
    const auto files = Required(ModelFiles::Open(RealModel()));
    const ModelDescription description = Required(files->Describe());
    const ModelTensors tensors =
        Required(MapTensors(description.config, *Required(files->Weights()), description.names));
    return Required(TransformerRunner::Create(
        *backend_, description.config,
        Required(LoadWeights(description.config, tensors, *backend_)), limits));
  }

  std::unique_ptr<Backend> backend_;
  std::unique_ptr<TransformerRunner> runner_;
};

std::vector<TokenId> PromptOf(const LoadedModel& model) {
  return testing::RandomTokens(kPromptTokens, model.vocabulary(), 11);
}

// One token of a prompt again and again: the first step runs as it is, the second one is recorded,
// the third replayed, the last one not recorded at all. All equal the prompt's own row.
void ExpectRecordedStepsChangeNoBit(LoadedModel& cuda) {
  const std::vector<TokenId> tokens = PromptOf(cuda);
  const std::vector<float> all = cuda.Logits(tokens, 0);
  const std::vector<float> last(all.end() - cuda.vocabulary(), all.end());
  EXPECT_TRUE(std::ranges::all_of(last, [](float logit) { return std::isfinite(logit); }));
  EXPECT_LT(*std::ranges::min_element(last), *std::ranges::max_element(last));
  for (int step = 0; step < 4; ++step) {
    cuda.runner().set_records(step < 3);
    EXPECT_EQ(cuda.Logits({tokens.back()}, kPromptTokens - 1), last) << "step " << step;
  }
}

TEST(RunAheadTest, DrawsTheSame) {
  testing::RandomStreams(testing::RandomName(DType::kQ8_0), "cuda", Numerics::kFast, 1).Run(300);
}

class ModelsTest : public ::testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    if (GetParam() && RealModel() == nullptr) GTEST_SKIP() << "VITRINE_TEST_MODEL names no model";
  }
  const ModelShape* shape() const { return GetParam() ? nullptr : &kSynthetic; }
};

TEST_P(ModelsTest, LogitsAreTheCpus) {
  LoadedModel cpu(shape(), "cpu", Numerics::kExact);
  const std::vector<TokenId> tokens = PromptOf(cpu);
  const std::vector<float> exact = cpu.Logits(tokens, 0);
  LoadedModel reference(shape(), "reference", Numerics::kExact);
  const float noise = testing::LargestDifference(reference.Logits(tokens, 0), exact);
  float spread = 0;
  for (const float logit : exact) spread = std::max(spread, std::abs(logit));
  const float bound = testing::kF32ToBf16 * noise;
  ASSERT_GT(bound, 0.0f);
  ASSERT_LT(bound, 0.1f * spread) << "such a bound shows nothing";

  LoadedModel cuda(shape(), "cuda", Numerics::kFast);
  const std::vector<float> logits = cuda.Logits(tokens, 0);
  const float difference = testing::LargestDifference(logits, exact);
  RecordProperty("largest_logit", std::to_string(spread));
  RecordProperty("bound", std::to_string(bound));
  RecordProperty("difference", std::to_string(difference));
  EXPECT_LE(difference, bound);
}

TEST_P(ModelsTest, RecordedStepsChangeNoBit) {
  LoadedModel cuda(shape(), "cuda", Numerics::kFast);
  ExpectRecordedStepsChangeNoBit(cuda);
}

// The shape as a whole, which no oracle can follow; its numbers are those of the test above.
TEST(DeepModelsTest, RecordedStepsOfAnEightBillionSyntheticChangeNoBit) {
  const double needed = WeightBytes(kDeep);
  const auto free = static_cast<double>(Required(CreateBackend("cuda", {}))->FreeBytes().value());
  if (free < kDeepShare * needed) {
    GTEST_SKIP() << "needs " << kDeepShare * needed / 1e9 << " GB of device memory, " << free / 1e9
                 << " are free";
  }
  LoadedModel cuda(&kDeep, "cuda", Numerics::kFast);
  ExpectRecordedStepsChangeNoBit(cuda);
}

INSTANTIATE_TEST_SUITE_P(All, ModelsTest, ::testing::Values(false, true),
                         [](const auto& one) { return one.param ? "SmolLM2" : "Synthetic"; });

}  // namespace
}  // namespace vitrine::gpu_check
