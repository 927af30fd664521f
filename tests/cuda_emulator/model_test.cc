// Whole models on a CUDA device, here an emulated one, beside the same models on the CPU: every
// golden folder of tests/data/models, which cover the families, and random llamas, whose shapes
// take the matrix kernels. The bounds are those of model_on_backend.h.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <ostream>
#include <sstream>
#include <string>
#include <vector>

#include "model/loader.h"
#include "nlohmann/json.hpp"
#include "tests/model/model_on_backend.h"

namespace vitrine::testing {
namespace {

struct Case {
  std::string model;  // A golden folder, or "random-" and a type.
  Numerics numerics = Numerics::kExact;

  bool is_golden() const { return !model.starts_with("random-"); }
  friend std::ostream& operator<<(std::ostream& stream, const Case& one) {
    return stream << one.model << (one.numerics == Numerics::kExact ? "_exact" : "_fast");
  }
};

class CudaModelTest : public ::testing::TestWithParam<Case> {
 protected:
  // How far a logit may be from the CPU's exact one.
  static float Bound(const std::vector<TokenId>& tokens, const std::vector<float>& exact) {
    const auto& [name, numerics] = GetParam();
    if (GetParam().is_golden()) {
      std::ifstream file(TestData() + "/models/" + name + "/expected.json");
      const auto json = nlohmann::json::parse(file);
      if (numerics == Numerics::kExact) return json["tolerance_max_abs"]["logits"];
      return kF32ToBf16 * float{json["noise_max_abs_f32_f64"]["logits"]};
    }
    ModelOnBackend reference(name, "reference", Numerics::kExact);
    const float noise = LargestDifference(reference.Logits({{.tokens = tokens}}), exact);
    // As the golden files have it.
    return numerics == Numerics::kExact ? 20 * noise : kF32ToBf16 * noise;
  }
};

struct Top {
  size_t id = 0;
  float gap = 0.0f;  // To the second.
};

Top TopOf(const float* logits, int vocabulary) {
  Top top;
  float first = -INFINITY, second = -INFINITY;
  for (int i = 0; i < vocabulary; ++i) {
    if (logits[i] > first) {
      second = first;
      first = logits[i];
      top.id = static_cast<size_t>(i);
    } else {
      second = std::max(second, logits[i]);
    }
  }
  top.gap = first - second;
  return top;
}

// One pass over a prompt, then the same tokens one at a time: two paths through the kernels.
TEST_P(CudaModelTest, LogitsAndGreedyTokensAreTheCpus) {
  const auto& [name, numerics] = GetParam();
  if (numerics == Numerics::kFast && (name == "gemma2-f32" || name == "phi3-f32")) {
    GTEST_SKIP() << "so peaked that bf16 alone may move a logit by a tenth of the largest";
  }
  ModelOnBackend cpu(name, "cpu", Numerics::kExact);
  ModelOnBackend cuda(name, "cuda", numerics);
  const int vocabulary = cpu.vocabulary();
  const std::vector<TokenId> tokens = RandomTokens(kTokens, vocabulary, 3);
  const std::vector<float> exact = cpu.Logits({{.tokens = tokens}});
  const std::vector<float> logits = cuda.Logits({{.tokens = tokens}});
  const float bound = Bound(tokens, exact);
  float spread = 0.0f;
  for (const float logit : exact) spread = std::max(spread, std::abs(logit));
  ASSERT_GT(bound, 0.0f);
  ASSERT_LT(bound, 0.1f * spread) << "such a bound shows nothing";
  EXPECT_LE(LargestDifference(logits, exact), bound);

  int decided = 0;
  for (int row = 0; row < kTokens; ++row) {
    const size_t at = static_cast<size_t>(row) * static_cast<size_t>(vocabulary);
    const Top top = TopOf(&exact[at], vocabulary);
    if (top.gap <= 2 * bound) continue;
    ++decided;
    EXPECT_EQ(TopOf(&logits[at], vocabulary).id, top.id) << "row " << row;
  }
  EXPECT_GT(decided, kTokens / 8) << "few gaps exceed the bound";
}

TEST_P(CudaModelTest, ARowDoesNotDependOnChunksAndNeighbours) {
  const auto& [name, numerics] = GetParam();
  ModelOnBackend cuda(name, "cuda", numerics);
  const int vocabulary = cuda.vocabulary();
  const std::vector<TokenId> tokens = RandomTokens(kTokens, vocabulary, 4);
  const auto chunk = [&](int begin, int end) {
    return std::vector<TokenId>(tokens.begin() + begin, tokens.begin() + end);
  };
  const std::vector<float> whole = cuda.Logits({{.tokens = tokens}});
  const std::vector<TokenId> drawn = cuda.drawn();

  for (const std::vector<int>& cuts :
       std::vector<std::vector<int>>{{1, kTokens}, {16, 32, kTokens}, {7, 24, 25, 33, kTokens}}) {
    int begin = 0;
    for (const int end : cuts) {
      const std::vector<float> part = cuda.Logits({{.begin = begin, .tokens = chunk(begin, end)}});
      const auto first = whole.begin() + static_cast<ptrdiff_t>(begin) * vocabulary;
      EXPECT_TRUE(std::equal(part.begin(), part.end(), first)) << begin << " to " << end;
      EXPECT_TRUE(std::equal(cuda.drawn().begin(), cuda.drawn().end(), drawn.begin() + begin));
      begin = end;
    }
  }

  // Every sequence gets another prefix of the tokens, two at a time; then all decode one token in
  // batches of 1 to 16, of which models whose kernels are simpler take a few.
  std::vector<ModelOnBackend::Piece> decode;
  for (int s = 0; s < kSequences; ++s) {
    const int length = 1 + 2 * s;
    cuda.Logits({{.sequence = s, .tokens = chunk(0, length)}});
    decode.push_back({.sequence = s, .begin = length, .tokens = chunk(length, length + 1)});
  }
  for (int batch = 1; batch <= kSequences; ++batch) {
    if ((GetParam().is_golden() || numerics == Numerics::kExact) && batch % 5 != 1) continue;
    const std::vector<float> together = cuda.Logits({decode.end() - batch, decode.end()});
    for (int i = 0; i < batch; ++i) {
      const auto& piece = decode[static_cast<size_t>(kSequences - batch + i)];
      EXPECT_TRUE(std::equal(together.begin() + static_cast<ptrdiff_t>(i) * vocabulary,
                             together.begin() + static_cast<ptrdiff_t>(i + 1) * vocabulary,
                             whole.begin() + static_cast<ptrdiff_t>(piece.begin) * vocabulary))
          << "row " << i << " of " << batch;
      EXPECT_EQ(cuda.drawn()[static_cast<size_t>(i)], drawn[static_cast<size_t>(piece.begin)]);
    }
  }
}

// The golden folders that are mixtures of experts, or that are not.
std::vector<std::string> GoldenModels(bool are_mixtures) {
  std::vector<std::string> models;
  for (const auto& entry : std::filesystem::directory_iterator(TestData() + "/models")) {
    if (!entry.is_directory()) continue;
    std::ifstream file(entry.path() / "config.json");
    const bool is_mixture = nlohmann::json::parse(file).contains("num_experts_per_tok");
    if (is_mixture == are_mixtures) models.push_back(entry.path().filename().string());
  }
  std::sort(models.begin(), models.end());
  return models;
}

std::vector<Case> AllCases() {
  std::vector<std::string> models = GoldenModels(false);
  for (const DType dtype : kRandomTypes) models.push_back(RandomName(dtype));
  std::vector<Case> cases;
  for (const std::string& model : models) {
    for (const Numerics numerics : {Numerics::kExact, Numerics::kFast}) {
      cases.push_back({model, numerics});
    }
  }
  return cases;
}

std::string CaseName(const ::testing::TestParamInfo<Case>& info) {
  std::ostringstream name;
  name << info.param;
  std::string text = name.str();
  std::replace(text.begin(), text.end(), '-', '_');
  return text;
}

// The host chooses the experts of a row in the middle of a step, which a recorded step has not.
// These folders have no tokenizer: such a model is refused before anything of it is loaded.
TEST(CudaMixtureTest, IsRefusedByName) {
  const auto backend = *CreateBackend("cuda", {});
  const std::vector<std::string> models = GoldenModels(true);
  EXPECT_FALSE(models.empty());
  for (const std::string& model : models) {
    const absl::Status status = LoadModel(PathOf(model), *backend, {}).status();
    EXPECT_TRUE(absl::IsUnimplemented(status)) << status;
    EXPECT_NE(status.message().find("mixture of experts"), std::string_view::npos) << status;
  }
}

INSTANTIATE_TEST_SUITE_P(All, CudaModelTest, ::testing::ValuesIn(AllCases()), CaseName);

}  // namespace
}  // namespace vitrine::testing
