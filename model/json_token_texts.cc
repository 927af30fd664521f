#include "model/json_token_texts.h"

#include <cstdint>
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
namespace {

constexpr char kSpaceMark[] = "\u2581";

}  // namespace

// One decoder that is no Sequence.
absl::Status JsonTokenTexts::Apply(const JsonConfigReader& decoder) {
  VITRINE_ASSIGN_OR_RETURN(const std::string type, decoder.String("type"));
  if (type == "ByteLevel") {
    is_byte_level_ = true;
    return absl::OkStatus();
  }
  if (type == "ByteFallback") {
    has_byte_tokens_ = true;
    return absl::OkStatus();
  }
  if (type == "Fuse") return absl::OkStatus();
  if (type == "Metaspace") {
    VITRINE_ASSIGN_OR_RETURN(space_, decoder.String("replacement", kSpaceMark));
    VITRINE_ASSIGN_OR_RETURN(const bool add_prefix, decoder.Bool("add_prefix_space", true));
    VITRINE_ASSIGN_OR_RETURN(const std::string scheme,
                             decoder.String("prepend_scheme", add_prefix ? "always" : "never"));
    strips_first_space_ = scheme != "never";
    return absl::OkStatus();
  }
  if (type == "Replace") {
    VITRINE_ASSIGN_OR_RETURN(const std::optional<JsonConfigReader> pattern,
                             decoder.Object("pattern"));
    if (!pattern) return decoder.Error("pattern", "is missing");
    VITRINE_ASSIGN_OR_RETURN(const std::string content, decoder.String("content"));
    VITRINE_ASSIGN_OR_RETURN(space_, pattern->String("String", ""));
    if (content != " " || space_ != kSpaceMark) {
      return decoder.Unsupported("pattern", "is not U+2581 to be replaced by a space");
    }
    return absl::OkStatus();
  }
  if (type == "Strip") {
    VITRINE_ASSIGN_OR_RETURN(const std::string content, decoder.String("content"));
    VITRINE_ASSIGN_OR_RETURN(const int start, decoder.Int("start", 0, INT32_MAX, 0));
    VITRINE_ASSIGN_OR_RETURN(const int stop, decoder.Int("stop", 0, INT32_MAX, 0));
    if (content != " " || start > 1 || stop > 0) {
      return decoder.Unsupported("type", "is a Strip of more than one space at the start");
    }
    strips_first_space_ = start == 1;
    return absl::OkStatus();
  }
  return decoder.Unsupported("type", absl::StrCat("is ", Quote(type), ", not supported"));
}

absl::StatusOr<JsonTokenTexts> JsonTokenTexts::Read(const JsonValue& root,
                                                    const std::string& label) {
  const JsonConfigReader reader(root, label);
  VITRINE_ASSIGN_OR_RETURN(const std::optional<JsonConfigReader> decoder, reader.Object("decoder"));
  if (!decoder) return reader.Unsupported("decoder", "is missing, which is not supported");
  VITRINE_ASSIGN_OR_RETURN(const std::string type, decoder->String("type"));
  JsonTokenTexts texts;
  if (type != "Sequence") {
    VITRINE_RETURN_IF_ERROR(texts.Apply(*decoder));
    return texts;
  }
  const JsonValue* list = root.Find("decoder")->Find("decoders");
  if (list == nullptr || list->AsArray() == nullptr) {
    return decoder->Error("decoders", "is missing or not an array");
  }
  for (const JsonValue& item : *list->AsArray()) {
    VITRINE_RETURN_IF_ERROR(
        texts.Apply(JsonConfigReader(item, absl::StrCat(label, ": decoder.decoders"))));
  }
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
