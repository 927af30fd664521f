// An answer's attention with the tokens it is about: asked for again, and shown.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/attention_assembly.h"
#include "client/attention_flags.h"
#include "client/cancellation.h"
#include "client/generate_client.h"
#include "client/sequence_tokens.h"

namespace vitrine::client {

struct AttentionAnswer {
  AttentionTrace trace;
  SequenceTokens tokens;
};

// Asks the server for the tokens of the request, completes `attention` by them, and replays. With
// `json` every chunk is printed as it comes. The server's status, explained; INVALID_ARGUMENT where
// flags contradict each other; NOT_FOUND where the request has no such choice.
absl::StatusOr<AttentionAnswer> ReplayAttention(GenerateClient* client,
                                                const std::string& request_id, bool json,
                                                AttentionFlags* attention,
                                                Cancellation* cancellation);

// How the answer of a server without inspection becomes useful.
absl::Status ExplainInspection(const absl::Status& status);

// Writes the files that the flags name, and the picture unless chunks are printed already. The exit
// code; failures are reported.
int PresentAttention(const AttentionAnswer& answer, bool json, const AttentionFlags& flags);

}  // namespace vitrine::client
