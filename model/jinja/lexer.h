// Template text to tokens, as jinja2's lexer does with trim_blocks and lstrip_blocks.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace vitrine::jinja {

enum class TokenType : uint8_t {
  kText,  // Outside of tags, ready to print.
  kVariableBegin,
  kVariableEnd,
  kBlockBegin,
  kBlockEnd,
  kName,
  kString,  // Escapes resolved.
  kInteger,
  kFloat,
  kOperator,
  kEnd,  // Of the template.
};

struct Token {
  TokenType type = TokenType::kEnd;
  int line = 0;
  std::string text = {};
};

// The last token is kEnd. `source` is UTF-8.
absl::StatusOr<std::vector<Token>> Tokenize(std::string_view source);

}  // namespace vitrine::jinja
