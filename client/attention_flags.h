// What is asked about attention, from the command line to the wire. Values are checked by the
// server, so that there is one rule and one message.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "client/attention_view.h"
#include "client/command_line.h"
#include "vitrine/v1/attention.pb.h"

namespace vitrine::client {

struct AttentionFlags {
  v1::AttentionSpec spec;  // As far as flags name it.
  std::vector<int32_t> layers;
  std::vector<uint32_t> heads;
  v1::ElementType dtype = v1::ELEMENT_TYPE_UNSPECIFIED;
  std::vector<std::string> text_spans;  // NAME=TEXT, to be found in the prompt.
  std::optional<AttentionView> view;
  AttentionViewOptions look;  // But for the view and the style.
  std::optional<int> width;
  bool colour_always = false;
  bool colour_never = false;
  std::string npz;
  std::string csv;
};

// `flags` must outlive every Parse of `command_line`.
void AddAttentionFlags(CommandLine* command_line, AttentionFlags* flags);

// Fills in what follows from the flags: the view, the outputs that it draws, the rows (all of them
// while the prompt has at most kFewTokens tokens), and reductions where only a picture is wanted.
// INVALID_ARGUMENT where flags contradict each other.
inline constexpr size_t kFewTokens = 48;
absl::Status CompleteAttention(size_t prompt_tokens, AttentionFlags* flags);

// Turns spans given as text into byte ranges of `prompt`. INVALID_ARGUMENT names the span that the
// prompt does not hold.
absl::Status FindTextSpans(std::string_view prompt, AttentionFlags* flags);

}  // namespace vitrine::client
