// Flags for the fields of a GenerateRequest. They carry the fields' names; the server checks the
// values, so that there is one rule and one message.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "client/command_line.h"
#include "vitrine/v1/generation.pb.h"

namespace vitrine::client {

// What stands for the prompt on a command line.
struct PromptFlags {
  std::string system;                 // First message of a conversation.
  std::vector<std::string> messages;  // ROLE:TEXT.
  bool chat = false;                  // The prompt is a user's message.
  std::vector<uint32_t> token_ids;
  std::string tools;
  std::string template_variables;
  std::optional<bool> add_generation_prompt;
};

// The pointers must outlive every Parse of `command_line`.
void AddPromptFlags(CommandLine* command_line, PromptFlags* flags);
void AddSamplingFlags(CommandLine* command_line, v1::SamplingOptions* sampling);
void AddStopFlags(CommandLine* command_line, v1::StopOptions* stop);
void AddOutputFlags(CommandLine* command_line, v1::OutputOptions* output);

// Makes the prompt of the flags and of at most one argument; "-" reads standard input to its end.
// INVALID_ARGUMENT when there is no prompt, or more than one.
absl::Status ReadPrompt(const PromptFlags& flags, const std::vector<std::string>& arguments,
                        v1::GenerateRequest* request);

}  // namespace vitrine::client
