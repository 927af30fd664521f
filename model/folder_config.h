// What many Hugging Face families read from config.json the same way.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "model/config.h"
#include "model/json_config.h"
#include "model/tensor_map.h"

namespace vitrine {

// What a family is, as config.json and its tensors' names tell.
struct FolderFamily {
  ModelConfig config;
  TensorNames names;
};

// What a family takes where config.json is silent, and its own names of members.
struct FolderDefaults {
  std::string_view epsilon_key = "rms_norm_eps";
  double epsilon = 1e-6;
  std::string_view activation_key = "hidden_act";
  std::string_view activation = "silu";
  bool is_tied = false;
  bool has_default_d_ff = false;  // Without a width of its own, a feed-forward block has four.
  int context_length = 0;  // 0: config.json must say. ALiBi needs no table, and often does not.
};

// Layers, widths, heads, vocabulary, context, epsilon, activation, and whether the head is tied,
// by the names that llama has for them. INVALID_ARGUMENT or UNIMPLEMENTED name the member.
absl::Status ReadFolderConfig(JsonConfigReader& reader, const FolderDefaults& defaults,
                              FolderFamily& family);

// Lets `reader` find the sizes under the names that GPT-2 has for them.
void UseGptNames(JsonConfigReader& reader);

// sliding_window, or 0 where there is none.
absl::StatusOr<int> ReadWindowLength(JsonConfigReader& reader);

// Gives the layers named "sliding_attention" in layer_types the window, or where there are no
// layer_types, those for which `is_windowed` is true. Nothing where `window` is 0.
absl::Status ReadWindowedLayers(JsonConfigReader& reader, int window,
                                const std::vector<bool>& is_windowed, ModelConfig& config);

// Names of biases beside the weights q_proj, k_proj and v_proj of self_attn.
void NameQkvBiases(TensorNames& names);

}  // namespace vitrine
