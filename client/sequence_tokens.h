// The tokens of a request with the bytes that they stand for, as far as a client can know them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/cancellation.h"
#include "client/generate_client.h"
#include "vitrine/v1/generation.pb.h"

namespace vitrine::client {

// Prompt first, then one answer.
struct SequenceTokens {
  size_t prompt_tokens = 0;
  std::vector<uint32_t> ids;
  std::vector<std::string> bytes;  // As long as `ids`; empty where a token has none.
};

// The prompt that `request` would have. Texts are sliced by the server's byte offsets; other tokens
// are asked for one by one.
absl::StatusOr<SequenceTokens> TokensOfPrompt(GenerateClient* client,
                                              const v1::GenerateRequest& request,
                                              Cancellation* cancellation);

// A sequence of which only the ids are known.
absl::StatusOr<SequenceTokens> TokensOfIds(GenerateClient* client, std::vector<uint32_t> ids,
                                           size_t prompt_tokens, Cancellation* cancellation);

}  // namespace vitrine::client
