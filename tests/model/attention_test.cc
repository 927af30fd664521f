// What inspection shows of a model against independent results (transformers, float32, eager;
// tests/data/smollm2 and tests/data/models) and against the model's own queries, keys and values.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <memory>
#include <numeric>
#include <optional>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "kernels/backend_factory.h"
#include "model/kv_cache.h"
#include "model/loader.h"
#include "model/model_files.h"
#include "model/rope_frequencies.h"
#include "model/tensor_map.h"
#include "tests/model/golden_files.h"
#include "tests/model/spy_backend.h"

namespace vitrine {
namespace {

using Json = nlohmann::json;

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error("cannot read " + path);
  std::stringstream content;
  content << file.rdbuf();
  return content.str();
}

// One tensor of a safetensors file, whose elements are T; empty: it is not there.
template <class T>
std::vector<T> ReadTensor(const std::string& bytes, const std::string& name) {
  uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, bytes.data(), sizeof(header_bytes));
  const Json header = Json::parse(bytes.substr(sizeof(header_bytes), header_bytes));
  if (!header.contains(name)) return {};
  const size_t begin = header[name]["data_offsets"][0];
  const size_t end = header[name]["data_offsets"][1];
  std::vector<T> values((end - begin) / sizeof(T));
  std::memcpy(values.data(), bytes.data() + sizeof(header_bytes) + header_bytes + begin,
              end - begin);
  return values;
}

std::vector<TokenId> ReadIds(const std::string& bytes) {
  std::vector<TokenId> ids;
  for (const int64_t id : ReadTensor<int64_t>(bytes, "input_ids")) {
    ids.push_back(static_cast<TokenId>(id));
  }
  return ids;
}

AttentionPlan PlanOf(const std::vector<int32_t>& layers, int heads) {
  AttentionPlan plan;
  plan.layers = layers;
  plan.heads.resize(static_cast<size_t>(heads));
  std::iota(plan.heads.begin(), plan.heads.end(), 0);
  return plan;
}

std::vector<int32_t> AllLayers(int layers) {
  std::vector<int32_t> all(static_cast<size_t>(layers));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

// Result arrays of all rows of one sequence, [layers, heads, rows, ...], put together from pieces.
struct Rows {
  std::vector<float> values;  // [..., rows]; 0 where a piece has no such key
  std::vector<float> stats;   // [..., kAttentionStats]
  float max_row_sum_error = 0;
};

// Computes `ids` in chunks and reads the attention of every row.
Rows TraceAll(Runner& runner, const std::vector<TokenId>& ids, const AttentionPlan& plan,
              int chunk) {
  Rows rows;
  const size_t length = ids.size();
  const auto cells = static_cast<size_t>(plan.cells());
  if (plan.wants_rows) rows.values.resize(cells * length * length);
  if (plan.wants_stats) rows.stats.resize(cells * length * kAttentionStats);
  Batch batch;
  for (size_t begin = 0; begin < length; begin += static_cast<size_t>(chunk)) {
    const size_t end = std::min(length, begin + static_cast<size_t>(chunk));
    batch.Clear();
    batch.token_ids.assign(ids.begin() + static_cast<ptrdiff_t>(begin),
                           ids.begin() + static_cast<ptrdiff_t>(end));
    batch.row_begin = {0, batch.rows()};
    batch.first_position = {static_cast<int32_t>(begin)};
    batch.max_blocks = BlocksFor(static_cast<int64_t>(length));
    // Backwards, so that the order of blocks is not the order of positions.
    for (int b = batch.max_blocks; b > 0; --b) batch.block_table.push_back(b - 1);
    batch.traces = {{.rows = batch.rows(), .plan = &plan}};
    runner.Step(batch, {});
    std::vector<AttentionPiece> pieces;
    runner.ReadAttention(batch, pieces);
    for (const AttentionPiece& piece : pieces) {
      rows.max_row_sum_error = std::max(rows.max_row_sum_error, piece.max_row_sum_error);
      const auto columns = static_cast<size_t>(piece.key_columns);
      size_t result = 0;
      for (int layer = 0; layer < piece.layers; ++layer) {
        for (int head = 0; head < piece.heads; ++head) {
          for (int row = 0; row < piece.rows; ++row, ++result) {
            const auto cell = static_cast<size_t>(
                int64_t{piece.first_layer + layer} * plan.head_axis() + piece.first_head + head);
            const size_t at = cell * length + static_cast<size_t>(piece.first_position + row);
            if (plan.wants_rows) {
              std::copy_n(piece.values.data() + result * columns, columns,
                          rows.values.data() + at * length);
            }
            if (plan.wants_stats) {
              std::copy_n(piece.stats.data() + result * kAttentionStats, kAttentionStats,
                          rows.stats.data() + at * kAttentionStats);
            }
          }
        }
      }
    }
  }
  return rows;
}

float LargestDifference(const std::vector<float>& a, const float* b) {
  float largest = 0;
  for (size_t i = 0; i < a.size(); ++i) largest = std::max(largest, std::abs(a[i] - b[i]));
  return largest;
}

void ExpectProperRows(const Rows& rows, size_t length) {
  for (size_t i = 0; i < rows.values.size(); i += length) {
    const size_t position = i / length % length;
    double sum = 0;
    for (size_t key = 0; key < length; ++key) {
      if (key > position) {
        ASSERT_EQ(rows.values[i + key], 0.0f) << "above the diagonal";
      }
      sum += rows.values[i + key];
    }
    ASSERT_NEAR(sum, 1.0, 1e-5);
  }
  EXPECT_LE(rows.max_row_sum_error, 1e-5f);
}

LoadOptions SmolOptions(KvDType kv) {
  LoadOptions options;
  options.context_length = 256;
  options.kv_cache_bytes = int64_t{64} << 20;
  options.kv_dtype = kv;
  options.max_step_rows = 64;
  options.max_step_sequences = 4;
  options.max_traced_rows = 64;
  return options;
}

TEST(SmolLm2Attention, WeightsAndStatisticsAreTheReferences) {
  const auto backend = *CreateBackend("cpu", {.numerics = Numerics::kExact});
  const LoadedModel model = *LoadModel(RealModelPath(), *backend, SmolOptions(KvDType::kF32));
  const std::string golden = ReadFile(VITRINE_TEST_DATA "/smollm2/attention.safetensors");
  const std::vector<TokenId> ids = ReadIds(golden);
  AttentionPlan plan = PlanOf({0, 14, 29}, model.config.num_heads);
  plan.wants_rows = true;
  const Rows whole = TraceAll(*model.runner, ids, plan, 64);
  const size_t layer_size = whole.values.size() / 3;
  for (size_t i = 0; i < 3; ++i) {
    const std::vector<float> expected =
        ReadTensor<float>(golden, "layer_" + std::to_string(plan.layers[i]));
    ASSERT_EQ(expected.size(), layer_size);
    EXPECT_LE(LargestDifference(expected, whole.values.data() + i * layer_size), 5e-5f);
  }
  ExpectProperRows(whole, ids.size());
  // A prompt in chunks shows the same bits.
  EXPECT_EQ(TraceAll(*model.runner, ids, plan, 7).values, whole.values);

  AttentionPlan all = PlanOf(AllLayers(model.config.num_layers), model.config.num_heads);
  all.wants_stats = true;
  const Rows statistics = TraceAll(*model.runner, ids, all, 64);
  const Json last = Json::parse(ReadFile(VITRINE_TEST_DATA "/smollm2/attention_last_row.json"));
  for (size_t cell = 0; cell < static_cast<size_t>(all.cells()); ++cell) {
    const size_t layer = cell / all.heads.size();
    const size_t head = cell % all.heads.size();
    const float* stats = statistics.stats.data() + ((cell + 1) * ids.size() - 1) * kAttentionStats;
    EXPECT_NEAR(stats[0], last["lse_natural"][layer][head].get<float>(), 2e-4f);
    EXPECT_NEAR(stats[1], last["entropy_nats"][layer][head].get<float>(), 1e-4f);
    if (last["argmax_gap"][layer][head].get<float>() > 1e-4f) {
      EXPECT_EQ(stats[3], last["argmax_key"][layer][head].get<float>());
    }
    EXPECT_NEAR(stats[5], last["first_key_weight"][layer][head].get<float>(), 1e-4f);
    EXPECT_EQ(stats[7], static_cast<float>(ids.size()));
  }
}

// Rounded as a bf16 cache's queries are.
float ToBf16(float value) {
  uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof(bits));
  bits = (bits + 0x7FFFu + ((bits >> 16) & 1u)) & 0xFFFF0000u;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

// The weights of one head from the queries and keys that the engine itself used.
std::vector<double> Recompute(const ModelConfig& config, const SpyBackend::Attention& seen,
                              int layer, int head, int row, bool rounds_queries) {
  const auto dim = static_cast<size_t>(config.head_dim);
  const float* q = seen.q.data() + static_cast<size_t>(row * config.num_heads + head) * dim;
  const int kv_head = head / (config.num_heads / config.num_kv_heads);
  const int window = config.layer(layer).window;
  std::vector<double> weights(static_cast<size_t>(row) + 1, 0.0);
  double largest = -std::numeric_limits<double>::infinity();
  const int first = window == 0 ? 0 : std::max(0, row - window + 1);
  for (int key = first; key <= row; ++key) {
    const float* k =
        seen.keys.data() + static_cast<size_t>(key * config.num_kv_heads + kv_head) * dim;
    double score = 0;
    for (size_t d = 0; d < dim; ++d) {
      score += static_cast<double>(rounds_queries ? ToBf16(q[d]) : q[d]) * k[d];
    }
    score *= config.attention_scale;
    if (config.attention_softcap != 0) {
      score = config.attention_softcap * std::tanh(score / config.attention_softcap);
    }
    weights[static_cast<size_t>(key)] = score;
    largest = std::max(largest, score);
  }
  double sum = 0;
  for (int key = first; key <= row; ++key) {
    double& weight = weights[static_cast<size_t>(key)];
    weight = std::exp(weight - largest);
    sum += weight;
  }
  for (double& weight : weights) weight /= sum;
  return weights;
}

TEST(SmolLm2Attention, FastNumericsShowWhatTheEngineComputed) {
  SpyBackend backend(*CreateBackend("cpu", {.numerics = Numerics::kFast}), {0, 14, 29});
  const LoadedModel model = *LoadModel(RealModelPath(), backend, SmolOptions(KvDType::kBF16));
  const std::string golden = ReadFile(VITRINE_TEST_DATA "/smollm2/attention.safetensors");
  const std::vector<TokenId> ids = ReadIds(golden);
  AttentionPlan plan = PlanOf({0, 14, 29}, model.config.num_heads);
  plan.wants_rows = true;
  const Rows rows = TraceAll(*model.runner, ids, plan, 64);
  ExpectProperRows(rows, ids.size());
  const size_t length = ids.size();
  double worst = 0;
  const float* values = rows.values.data();
  for (const int32_t layer : plan.layers) {
    for (int head = 0; head < model.config.num_heads; ++head) {
      for (int row = 0; row < static_cast<int>(length); ++row, values += length) {
        const std::vector<double> expected =
            Recompute(model.config, backend.seen().at(layer), layer, head, row, true);
        for (size_t key = 0; key < expected.size(); ++key) {
          worst = std::max(worst, std::abs(expected[key] - static_cast<double>(values[key])));
        }
      }
    }
  }
  EXPECT_LE(worst, 1e-5);
  std::printf("largest distance to a recomputation from the engine's own q and K: %.2g\n", worst);
  for (size_t i = 0; i < 3; ++i) {
    const std::vector<float> reference =
        ReadTensor<float>(golden, "layer_" + std::to_string(plan.layers[i]));
    std::printf("layer %d: largest distance to float32: %.2g\n", plan.layers[i],
                static_cast<double>(
                    LargestDifference(reference, rows.values.data() + i * reference.size())));
  }
}

// A model of the folder form whose attention is spied on.
struct TinyModel {
  TinyModel(const std::string& folder, const std::string& backend_name)
      : expected(ReadFile(folder + "/expected.safetensors")),
        json(Json::parse(ReadFile(folder + "/expected.json"))),
        ids(ReadIds(expected)),
        files(*ModelFiles::Open(folder)),
        description(*files->Describe()),
        backend(*CreateBackend(backend_name, {.numerics = Numerics::kExact, .threads = 1}),
                AllLayers(description.config.num_layers)) {
    ModelConfig& config = description.config;
    const auto length = static_cast<int>(ids.size());
    // The one model whose reference sets its frequencies by the length of the pass.
    if (folder.ends_with("llama-dynamic-f32")) {
      config.rope_frequencies =
          DynamicRopeFrequencies(config.rotary_dim, 10000.0, 2.0, config.context_length, length);
    }
    const ModelTensors tensors = *MapTensors(config, **files->Weights(), description.names);
    runner = *TransformerRunner::Create(backend, config, *LoadWeights(config, tensors, backend),
                                        {.max_rows = length,
                                         .max_samples = length,
                                         .max_positions = length,
                                         .num_blocks = BlocksFor(length),
                                         .kv_dtype = DType::kF32,
                                         .max_traced_rows = length});
  }

  const std::string expected;
  const Json json;
  const std::vector<TokenId> ids;
  const std::unique_ptr<ModelFiles> files;
  ModelDescription description;
  SpyBackend backend;
  std::unique_ptr<TransformerRunner> runner;
};

// Every reduction of a plan against the same made of single rows.
class ReductionTest {
 public:
  ReductionTest()
      : model_(VITRINE_TEST_DATA "/models/llama-gqa-tied-f32", "cpu"),
        config_(model_.description.config),
        single_(PlanOf(AllLayers(config_.num_layers), config_.num_heads)) {
    single_.wants_rows = true;
    rows_ = Trace(single_).values;
  }

  Rows Trace(const AttentionPlan& plan) {
    return TraceAll(*model_.runner, model_.ids, plan, static_cast<int>(model_.ids.size()));
  }
  const AttentionPlan& single() const { return single_; }
  size_t length() const { return model_.ids.size(); }

  float Weight(int layer, int head, size_t at) const {
    const auto cell = static_cast<size_t>(int64_t{layer} * config_.num_heads + head);
    return rows_[cell * length() * length() + at];
  }

  static float Combine(const std::vector<float>& numbers, AttentionCombine combine) {
    if (combine == AttentionCombine::kMax) return *std::ranges::max_element(numbers);
    double sum = 0;
    for (const float number : numbers) sum += static_cast<double>(number);
    return static_cast<float>(sum / static_cast<double>(numbers.size()));
  }

  void ExpectReduced(const AttentionPlan& plan) {
    const std::vector<float> actual = Trace(plan).values;
    ASSERT_EQ(actual.size(), static_cast<size_t>(plan.cells()) * length() * length());
    size_t i = 0;
    for (int layer = 0; layer < plan.layer_axis(); ++layer) {
      for (int head = 0; head < plan.head_axis(); ++head) {
        for (size_t at = 0; at < length() * length(); ++at, ++i) {
          ASSERT_NEAR(actual[i], Expected(plan, layer, head, at), 1e-6f);
        }
      }
    }
  }

 private:
  float Expected(const AttentionPlan& plan, int layer, int head, size_t at) const {
    if (plan.is_paired) {
      std::vector<float> pairs;
      for (size_t p = 0; p < plan.heads.size(); ++p) {
        pairs.push_back(Weight(plan.layers[p], plan.heads[p], at));
      }
      return plan.reduce_heads ? Combine(pairs, *plan.reduce_heads)
                               : pairs[static_cast<size_t>(head)];
    }
    std::vector<float> layers;
    for (const int32_t l : plan.layers) {
      std::vector<float> heads;
      for (const int32_t h : plan.heads) heads.push_back(Weight(l, h, at));
      layers.push_back(plan.reduce_heads ? Combine(heads, *plan.reduce_heads)
                                         : heads[static_cast<size_t>(head)]);
    }
    return plan.reduce_layers ? Combine(layers, *plan.reduce_layers)
                              : layers[static_cast<size_t>(layer)];
  }

  TinyModel model_;
  const ModelConfig& config_;
  AttentionPlan single_;
  std::vector<float> rows_;
};

TEST(TinyModelAttention, ReductionsAreThoseOfTheSingleRows) {
  ReductionTest test;
  const std::vector<std::optional<AttentionCombine>> ways = {std::nullopt, AttentionCombine::kMean,
                                                             AttentionCombine::kMax};
  for (const auto& heads : ways) {
    for (const auto& layers : ways) {
      AttentionPlan plan = test.single();
      plan.reduce_heads = heads;
      plan.reduce_layers = layers;
      test.ExpectReduced(plan);
    }
    AttentionPlan pairs = test.single();
    pairs.is_paired = true;
    pairs.layers = {1, 0, 1};
    pairs.heads = {3, 2, 0};
    pairs.reduce_heads = heads;
    test.ExpectReduced(pairs);
  }
}

// Tokens and logits of 64 random batches of a served model: nobody traced, one sequence, all.
TEST(TinyModelAttention, TracingChangesNoBitOfAnyLogit) {
  const std::string folder = VITRINE_TEST_DATA "/models/llama-gqa-tied-f32";
  for (const Numerics numerics : {Numerics::kExact, Numerics::kFast}) {
    const auto backend = *CreateBackend("cpu", {.numerics = numerics, .threads = 2});
    const auto files = *ModelFiles::Open(folder);
    const ModelDescription description = *files->Describe();
    const ModelConfig& config = description.config;
    const ModelTensors tensors = *MapTensors(config, **files->Weights(), description.names);
    const DType kv = numerics == Numerics::kExact ? DType::kF32 : DType::kBF16;
    const auto make = [&](int traced) {
      return *TransformerRunner::Create(*backend, config, *LoadWeights(config, tensors, *backend),
                                        {.max_rows = 64,
                                         .max_samples = 8,
                                         .max_positions = 64,
                                         .num_blocks = 32,
                                         .kv_dtype = kv,
                                         .max_traced_rows = traced});
    };
    const auto off = make(0);
    const auto on = make(64);
    AttentionPlan plan = PlanOf(AllLayers(config.num_layers), config.num_heads);
    plan.wants_stats = true;
    plan.top_k = 4;
    std::mt19937 random(7);
    for (int round = 0; round < 32; ++round) {
      Batch batch;
      const int sequences = 1 + static_cast<int>(random() % 8);
      batch.max_blocks = 4;
      for (int s = 0; s < sequences; ++s) {
        const int rows = 1 + static_cast<int>(random() % 8);
        for (int r = 0; r < rows; ++r) {
          batch.token_ids.push_back(static_cast<TokenId>(5 + random() % 300));
        }
        batch.row_begin.push_back(batch.rows());
        batch.first_position.push_back(0);
        for (int b = 0; b < 4; ++b) batch.block_table.push_back(4 * s + b);
        batch.sampled_rows.push_back(batch.rows() - 1);
        batch.sampling.push_back({.position = rows});
      }
      const auto run = [&](TransformerRunner& runner) {
        std::vector<TokenId> next(static_cast<size_t>(sequences));
        runner.Step(batch, next);
        std::vector<float> logits(next.size() * static_cast<size_t>(config.vocabulary));
        runner.CopyLogits(logits);
        std::vector<AttentionPiece> pieces;
        if (!batch.traces.empty()) runner.ReadAttention(batch, pieces);
        return logits;
      };
      const std::vector<float> expected = run(*off);
      EXPECT_EQ(run(*on), expected);
      batch.traces = {{.rows = batch.row_begin[1], .plan = &plan}};
      EXPECT_EQ(run(*on), expected);
      batch.traces.clear();
      for (int32_t s = 0; s < sequences; ++s) {
        const auto index = static_cast<size_t>(s);
        batch.traces.push_back({.sequence = s,
                                .first_row = batch.row_begin[index],
                                .rows = batch.row_begin[index + 1] - batch.row_begin[index],
                                .plan = &plan});
      }
      EXPECT_EQ(run(*on), expected);
    }
  }
}

// Sum of weight * value, which must be what the layer's attention passed on.
void ExpectOutput(const TinyModel& model, const Rows& rows, int layer) {
  const ModelConfig& config = model.description.config;
  const SpyBackend::Attention& seen = model.backend.seen().at(layer);
  const size_t length = model.ids.size();
  const auto dim = static_cast<size_t>(config.head_dim);
  const int group = config.num_heads / config.num_kv_heads;
  double worst = 0;
  double magnitude = 0;
  for (int head = 0; head < config.num_heads; ++head) {
    const auto cell = static_cast<size_t>(int64_t{layer} * config.num_heads + head);
    for (size_t row = 0; row < length; ++row) {
      for (size_t d = 0; d < dim; ++d) {
        double sum = 0;
        for (size_t key = 0; key <= row; ++key) {
          const size_t value =
              key * static_cast<size_t>(config.num_kv_heads) + static_cast<size_t>(head / group);
          sum += static_cast<double>(rows.values[(cell * length + row) * length + key]) *
                 static_cast<double>(seen.values[value * dim + d]);
        }
        const size_t at = row * static_cast<size_t>(config.num_heads) + static_cast<size_t>(head);
        const double output = seen.output[at * dim + d];
        worst = std::max(worst, std::abs(sum - output));
        magnitude = std::max(magnitude, std::abs(output));
      }
    }
  }
  // Sums of up to 48 products in float, each with weights that are off by some ulps.
  EXPECT_LE(worst, 64 * 0x1p-24 * std::max(1.0, magnitude)) << "layer " << layer;
}

TEST(TinyModelAttention, IsTheReferencesAndReproducesTheOutput) {
  int models = 0;
  for (const auto& entry : std::filesystem::directory_iterator(VITRINE_TEST_DATA "/models")) {
    const std::string folder = entry.path().string();
    if (!std::filesystem::exists(folder + "/expected.safetensors")) continue;
    const std::vector<float> attentions =
        ReadTensor<float>(ReadFile(folder + "/expected.safetensors"), "attentions");
    if (attentions.empty()) continue;
    SCOPED_TRACE(entry.path().filename().string());
    ++models;
    for (const std::string backend : {"reference", "cpu"}) {
      TinyModel model(folder, backend);
      const ModelConfig& config = model.description.config;
      AttentionPlan plan = PlanOf(AllLayers(config.num_layers), config.num_heads);
      plan.wants_rows = true;
      const Rows rows =
          TraceAll(*model.runner, model.ids, plan, static_cast<int>(model.ids.size()));
      ASSERT_EQ(rows.values.size(), attentions.size());
      const float tolerance = model.json["tolerance_max_abs"]["attentions"];
      EXPECT_LE(LargestDifference(attentions, rows.values.data()), tolerance) << backend;
      for (int layer = 0; layer < config.num_layers; ++layer) ExpectOutput(model, rows, layer);
    }
  }
  EXPECT_GE(models, 17);
}

}  // namespace
}  // namespace vitrine
