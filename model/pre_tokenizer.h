// Splits text into pre-tokens, the pieces within which byte-pair merges happen. One hand-written
// scanner per published splitting pattern: linear time, no regular expressions, constant stack.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <span>
#include <string_view>

#include "model/categorized_text.h"

namespace vitrine {

// Returns the end of the piece of `text` that begins at byte `begin`, which is below text.size():
// always beyond `begin`.
using PieceScanner = size_t (*)(const CategorizedText& text, size_t begin);

// A splitting rule. Each stage splits every piece of the stage before it and sees nothing outside
// that piece.
struct PreTokenizer {
  std::string_view name;  // As tokenizer.ggml.pre spells it: "smollm".
  std::span<const PieceScanner> stages;
  // A pre-token that is a token as a whole becomes it, whatever the merges say.
  bool whole_words = false;
  // What a file without tokenizer.ggml.add_bos_token means.
  bool add_bos_by_default = false;
};

inline constexpr size_t kMaxPreTokenizerStages = 8;

// All rules; they live for ever.
std::span<const PreTokenizer> PreTokenizers();

// Null when the rule is not known.
const PreTokenizer* FindPreTokenizer(std::string_view name);

// Iterates over the pre-tokens of one text, which must be well-formed UTF-8 and outlive this. At
// most kMaxPreTokenizerStages stages; without any the whole text is one pre-token.
class PreTokenIterator {
 public:
  PreTokenIterator(std::span<const PieceScanner> stages, std::string_view text);

  // The next pre-token, or nullopt at the end. Together they are the whole text.
  std::optional<std::string_view> Next();

 private:
  std::span<const PieceScanner> stages_;
  CategorizedText text_;
  size_t position_ = 0;
  // End of the whole text, then of the current piece of each stage: never rising.
  std::array<size_t, kMaxPreTokenizerStages + 1> ends_ = {};
};

}  // namespace vitrine
