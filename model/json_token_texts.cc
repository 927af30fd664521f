#include "model/json_token_texts.h"

#include <optional>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "model/byte_alphabet.h"
#include "model/byte_token.h"
#include "model/json_config.h"
#include "model/quote.h"
#include "model/status.h"

namespace vitrine {

absl::StatusOr<JsonTokenTexts> JsonTokenTexts::Read(const JsonValue& root,
                                                    const std::string& label) {
  const JsonConfigReader reader(root, label);
  VITRINE_ASSIGN_OR_RETURN(const std::optional<JsonConfigReader> decoder, reader.Object("decoder"));
  if (!decoder) return reader.Unsupported("decoder", "is missing, which is not supported");
  VITRINE_ASSIGN_OR_RETURN(const std::string type, decoder->String("type"));
  JsonTokenTexts texts;
  if (type != "ByteLevel") {
    return decoder->Unsupported("type", absl::StrCat("is ", Quote(type), ", not supported"));
  }
  texts.is_byte_level_ = true;
  return texts;
}

bool JsonTokenTexts::IsByteToken(std::string_view text) const {
  return has_byte_tokens_ && ParseByteToken(text).has_value();
}

std::string JsonTokenTexts::BytesOf(std::string_view text) const {
  if (is_byte_level_) {
    if (std::optional<std::string> bytes = DecodeByteAlphabet(text)) return *std::move(bytes);
  }
  if (has_byte_tokens_) {
    if (const auto byte = ParseByteToken(text)) return {static_cast<char>(*byte)};
  }
  return BytesOfAdded(text);
}

std::string JsonTokenTexts::BytesOfAdded(std::string_view text) const {
  std::string bytes(text);
  if (!space_.empty()) absl::StrReplaceAll({{space_, " "}}, &bytes);
  return bytes;
}

}  // namespace vitrine
