// What the RPC side needs to know about the model: to check requests before the queue and to
// describe it. Immutable while the server runs.
#pragma once

#include <cstdint>
#include <ctime>
#include <string>
#include <vector>

#include "model/chat_template.h"
#include "model/sampling_defaults.h"
#include "model/tokenizer.h"

namespace vitrine::server {

// The time of day where the server runs.
std::tm LocalTime();

struct ServedModel {
  std::string name = {};
  const Tokenizer* tokenizer = nullptr;
  int vocabulary = 0;      // Ids below it may be sent; at most the tokenizer's and the model's.
  int context_length = 0;  // Tokens of prompt and answer together.
  int64_t kv_tokens = 0;   // Tokens that the whole KV cache holds.
  int longest_token = 1;   // Bytes of the longest token.
  SamplingDefaults sampling = {};

  // What may be asked about attention; 0: inspection is off.
  int64_t inspection_bytes = 0;  // Of one answer.
  int max_reduced_pairs = 0;     // Single heads that may become one row.
  int num_layers = 0;
  int num_heads = 0;
  std::vector<int> windows = {};  // [num_layers]; 0: none. Empty: none anywhere.
  std::string numerics = {};
  std::string kv_dtype = {};

  const ChatTemplate* chat_template = nullptr;
  std::string no_chat_reason = "the model has no chat template";  // Without a chat_template.
  std::tm (*local_time)() = LocalTime;                            // What templates may print.

  // For DescribeModel only.
  std::string architecture = {};
  int num_kv_heads = 0;
  int head_dim = 0;
  int d_model = 0;
  int trained_context_length = 0;
  struct WeightType {
    std::string name = {};
    int tensors = 0;
    uint64_t bytes = 0;
  };
  std::vector<WeightType> weight_types = {};
  uint64_t parameters = 0;
  std::string backend = {};
  std::string device = {};
  uint64_t kv_bytes = 0;
};

// Bytes of the longest token.
int LongestToken(const Tokenizer& tokenizer);

}  // namespace vitrine::server
