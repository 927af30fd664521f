// The section decoder of tokenizer.json, as a function from the text of a token to its bytes.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "model/json.h"
#include "model/json_config.h"

namespace vitrine {

class JsonTokenTexts {
 public:
  // `root` is the whole file, an object; `label` names it. UNIMPLEMENTED names a decoder that is
  // not supported.
  static absl::StatusOr<JsonTokenTexts> Read(const JsonValue& root, const std::string& label);

  // Tokens are written in the byte alphabet.
  bool is_byte_level() const { return is_byte_level_; }

  // Whether a token of this text stands for the byte that it names.
  bool IsByteToken(std::string_view text) const;

  // The bytes of a token of the model, and of one that was added.
  std::string BytesOf(std::string_view text) const;
  std::string BytesOfAdded(std::string_view text) const;

  // The text that ids begin has a space in front that is not its own.
  bool strips_first_space() const { return strips_first_space_; }

 private:
  absl::Status Apply(const JsonConfigReader& decoder);

  bool is_byte_level_ = false;
  bool has_byte_tokens_ = false;
  bool strips_first_space_ = false;
  std::string space_;  // Stands for a space; may be empty: nothing does.
};

}  // namespace vitrine
