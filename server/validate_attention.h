// From the wire's AttentionSpec to a TraceSpec: every field is honoured or refused by name.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "server/request.h"
#include "server/served_model.h"
#include "server/trace_spec.h"
#include "vitrine/v1/attention.pb.h"

namespace vitrine::server {

// The sequence that is asked about.
struct TraceSubject {
  int prompt_tokens = 0;
  int end_row = 0;  // Rows from here on cannot exist.
  int choices = 1;
  std::span<const uint32_t> byte_offsets = {};      // [prompt_tokens]; empty: prompt without text.
  int64_t prompt_bytes = 0;                         // Of the text that byte_offsets count in.
  std::span<const PromptRoleSpan> role_spans = {};  // Empty: not a chat.
  bool is_replay = false;
};

// INVALID_ARGUMENT names the field (below `path`) and the rule; FAILED_PRECONDITION a span that the
// prompt cannot have; RESOURCE_EXHAUSTED gives the exact bytes of an answer that is larger than
// spec.max_bytes or `max_bytes`. Costs are checked before anything is allocated for them.
absl::StatusOr<TraceSpec> ValidateAttention(const v1::AttentionSpec& spec, std::string_view path,
                                            const TraceSubject& subject, const ServedModel& model,
                                            int64_t max_bytes);

// Names of AttentionOutput.kind that are on offer.
std::vector<std::string> SupportedAttentionOutputs();

}  // namespace vitrine::server
