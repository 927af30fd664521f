// Tiny models in Hugging Face form against transformers (float32, eager; tests/data/models): every
// logit of one pass over 48 tokens within the model's own tolerance, which is 20 times the noise of
// a float32 run against a float64 one, and the tokens of a greedy run.
//
// To run another set of folders of the same form:
//   VITRINE_GOLDEN_MODELS=DIR golden_models_test
// where each may hold a model.gguf, which is then taken instead.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <numeric>
#include <set>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "kernels/backend_factory.h"
#include "model/kv_cache.h"
#include "model/model_files.h"
#include "model/rope_frequencies.h"
#include "model/tensor_map.h"
#include "model/transformer_runner.h"
#include "model/weights.h"
#include "nlohmann/json.hpp"
#include "tests/model/golden_gguf.h"

namespace vitrine {
namespace {

using Json = nlohmann::json;

constexpr int kTokens = 48;

std::string Root() {
  const char* given = std::getenv("VITRINE_GOLDEN_MODELS");
  return given != nullptr ? given : VITRINE_TEST_DATA "/models";
}

std::string Folder(const std::string& model) { return Root() + "/" + model; }

// The folder itself, or the GGUF file that lies in it.
std::string ModelPath(const std::string& model) {
  const std::string gguf = Folder(model) + "/model.gguf";
  return std::filesystem::exists(gguf) ? gguf : Folder(model);
}

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error("cannot read " + path);
  std::stringstream content;
  content << file.rdbuf();
  return content.str();
}

// One tensor of a safetensors file, whose elements are T.
template <class T>
std::vector<T> ReadTensor(const std::string& bytes, const std::string& name) {
  uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, bytes.data(), sizeof(header_bytes));
  const Json header = Json::parse(bytes.substr(sizeof(header_bytes), header_bytes));
  const size_t begin = header[name]["data_offsets"][0];
  const size_t end = header[name]["data_offsets"][1];
  std::vector<T> values((end - begin) / sizeof(T));
  std::memcpy(values.data(), bytes.data() + sizeof(header_bytes) + header_bytes + begin,
              end - begin);
  return values;
}

struct Expected {
  explicit Expected(const std::string& model)
      : json(Json::parse(ReadFile(Folder(model) + "/expected.json"))) {
    const std::string bytes = ReadFile(Folder(model) + "/expected.safetensors");
    for (const int64_t id : ReadTensor<int64_t>(bytes, "input_ids")) {
      ids.push_back(static_cast<TokenId>(id));
    }
    logits = ReadTensor<float>(bytes, "logits");
  }

  Json json;
  std::vector<TokenId> ids;   // [kTokens]
  std::vector<float> logits;  // [kTokens, vocabulary]
};

// A model without its tokenizer.
class GoldenModel {
 public:
  // `pass_length`: tokens of the one pass by which the reference sets "dynamic" frequencies; we
  // serve up to the length of training only, where they are the plain ones.
  GoldenModel(const std::string& path, const std::string& backend_name, int pass_length)
      : backend_(*CreateBackend(backend_name, {.numerics = Numerics::kExact, .threads = 1})) {
    const auto files = *ModelFiles::Open(path);
    ModelDescription description = *files->Describe();
    if (files->label() == "llama-dynamic-f32" && pass_length > 0) {
      description.config.rope_frequencies =
          DynamicRopeFrequencies(description.config.rotary_dim, 10000.0, 2.0,
                                 description.config.context_length, pass_length);
    }
    const ModelTensors tensors =
        *MapTensors(description.config, **files->Weights(), description.names);
    vocabulary_ = description.config.vocabulary;
    runner_ = *TransformerRunner::Create(*backend_, description.config,
                                         *LoadWeights(description.config, tensors, *backend_),
                                         {.max_rows = kTokens,
                                          .max_samples = kTokens,
                                          .max_positions = kTokens,
                                          .num_blocks = BlocksFor(kTokens),
                                          .kv_dtype = DType::kF32});
  }

  // Computes `ids` from position `begin` on; the greedy token after each of them.
  std::vector<TokenId> Step(const std::vector<TokenId>& ids, int begin) {
    Batch batch;
    batch.token_ids = ids;
    const auto rows = static_cast<int32_t>(ids.size());
    batch.row_begin = {0, rows};
    batch.first_position = {begin};
    batch.max_blocks = BlocksFor(begin + rows);
    batch.block_table.resize(static_cast<size_t>(batch.max_blocks));
    std::iota(batch.block_table.begin(), batch.block_table.end(), 0);
    for (int32_t row = 0; row < rows; ++row) {
      batch.sampled_rows.push_back(row);
      batch.sampling.push_back({.position = begin + row + 1});
    }
    std::vector<TokenId> next(ids.size());
    runner_->Step(batch, next);
    return next;
  }

  std::vector<float> Logits() {
    std::vector<float> logits(static_cast<size_t>(kTokens * vocabulary_));
    runner_->CopyLogits(logits);
    return logits;
  }

 private:
  std::unique_ptr<Backend> backend_;
  int vocabulary_ = 0;
  std::unique_ptr<TransformerRunner> runner_;
};

struct Case {
  std::string model;
  std::string backend;
};

class GoldenModelsTest : public ::testing::TestWithParam<Case> {};

void ExpectLogits(GoldenModel& model, const Expected& expected) {
  model.Step(expected.ids, 0);
  const std::vector<float> logits = model.Logits();
  ASSERT_EQ(logits.size(), expected.logits.size());
  const float tolerance = expected.json["tolerance_max_abs"]["logits"];
  float worst = 0.0f;
  for (size_t i = 0; i < logits.size(); ++i) {
    worst = std::max(worst, std::abs(logits[i] - expected.logits[i]));
  }
  EXPECT_LE(worst, tolerance);
}

TEST_P(GoldenModelsTest, LogitsEqualTheReference) {
  const auto& [name, backend] = GetParam();
  GoldenModel model(ModelPath(name), backend, kTokens);
  ExpectLogits(model, Expected(name));
}

TEST_P(GoldenModelsTest, GreedyTokensEqualTheReference) {
  const auto& [name, backend] = GetParam();
  const Expected expected(name);
  GoldenModel model(ModelPath(name), backend, 0);
  const int prompt = expected.json["prompt_length"];
  const std::vector<TokenId> greedy = expected.json["greedy_ids"];
  TokenId next = model.Step({expected.ids.begin(), expected.ids.begin() + prompt}, 0).back();
  for (size_t i = 0; i < greedy.size(); ++i) {
    ASSERT_EQ(next, greedy[i]) << "token " << i;
    next = model.Step({next}, prompt + static_cast<int>(i)).back();
  }
}

std::vector<Case> AllCases() {
  std::vector<std::string> models;
  for (const auto& entry : std::filesystem::directory_iterator(Root())) {
    if (std::filesystem::exists(entry.path() / "expected.json")) {
      models.push_back(entry.path().filename());
    }
  }
  std::ranges::sort(models);
  std::vector<Case> cases;
  for (const std::string& model : models) {
    for (const std::string backend : {"reference", "cpu"}) cases.push_back({model, backend});
  }
  return cases;
}

// The same weights under other names and in other orders.
TEST(GgufFormTest, LogitsEqualTheReference) {
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / ("gguf_form." + std::to_string(getpid()));
  std::filesystem::create_directories(folder);
  std::set<std::string> architectures;
  for (const Case& test : AllCases()) {
    if (test.backend != "reference" || !HasGgufForm(Folder(test.model))) continue;
    SCOPED_TRACE(test.model);
    const std::string path = folder / (test.model + ".gguf");
    std::ofstream(path, std::ios::binary) << ToGguf(Folder(test.model));
    GoldenModel model(path, test.backend, 0);
    ExpectLogits(model, Expected(test.model));
    architectures.insert((*ModelFiles::Open(path))->architecture());
  }
  std::filesystem::remove_all(folder);
  EXPECT_GE(architectures.size(), 10u);
}

// A folder that went missing would not be missed.
TEST(GoldenModelsSetTest, HasAllModels) { EXPECT_GE(AllCases().size(), 46u); }

std::string CaseName(const ::testing::TestParamInfo<Case>& info) {
  std::string name = info.param.model + "_" + info.param.backend;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(All, GoldenModelsTest, ::testing::ValuesIn(AllCases()), CaseName);

}  // namespace
}  // namespace vitrine
