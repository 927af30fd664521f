// config.json in its spellings: the ModelConfig it becomes, and what is refused.
#include "model/folder_families.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "model/rope_frequencies.h"
#include "nlohmann/json.hpp"

namespace vitrine {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Json = nlohmann::json;

Json Llama() {
  return {{"model_type", "llama"},    {"hidden_size", 64},
          {"intermediate_size", 128}, {"num_hidden_layers", 2},
          {"num_attention_heads", 4}, {"num_key_value_heads", 2},
          {"vocab_size", 384},        {"max_position_embeddings", 256},
          {"rms_norm_eps", 1e-5},     {"hidden_act", "silu"},
          {"rope_theta", 10000},      {"eos_token_id", 2},
          {"bos_token_id", 1}};
}

class FolderFamiliesTest : public ::testing::Test {
 protected:
  FolderFamiliesTest() { std::filesystem::create_directories(folder_); }
  ~FolderFamiliesTest() override { std::filesystem::remove_all(folder_); }

  void Write(const std::string& name, const std::string& text) {
    std::ofstream(folder_ / name) << text;
  }
  absl::StatusOr<FolderDescription> Describe(const Json& config) {
    Write("config.json", config.dump());
    return DescribeFolder(folder_);
  }
  absl::StatusOr<FolderDescription> DescribeWith(const Json& changes) {
    Json config = Llama();
    config.update(changes);
    return Describe(config);
  }

  std::filesystem::path folder_ =
      std::filesystem::temp_directory_path() / ("families." + std::to_string(getpid()));
};

TEST_F(FolderFamiliesTest, ReadsALlama) {
  const auto model = Describe(Llama());
  ASSERT_TRUE(model.ok()) << model.status();
  const ModelConfig& config = model->config;
  EXPECT_EQ(config.architecture, "llama");
  EXPECT_EQ(config.name, folder_.filename());
  EXPECT_EQ(config.num_layers, 2);
  EXPECT_EQ(config.d_model, 64);
  EXPECT_EQ(config.d_ff, 128);
  EXPECT_EQ(config.num_heads, 4);
  EXPECT_EQ(config.num_kv_heads, 2);
  EXPECT_EQ(config.head_dim, 16);
  EXPECT_EQ(config.vocabulary, 384);
  EXPECT_EQ(config.context_length, 256);
  EXPECT_EQ(config.norm_epsilon, 1e-5f);
  EXPECT_EQ(config.attention_scale, 0.25f);
  EXPECT_EQ(config.activation, Activation::kSilu);
  EXPECT_EQ(config.rotary_dim, 16);
  EXPECT_EQ(config.rope_pairing, RopePairing::kHalfSplit);
  EXPECT_EQ(config.rope_frequencies, RopeFrequencies(16, 10000.0));
  EXPECT_THAT(config.layers, IsEmpty());
  EXPECT_EQ(model->names.q, "self_attn.q_proj.weight");
  EXPECT_EQ(model->names.q_bias, "");
  EXPECT_EQ(model->names.output_head_rule, OutputHead::kOwn);
  EXPECT_EQ(model->bos_id, 1);
  EXPECT_THAT(model->eos_ids, ElementsAre(2));
}

TEST_F(FolderFamiliesTest, DefaultsAreThoseOfTransformers) {
  Json config = Llama();
  for (const char* key : {"num_key_value_heads", "hidden_act", "rope_theta", "eos_token_id"}) {
    config.erase(key);
  }
  config["bos_token_id"] = nullptr;
  config["head_dim"] = nullptr;
  config["rope_scaling"] = nullptr;
  const auto model = Describe(config);
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(model->config.num_kv_heads, 4);
  EXPECT_EQ(model->config.rope_frequencies, RopeFrequencies(16, 10000.0));
  EXPECT_EQ(model->bos_id, -1);
  EXPECT_THAT(model->eos_ids, IsEmpty());
}

TEST_F(FolderFamiliesTest, GenerationConfigNamesTheIdsThatCount) {
  Write("generation_config.json", R"({"eos_token_id":[2,7],"temperature":0.6})");
  const auto model = Describe(Llama());
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_THAT(model->eos_ids, ElementsAre(2, 7));
  EXPECT_EQ(model->bos_id, 1);
  Write("generation_config.json", R"({"eos_token_id":[2,384]})");
  EXPECT_THAT(std::string(Describe(Llama()).status().message()),
              HasSubstr("generation_config.json: eos_token_id is 384, expected a token id"));
}

TEST_F(FolderFamiliesTest, RopeRulesHaveTwoSpellings) {
  const Json linear = {{"factor", 4.0}, {"rope_type", "linear"}};
  const Json old_linear = {{"factor", 4.0}, {"type", "linear"}};
  const Json new_linear = {{"factor", 4}, {"rope_type", "linear"}, {"rope_theta", 500000.0}};
  EXPECT_EQ(DescribeWith({{"rope_scaling", linear}})->config.rope_frequencies,
            LinearRopeFrequencies(16, 10000.0, 4.0));
  EXPECT_EQ(DescribeWith({{"rope_scaling", old_linear}})->config.rope_frequencies,
            LinearRopeFrequencies(16, 10000.0, 4.0));
  EXPECT_EQ(DescribeWith({{"rope_parameters", new_linear}})->config.rope_frequencies,
            LinearRopeFrequencies(16, 500000.0, 4.0));
}

TEST_F(FolderFamiliesTest, ReadsEveryRopeRule) {
  const auto llama3 = DescribeWith({{"rope_scaling",
                                     {{"rope_type", "llama3"},
                                      {"factor", 8.0},
                                      {"low_freq_factor", 1.0},
                                      {"high_freq_factor", 4.0},
                                      {"original_max_position_embeddings", 32}}}});
  ASSERT_TRUE(llama3.ok()) << llama3.status();
  EXPECT_EQ(llama3->config.rope_frequencies,
            Llama3RopeFrequencies(16, 10000.0, {.factor = 8.0, .original_length = 32}));

  const auto yarn = DescribeWith({{"rope_scaling", {{"rope_type", "yarn"}, {"factor", 8.0}}}});
  ASSERT_TRUE(yarn.ok()) << yarn.status();
  EXPECT_EQ(yarn->config.rope_frequencies,
            YarnRopeFrequencies(16, 10000.0, {.factor = 8.0, .original_length = 256}));
  EXPECT_EQ(yarn->config.rope_attention_factor, static_cast<float>(0.1 * std::log(8.0) + 1.0));

  const auto scaled = DescribeWith(
      {{"rope_scaling",
        {{"rope_type", "yarn"}, {"factor", 8.0}, {"mscale", 0.5}, {"mscale_all_dim", 1.0}}}});
  EXPECT_EQ(scaled->config.rope_attention_factor,
            static_cast<float>((0.05 * std::log(8.0) + 1.0) / (0.1 * std::log(8.0) + 1.0)));

  const auto dynamic = DescribeWith({{"rope_scaling", {{"type", "dynamic"}, {"factor", 2.0}}}});
  EXPECT_EQ(dynamic->config.rope_frequencies, RopeFrequencies(16, 10000.0));

  const auto partial = DescribeWith({{"model_type", "phi3"}, {"partial_rotary_factor", 0.25}});
  EXPECT_EQ(partial->config.rotary_dim, 4);
  EXPECT_EQ(partial->config.rope_frequencies, RopeFrequencies(4, 10000.0));
}

TEST_F(FolderFamiliesTest, FamiliesDifferInTheirTensors) {
  const auto biased = DescribeWith({{"attention_bias", true}, {"mlp_bias", true}});
  EXPECT_EQ(biased->names.attention_out_bias, "self_attn.o_proj.bias");
  EXPECT_EQ(biased->names.down_bias, "mlp.down_proj.bias");
  EXPECT_EQ(DescribeWith({{"tie_word_embeddings", true}})->names.output_head_rule,
            OutputHead::kTied);

  const auto qwen2 = DescribeWith({{"model_type", "qwen2"}, {"sliding_window", 8}});
  EXPECT_EQ(qwen2->names.k_bias, "self_attn.k_proj.bias");
  EXPECT_EQ(qwen2->names.attention_out_bias, "");
  EXPECT_THAT(qwen2->config.layers, IsEmpty());

  const auto qwen3 = DescribeWith({{"model_type", "qwen3"}, {"head_dim", 24}});
  EXPECT_EQ(qwen3->config.qk_norm, QkNorm::kPerHead);
  EXPECT_EQ(qwen3->config.head_dim, 24);
  EXPECT_EQ(qwen3->names.q_bias, "");

  const auto phi3 = DescribeWith({{"model_type", "phi3"}});
  EXPECT_EQ(phi3->names.qkv, "self_attn.qkv_proj.weight");
  EXPECT_EQ(phi3->names.q, "");

  const auto olmo2 = DescribeWith({{"model_type", "olmo2"}});
  EXPECT_EQ(olmo2->config.norm_placement, NormPlacement::kOutput);
  EXPECT_EQ(olmo2->config.qk_norm, QkNorm::kAllHeads);
  EXPECT_EQ(olmo2->names.attention_norm, "");
}

TEST_F(FolderFamiliesTest, WindowsAreThoseOfTheLayers) {
  const auto windows = [](const absl::StatusOr<FolderDescription>& model) {
    std::vector<int> result;
    for (int i = 0; i < model->config.num_layers; ++i) {
      result.push_back(model->config.layer(i).window);
    }
    return result;
  };
  EXPECT_THAT(windows(DescribeWith({{"model_type", "mistral"}, {"sliding_window", 8}})),
              ElementsAre(8, 8));
  EXPECT_THAT(windows(DescribeWith({{"model_type", "mistral"}, {"sliding_window", nullptr}})),
              ElementsAre(0, 0));
  const Json qwen = {{"model_type", "qwen2"}, {"sliding_window", 8}, {"use_sliding_window", true}};
  Json old_spelling = qwen;
  old_spelling["max_window_layers"] = 1;
  EXPECT_THAT(windows(DescribeWith(old_spelling)), ElementsAre(0, 8));
  Json new_spelling = qwen;
  new_spelling["layer_types"] = {"sliding_attention", "full_attention"};
  EXPECT_THAT(windows(DescribeWith(new_spelling)), ElementsAre(8, 0));
}

TEST_F(FolderFamiliesTest, BadMembersAreRefusedByName) {
  const auto rope = [](Json scaling) { return Json{{"rope_scaling", std::move(scaling)}}; };
  const std::pair<Json, std::string> cases[] = {
      {{{"model_type", "nosuch"}}, R"(unsupported model_type "nosuch")"},
      {{{"model_type", nullptr}}, "model_type is missing"},
      {{{"hidden_size", "64"}}, "hidden_size is a string, expected an integer"},
      {{{"hidden_size", 64.0}}, "hidden_size is a float, expected an integer"},
      {{{"hidden_size", -64}}, "hidden_size is -64, expected 1 to"},
      {{{"hidden_size", int64_t{1} << 62}}, "hidden_size is 4611686018427387904"},
      {{{"num_attention_heads", 0}}, "num_attention_heads is 0"},
      {{{"num_attention_heads", 3}, {"num_key_value_heads", 3}},
       "hidden_size is 64, which is not a multiple of 3 heads"},
      {{{"num_attention_heads", 64}},
       "num_attention_heads makes heads of 1 dimensions, expected an even"},
      {{{"num_key_value_heads", 3}}, "num_key_value_heads is 3, which does not divide 4 heads"},
      {{{"head_dim", 7}}, "head_dim makes heads of 7 dimensions, expected an even number"},
      {{{"num_hidden_layers", 1000000}}, "num_hidden_layers is 1000000"},
      {{{"rms_norm_eps", 0}}, "rms_norm_eps is 0, expected a finite number above 0"},
      {{{"rms_norm_eps", "1e-5"}}, "rms_norm_eps is a string, expected a number"},
      {{{"rope_theta", 1e300}}, "rope_theta is 1e+300"},
      {{{"rope_theta", 0.5}}, "rope_theta is below 1"},
      {{{"hidden_act", "nosuch"}}, R"(hidden_act is "nosuch", which is not supported)"},
      {{{"quantization_config", {{"quant_method", "x"}}}},
       R"(quantization_config: quant_method is "x": not supported)"},
      {{{"quantization_config", {{"fmt", "e4m3"}}}},
       "quantization_config: quant_method is missing"},
      {{{"quantization_config", {{"quant_method", "fp8"}, {"activation_scheme", "x"}}}},
       R"(quantization_config: activation_scheme is "x": not supported)"},
      {{{"quantization_config", {{"quant_method", "fp8"}, {"weight_block_size", {128, 0}}}}},
       "quantization_config: weight_block_size is no pair"},
      {{{"eos_token_id", 384}}, "eos_token_id is 384, expected a token id from 0 to 383"},
      {{{"tie_word_embeddings", 1}}, "tie_word_embeddings is an integer, expected a bool"},
      {{{"model_type", "phi3"}, {"partial_rotary_factor", 1.5}}, "partial_rotary_factor is 1.5"},
      {{{"rope_scaling", "linear"}}, "rope_scaling is a string, expected an object"},
      {rope({{"rope_type", "weird"}}), R"(rope_scaling: rope_type is "weird", which is not)"},
      {rope({{"rope_type", "linear"}}), "rope_scaling: factor is missing"},
      {rope({{"rope_type", "linear"}, {"factor", 0.0}}), "rope_scaling: factor is 0"},
      {rope({{"rope_type", "yarn"}, {"factor", 8}, {"long_factor", {1.0}}}),
       R"(rope_scaling: "long_factor" is not supported)"},
      {rope({{"rope_type", "llama3"}, {"factor", 8}}), "rope_scaling: low_freq_factor is missing"},
  };
  for (const auto& [changes, message] : cases) {
    const absl::Status status = DescribeWith(changes).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status) || absl::IsUnimplemented(status)) << changes;
    EXPECT_THAT(std::string(status.message()), HasSubstr("config.json: " + message)) << changes;
  }
}

// compressed-tensors: one group, whose weights are changed by `weights`.
Json Compressed(const Json& weights, const Json& changes = {}) {
  Json group = {{"targets", {"Linear"}},
                {"weights", {{"num_bits", 8}, {"type", "float"}, {"strategy", "channel"}}}};
  if (!weights.is_null()) group["weights"].update(weights);
  Json config = {{"quant_method", "compressed-tensors"}, {"config_groups", {{"group_0", group}}}};
  if (!changes.is_null()) config.update(changes);
  return {{"quantization_config", config}};
}

TEST_F(FolderFamiliesTest, EightBitFloatsShareScalesAsTheirMethodSays) {
  const auto blocks = [&](const Json& config) {
    const absl::StatusOr<FolderDescription> model = DescribeWith(config);
    if (!model.ok()) throw std::runtime_error(std::string(model.status().message()));
    const Fp8Blocks found = model->names.fp8_blocks.value();
    return std::pair(found.rows, found.columns);
  };
  const auto method = [](Json config) { return Json{{"quantization_config", std::move(config)}}; };
  EXPECT_FALSE(Describe(Llama())->names.fp8_blocks.has_value());
  EXPECT_EQ(blocks(method({{"quant_method", "fp8"}})), std::pair(128, 128));
  EXPECT_EQ(blocks(method({{"quant_method", "fp8"}, {"weight_block_size", nullptr}})),
            std::pair(0, 0));
  EXPECT_EQ(blocks(method({{"quant_method", "fbgemm_fp8"}})), std::pair(1, 0));
  EXPECT_EQ(blocks(Compressed({})), std::pair(1, 0));
  EXPECT_EQ(blocks(Compressed({{"strategy", "tensor"}})), std::pair(0, 0));
  EXPECT_EQ(blocks(Compressed({{"strategy", "block"}, {"block_structure", {64, 32}}})),
            std::pair(64, 32));
}

TEST_F(FolderFamiliesTest, OtherQuantisedWeightsAreRefusedByName) {
  const Json two_groups = {{"config_groups", {{"group_0", {}}, {"group_1", {{"a", 1}}}}}};
  const std::pair<Json, std::string> cases[] = {
      {Compressed({{"num_bits", 4}}), "weights: num_bits is 4: not supported"},
      {Compressed({{"type", "int"}}), R"(weights: type is "int": not supported)"},
      {Compressed({{"strategy", "group"}}), R"(weights: strategy is "group": not supported)"},
      {Compressed({{"strategy", "block"}}), "weights: block_structure is no pair"},
      {Compressed({{"symmetric", false}}), "weights: symmetric is false: not supported"},
      {Compressed({}, {{"format", "pack-quantized"}}), R"(format is "pack-quantized")"},
      {Compressed({}, {{"kv_cache_scheme", {{"num_bits", 8}}}}), "kv_cache_scheme is set"},
      {Compressed({}, {{"transform_config", {{"u", 1}}}}), R"(transform_config: "u" is not)"},
      {Compressed({}, two_groups), R"(config_groups: "group_1" is not supported)"},
      {Compressed({}, {{"config_groups", nullptr}}), "config_groups is missing"},
  };
  for (const auto& [changes, message] : cases) {
    const absl::Status status = DescribeWith(changes).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status) || absl::IsUnimplemented(status)) << changes;
    EXPECT_THAT(std::string(status.message()), HasSubstr(message)) << changes;
  }
}

// What one family computes and another does not know must not be passed over.
TEST_F(FolderFamiliesTest, FeaturesOfOtherFamiliesAreRefusedByName) {
  struct Case {
    Json changes;
    std::string member;
  };
  const Case cases[] = {
      {{{"sliding_window", 4096}}, "sliding_window"},
      {{{"model_type", "mistral"}, {"attention_bias", true}}, "attention_bias"},
      {{{"clip_qkv", 8.0}}, "clip_qkv"},
      {{{"model_type", "opt"}, {"ffn_dim", 128}, {"word_embed_proj_dim", 3}},
       "word_embed_proj_dim"},
      {{{"model_type", "opt"},
        {"ffn_dim", 128},
        {"do_layer_norm_before", false},
        {"layer_norm_elementwise_affine", false}},
       "layer_norm_elementwise_affine"},
      {{{"qk_layernorm", true}}, "qk_layernorm"},
      {{{"apply_residual_connection_post_layernorm", true}},
       "apply_residual_connection_post_layernorm"},
      {{{"model_type", "granite"}, {"num_local_experts", 8}}, "num_local_experts"},
      {{{"residual_multiplier", 0.22}}, "residual_multiplier"},
      {{{"partial_rotary_factor", 0.5}}, "partial_rotary_factor"},
  };
  for (const auto& [changes, member] : cases) {
    const absl::Status status = DescribeWith(changes).status();
    EXPECT_TRUE(absl::IsUnimplemented(status)) << changes << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("config.json: " + member)) << changes;
  }
  EXPECT_TRUE(DescribeWith({{"sliding_window", nullptr}, {"use_sliding_window", false}}).ok());
}

TEST_F(FolderFamiliesTest, SamplingDefaultsComeFromGenerationConfig) {
  Write("generation_config.json",
        R"({"do_sample":true,"temperature":0.6,"top_k":20,"top_p":0.95,"min_p":0.0})");
  const SamplingDefaults sampling = Describe(Llama())->sampling;
  EXPECT_EQ(sampling.temperature, 0.6f);
  EXPECT_EQ(sampling.top_k, 20);
  EXPECT_EQ(sampling.top_p, 0.95f);
  EXPECT_EQ(sampling.min_p, 0.0f);
  EXPECT_FALSE(sampling.repetition_penalty.has_value());
  Write("generation_config.json", R"({"do_sample":false,"temperature":0.6,"top_k":20})");
  EXPECT_EQ(Describe(Llama())->sampling.temperature, 0.0f);
  EXPECT_FALSE(Describe(Llama())->sampling.top_k.has_value());
  Write("generation_config.json", R"({"top_p":1.5})");
  EXPECT_THAT(std::string(Describe(Llama()).status().message()),
              HasSubstr("generation_config.json: top_p is 1.5, expected"));
}

// Served up to the shorter length unless more is asked for: see LoadOptions.
TEST_F(FolderFamiliesTest, LongRopeHasTwoSetsOfFrequencies) {
  const std::vector<double> ones(8, 1.0);
  const std::vector<double> fours(8, 4.0);
  const Json rope = {
      {"type", "su"}, {"short_factor", ones}, {"long_factor", fours}, {"rope_theta", 10000.0}};
  const auto model = DescribeWith(
      {{"model_type", "phi3"}, {"original_max_position_embeddings", 64}, {"rope_scaling", rope}});
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(model->config.short_context_length, 64);
  EXPECT_EQ(model->config.rope_frequencies, RopeFrequencies(16, 10000.0));
  EXPECT_EQ(model->config.long_rope_frequencies, LinearRopeFrequencies(16, 10000.0, 4.0));
  EXPECT_FLOAT_EQ(model->config.rope_attention_factor,
                  static_cast<float>(std::sqrt(1.0 + std::log(4.0) / std::log(64.0))));
}

TEST_F(FolderFamiliesTest, EveryNeededMemberIsAskedFor) {
  for (const std::string key :
       {"model_type", "hidden_size", "intermediate_size", "num_hidden_layers",
        "num_attention_heads", "vocab_size", "max_position_embeddings"}) {
    Json config = Llama();
    config.erase(key);
    EXPECT_EQ(Describe(config).status().message(), "config.json: " + key + " is missing");
  }
  EXPECT_THAT(std::string(Describe(Json::array()).status().message()),
              HasSubstr("config.json: an array, expected an object"));
  std::filesystem::remove(folder_ / "config.json");
  EXPECT_TRUE(absl::IsNotFound(DescribeFolder(folder_).status()));
}

}  // namespace
}  // namespace vitrine
