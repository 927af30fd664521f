// Hyper-parameters and tensors of a llama file: the config they become, and what is refused.
#include "model/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "model/gguf_families.h"
#include "model/quote.h"
#include "model/rope_frequencies.h"
#include "model/tensor_map.h"
#include "tests/model/gguf_builder.h"

namespace vitrine {
namespace {

using ::testing::DoubleNear;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A parsed file together with its bytes.
struct Parsed {
  explicit Parsed(const GgufBuilder& builder)
      : bytes(builder.Bytes()), file(GgufFile::Parse(bytes, "test.gguf")) {}

  absl::StatusOr<ModelConfig> Config() const {
    if (!file.ok()) return file.status();
    auto model = DescribeGguf(**file, **file);
    if (!model.ok()) return model.status();
    return std::move(model->config);
  }
  absl::StatusOr<ModelTensors> Tensors() const {
    if (!file.ok()) return file.status();
    const auto model = DescribeGguf(**file, **file);
    if (!model.ok()) return model.status();
    return MapTensors(model->config, **file, model->names);
  }

  std::string bytes;
  absl::StatusOr<std::unique_ptr<GgufFile>> file;
};

TEST(ConfigTest, ReadsALlama) {
  const absl::StatusOr<ModelConfig> config = Parsed(TinyLlama()).Config();
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->architecture, "llama");
  EXPECT_EQ(config->name, "tiny");
  EXPECT_EQ(config->num_layers, 2);
  EXPECT_EQ(config->d_model, 32);
  EXPECT_EQ(config->num_heads, 4);
  EXPECT_EQ(config->num_kv_heads, 2);
  EXPECT_EQ(config->head_dim, 8);
  EXPECT_EQ(config->d_ff, 48);
  EXPECT_EQ(config->vocabulary, 8);
  EXPECT_EQ(config->context_length, 64);
  EXPECT_EQ(config->norm_epsilon, 1e-5f);
  EXPECT_EQ(config->attention_scale, static_cast<float>(1.0 / std::sqrt(8.0)));
  EXPECT_EQ(config->activation, Activation::kSilu);
  EXPECT_EQ(config->rotary_dim, 8);
  EXPECT_EQ(config->rope_pairing, RopePairing::kInterleaved);
  EXPECT_EQ(config->rope_attention_factor, 1.0f);
  // 10000^(-2i/8): exact powers of ten, so that only the rounding of pow() is left.
  EXPECT_THAT(
      config->rope_frequencies,
      ElementsAre(1.0, DoubleNear(0.1, 1e-16), DoubleNear(0.01, 1e-17), DoubleNear(0.001, 1e-18)));
}

TEST(ConfigTest, DefaultsAreThoseOfTheFormat) {
  GgufBuilder builder = TinyLlama();
  builder.Drop("general.name")
      .Drop("llama.attention.head_count_kv")
      .Drop("llama.rope.freq_base")
      .SetUint("llama.vocab_size", 8);
  for (const std::string layer : {"blk.0.", "blk.1."}) {
    for (const std::string name : {"attn_k.weight", "attn_v.weight"}) {
      GgufBuilder::Tensor& tensor = builder.tensor(layer + name);
      tensor.dimensions = {32, 32};
      tensor.data += tensor.data;
    }
  }
  const Parsed parsed(builder);
  const absl::StatusOr<ModelConfig> config = parsed.Config();
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->name, "test");
  EXPECT_EQ(config->num_kv_heads, 4);
  EXPECT_EQ(config->rope_frequencies, RopeFrequencies(8, 10000.0));
  EXPECT_TRUE(parsed.Tensors().ok()) << parsed.Tensors().status();
}

TEST(ConfigTest, HeadsMayDifferFromTheWidth) {
  GgufBuilder builder = TinyLlama();
  builder.SetUint("llama.attention.key_length", 24)
      .SetUint("llama.attention.value_length", 24)
      .SetUint("llama.rope.dimension_count", 16)
      .SetFloat("llama.attention.scale", 0.25f);
  const absl::StatusOr<ModelConfig> config = Parsed(builder).Config();
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->head_dim, 24);
  EXPECT_EQ(config->rotary_dim, 16);
  EXPECT_EQ(config->attention_scale, 0.25f);
  EXPECT_EQ(config->rope_frequencies, RopeFrequencies(16, 10000.0));
}

TEST(ConfigTest, LinearScalingDividesFrequencies) {
  const std::vector<double> plain = RopeFrequencies(8, 10000.0);
  for (const std::string key : {"llama.rope.scaling.factor", "llama.rope.scale_linear"}) {
    GgufBuilder builder = TinyLlama();
    builder.SetFloat(key, 4.0f);
    if (key == "llama.rope.scaling.factor") builder.SetString("llama.rope.scaling.type", "linear");
    const absl::StatusOr<ModelConfig> config = Parsed(builder).Config();
    ASSERT_TRUE(config.ok()) << config.status();
    for (size_t i = 0; i < plain.size(); ++i) {
      EXPECT_EQ(config->rope_frequencies[i], plain[i] / 4.0);
    }
  }
}

TEST(ConfigTest, FrequencyFactorsDivideFrequencies) {
  GgufBuilder builder = TinyLlama();
  builder.AddTensor("rope_freqs.weight", {4}, 0,
                    Encode(1.0f) + Encode(1.5f) + Encode(8.0f) + Encode(8.0f));
  const Parsed parsed(builder);
  const absl::StatusOr<ModelConfig> config = parsed.Config();
  ASSERT_TRUE(config.ok()) << config.status();
  const std::vector<double> plain = RopeFrequencies(8, 10000.0);
  EXPECT_THAT(config->rope_frequencies,
              ElementsAre(plain[0], plain[1] / 1.5, plain[2] / 8.0, plain[3] / 8.0));
  EXPECT_TRUE(parsed.Tensors().ok()) << parsed.Tensors().status();
}

constexpr auto kUnimplemented = absl::StatusCode::kUnimplemented;
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr char kEpsilon[] = "llama.attention.layer_norm_rms_epsilon";

struct Broken {
  std::string name;
  std::function<void(GgufBuilder&)> change;
  std::string message;
  absl::StatusCode code = absl::StatusCode::kInvalidArgument;
};

void SetLlama(GgufBuilder& builder, const std::string& key, uint32_t value) {
  builder.SetUint("llama." + key, value);
}

std::vector<Broken> BrokenSizes() {
  return {
      {"architecture", [](auto& b) { b.SetString("general.architecture", "nosuch"); },
       R"(unsupported architecture "nosuch")", kUnimplemented},
      {"no architecture", [](auto& b) { b.Drop("general.architecture"); },
       R"(key "general.architecture" is missing)"},
      {"architecture type", [](auto& b) { b.SetUint("general.architecture", 4); },
       "is an unsigned"},
      {"name", [](auto& b) { b.SetString("general.name", "\xff"); }, "general.name is not UTF-8"},
      {"layers 0", [](auto& b) { SetLlama(b, "block_count", 0); },
       R"(key "llama.block_count" is 0, expected 1 to 1024)"},
      {"layers 1025", [](auto& b) { SetLlama(b, "block_count", 1025); }, "is 1025"},
      {"layers 2^32-1", [](auto& b) { SetLlama(b, "block_count", ~0u); }, "is 4294967295"},
      {"no layers", [](auto& b) { b.Drop("llama.block_count"); }, "is missing"},
      {"width 0", [](auto& b) { SetLlama(b, "embedding_length", 0); }, "is 0"},
      {"width 2^31", [](auto& b) { SetLlama(b, "embedding_length", 1u << 31); }, "is 2147483648"},
      {"feed-forward 0", [](auto& b) { SetLlama(b, "feed_forward_length", 0); }, "is 0"},
      {"context 0", [](auto& b) { SetLlama(b, "context_length", 0); }, "is 0"},
      {"context 2^31", [](auto& b) { SetLlama(b, "context_length", 1u << 31); }, "is 2147483648"},
      {"heads 0", [](auto& b) { SetLlama(b, "attention.head_count", 0); }, "is 0"},
      {"heads 3",
       [](auto& b) {
         SetLlama(b, "attention.head_count", 3);
         SetLlama(b, "attention.head_count_kv", 3);
       },
       "is 32, which is not a multiple of 3 heads"},
      {"heads of 1", [](auto& b) { SetLlama(b, "attention.head_count", 32); }, "heads of 1 dim"},
      {"heads per layer", [](auto& b) { b.SetInts("llama.attention.head_count", {4, 4}); },
       "is an array, expected an integer"},
      {"kv heads 0", [](auto& b) { SetLlama(b, "attention.head_count_kv", 0); }, "is 0"},
      {"kv heads 3", [](auto& b) { SetLlama(b, "attention.head_count_kv", 3); },
       "is 3, which does not divide 4 heads"},
      {"kv heads 8", [](auto& b) { SetLlama(b, "attention.head_count_kv", 8); }, "is 8"},
      {"key length 7", [](auto& b) { SetLlama(b, "attention.key_length", 7); }, "heads of 7"},
      {"value length", [](auto& b) { SetLlama(b, "attention.value_length", 16); },
       "is 16, but heads of keys have 8", kUnimplemented},
  };
}

std::vector<Broken> BrokenRules() {
  return {
      {"rope 16", [](auto& b) { SetLlama(b, "rope.dimension_count", 16); },
       "is 16, expected 2 to 8"},
      {"rope 7", [](auto& b) { SetLlama(b, "rope.dimension_count", 7); },
       "expected an even number"},
      {"base 0", [](auto& b) { b.SetFloat("llama.rope.freq_base", 0.0f); }, "is 0, expected"},
      {"base 0.5", [](auto& b) { b.SetFloat("llama.rope.freq_base", 0.5f); }, "at least 1"},
      {"base infinite", [](auto& b) { b.SetFloat("llama.rope.freq_base", kInfinity); }, "is inf"},
      {"base too large",
       [](auto& b) { b.Set("llama.rope.freq_base", GgufType::kFloat64, Encode(1e300)); },
       "is 1e+300, expected a finite"},
      {"epsilon NaN", [](auto& b) { b.SetFloat(kEpsilon, kNan); }, "is nan"},
      {"epsilon negative", [](auto& b) { b.SetFloat(kEpsilon, -1.0f); }, "is -1"},
      {"epsilon underflows", [](auto& b) { b.Set(kEpsilon, GgufType::kFloat64, Encode(1e-300)); },
       "above 0"},
      {"epsilon string", [](auto& b) { b.SetString(kEpsilon, "1e-5"); }, "is a string"},
      {"no epsilon", [](auto& b) { b.Drop(kEpsilon); }, "is missing"},
      {"scaling type", [](auto& b) { b.SetString("llama.rope.scaling.type", "weird"); },
       R"(key "llama.rope.scaling.type" is "weird")", kUnimplemented},
      {"longrope", [](auto& b) { b.SetString("llama.rope.scaling.type", "longrope"); },
       R"(tensor "rope_factors_short.weight" is missing)"},
      {"yarn", [](auto& b) { b.SetString("llama.rope.scaling.type", "yarn"); },
       R"(key "llama.rope.scaling.factor" is missing)"},
      {"scaling factor 0",
       [](auto& b) {
         b.SetString("llama.rope.scaling.type", "linear")
             .SetFloat("llama.rope.scaling.factor", 0.0f);
       },
       "rope.scaling.factor\" is 0"},
      {"none with factor",
       [](auto& b) {
         b.SetString("llama.rope.scaling.type", "none").SetFloat("llama.rope.scaling.factor", 2.0f);
       },
       R"(is "none", but the scaling factor is 2)"},
      {"vocabulary", [](auto& b) { SetLlama(b, "vocab_size", 7); },
       R"(is 7, but "token_embd.weight" has 8 rows)"},
      {"experts", [](auto& b) { SetLlama(b, "expert_count", 8); }, "llama.expert_used_count"},
      {"groups of experts", [](auto& b) { SetLlama(b, "expert_group_count", 8); },
       R"(key "llama.expert_group_count" asks for a feature that is not supported)",
       kUnimplemented},
      {"window", [](auto& b) { SetLlama(b, "attention.sliding_window", 4096); },
       "llama.attention.sliding_window", kUnimplemented},
      {"soft cap", [](auto& b) { b.SetFloat("llama.final_logit_softcapping", 30.0f); },
       "llama.final_logit_softcapping", kUnimplemented},
      {"factors NaN", [](auto& b) { b.AddFloats("rope_freqs.weight", {4}, kNan); }, "holds nan"},
      {"factors of another size", [](auto& b) { b.AddFloats("rope_freqs.weight", {8}, 1.0f); },
       R"(tensor "rope_freqs.weight" is not F32 of shape [4])"},
  };
}

void ExpectRefused(const std::vector<Broken>& cases) {
  for (const Broken& broken : cases) {
    SCOPED_TRACE(broken.name);
    GgufBuilder builder = TinyLlama();
    broken.change(builder);
    const absl::Status status = Parsed(builder).Config().status();
    EXPECT_EQ(status.code(), broken.code) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(broken.message));
    EXPECT_THAT(std::string(status.message()), HasSubstr("test.gguf: "));
  }
}

TEST(ConfigTest, BadSizesAreRefusedByName) { ExpectRefused(BrokenSizes()); }

TEST(ConfigTest, BadRulesAreRefusedByName) { ExpectRefused(BrokenRules()); }

TEST(ConfigTest, KeysThatAreNeutralOrOfOthersAreSkipped) {
  GgufBuilder builder = TinyLlama();
  builder.SetUint("llama.expert_count", 0)
      .SetFloat("llama.final_logit_softcapping", 0.0f)
      .SetBool("llama.use_parallel_residual", false)
      .SetString("llama.unknown", "")
      .SetUint("llama.rope.scaling.original_context_length", 32)
      .SetBool("llama.rope.scaling.finetuned", true)
      .SetString("llama.tensor_data_layout", "Meta AI original pth")
      .SetUint("llamas.expert_count", 8)
      .SetUint("x.y", 1);
  EXPECT_TRUE(Parsed(builder).Config().ok()) << Parsed(builder).Config().status();
}

TEST(TensorMapTest, EveryPartHasItsTensor) {
  const Parsed parsed(TinyLlama());
  const absl::StatusOr<ModelTensors> tensors = parsed.Tensors();
  ASSERT_TRUE(tensors.ok()) << tensors.status();
  EXPECT_EQ(tensors->embedding.name, "token_embd.weight");
  EXPECT_EQ(tensors->final_norm.name, "output_norm.weight");
  EXPECT_FALSE(tensors->output_head.has_value());
  ASSERT_EQ(tensors->layers.size(), 2u);
  const LayerTensors& layer = tensors->layers[1];
  EXPECT_EQ(layer.attention_norm.name, "blk.1.attn_norm.weight");
  EXPECT_EQ(layer.q.name, "blk.1.attn_q.weight");
  EXPECT_EQ(layer.k.name, "blk.1.attn_k.weight");
  EXPECT_EQ(layer.v.name, "blk.1.attn_v.weight");
  EXPECT_EQ(layer.attention_out.name, "blk.1.attn_output.weight");
  EXPECT_EQ(layer.mlp_norm.name, "blk.1.ffn_norm.weight");
  EXPECT_EQ(layer.gate.name, "blk.1.ffn_gate.weight");
  EXPECT_EQ(layer.up.name, "blk.1.ffn_up.weight");
  EXPECT_EQ(layer.down.name, "blk.1.ffn_down.weight");
  EXPECT_EQ(layer.down.rows, 32);
  EXPECT_EQ(layer.down.columns, 48);
}

TEST(TensorMapTest, AnOwnOutputHeadIsUsed) {
  GgufBuilder builder = TinyLlama();
  builder.AddFloats("output.weight", {32, 8}, 0.0f);
  const Parsed parsed(builder);
  const absl::StatusOr<ModelTensors> tensors = parsed.Tensors();
  ASSERT_TRUE(tensors.ok()) << tensors.status();
  EXPECT_EQ(tensors->output_head->name, "output.weight");
}

TEST(TensorMapTest, WrongTensorsAreRefusedByName) {
  const std::vector<Broken> cases = {
      {"missing", [](auto& b) { b.tensors.erase(b.tensors.begin() + 4); },
       R"(tensor "blk.0.attn_v.weight" is missing)"},
      {"third layer", [](auto& b) { SetLlama(b, "block_count", 3); },
       R"(tensor "blk.2.attn_norm.weight" is missing)"},
      {"layer too many", [](auto& b) { SetLlama(b, "block_count", 1); },
       R"(tensor "blk.1.attn_norm.weight" is not used)"},
      {"transposed", [](auto& b) { b.tensor("blk.0.attn_k.weight").dimensions = {16, 32}; },
       R"(tensor "blk.0.attn_k.weight" has shape [32, 16], expected [16, 32])"},
      {"rank", [](auto& b) { b.tensor("output_norm.weight").dimensions = {32, 1}; },
       R"(has shape [1, 32], expected [32])"},
      {"bias", [](auto& b) { b.AddFloats("blk.0.attn_q.bias", {32}, 0.0f); },
       R"(tensor "blk.1.attn_q.bias" is missing)"},
      {"quantised norm",
       [](auto& b) {
         b.tensor("output_norm.weight").type = 8;
         b.tensor("output_norm.weight").data = std::string(34, '\0');
       },
       R"(tensor "output_norm.weight" has type Q8_0, expected F32, F16 or BF16)"},
      {"head", [](auto& b) { b.AddFloats("output.weight", {32, 9}, 0.0f); },
       R"(tensor "output.weight" has shape [9, 32], expected [8, 32])"},
  };
  for (const Broken& broken : cases) {
    SCOPED_TRACE(broken.name);
    GgufBuilder builder = TinyLlama();
    broken.change(builder);
    const absl::Status status = Parsed(builder).Tensors().status();
    EXPECT_EQ(status.code(), broken.code) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(broken.message));
    EXPECT_THAT(std::string(status.message()), HasSubstr("test.gguf: "));
  }
}

TEST(QuoteTest, IsPrintableAndShort) {
  EXPECT_EQ(Quote("llama"), R"("llama")");
  EXPECT_EQ(Quote(R"(a"b\c)"), R"("a\"b\\c")");
  EXPECT_EQ(Quote(std::string_view("\0\n\x7f\xff", 4)), R"("\x00\x0a\x7f\xff")");
  EXPECT_EQ(Quote(std::string(48, 'x')), '"' + std::string(48, 'x') + '"');
  EXPECT_EQ(Quote(std::string(1000, 'x')), '"' + std::string(48, 'x') + "...\"");
}

}  // namespace
}  // namespace vitrine
