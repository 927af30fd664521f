// The token table of a model: what every tokenizer has, however it encodes. Const and thread-safe
// once built.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "model/batch.h"

namespace vitrine {

// Numbered as in tokenizer.ggml.token_type.
enum class TokenType : uint8_t {
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,
  kUserDefined = 4,
  kUnused = 5,
  kByte = 6,
};

class Vocabulary {
 public:
  void Reserve(size_t tokens, size_t bytes);
  // Appends a token that stands for `bytes`. All tokens together hold less than 4 GiB.
  void Add(std::string_view bytes, TokenType type);

  int size() const { return static_cast<int>(types_.size()); }

  // `id` is within size().
  std::string_view Bytes(TokenId id) const;
  TokenType Type(TokenId id) const { return types_[static_cast<size_t>(id)]; }
  bool IsControl(TokenId id) const;

 private:
  std::string bytes_;                   // Of all tokens, one after the other.
  std::vector<uint32_t> begins_ = {0};  // [size() + 1] into bytes_.
  std::vector<TokenType> types_;
};

}  // namespace vitrine
