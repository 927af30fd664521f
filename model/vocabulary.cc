#include "model/vocabulary.h"

#include "kernels/check.h"

namespace vitrine {

void Vocabulary::Reserve(size_t tokens, size_t bytes) {
  begins_.reserve(tokens + 1);
  types_.reserve(tokens);
  bytes_.reserve(bytes);
}

void Vocabulary::Add(std::string_view bytes, TokenType type) {
  bytes_ += bytes;
  VITRINE_CHECK_LE(bytes_.size(), UINT32_MAX);
  begins_.push_back(static_cast<uint32_t>(bytes_.size()));
  types_.push_back(type);
}

std::string_view Vocabulary::Bytes(TokenId id) const {
  const auto i = static_cast<size_t>(id);
  VITRINE_CHECK_LT(i, types_.size());
  return std::string_view(bytes_).substr(begins_[i], begins_[i + 1] - begins_[i]);
}

bool Vocabulary::IsControl(TokenId id) const {
  return Type(id) == TokenType::kControl || Type(id) == TokenType::kUnknown;
}

}  // namespace vitrine
