// Values as text: Python's str() and repr(), and json.dumps.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "model/jinja/errors.h"
#include "model/jinja/text.h"
#include "model/jinja/value.h"

namespace vitrine::jinja {

// As repr(float): the fewest digits that read back as `value`.
std::string FloatText(double value);

// str(value). Numbers and the like count as written by the template: they cannot forge a token.
absl::StatusOr<Text> Str(const Value& value, Budget& budget);
absl::StatusOr<std::string> Repr(const Value& value, Budget& budget);

struct JsonStyle {
  bool ensure_ascii = false;
  int indent = -1;          // Below 0: one line.
  std::string indent_text;  // Instead of `indent` spaces; for json.dumps(indent="\t").
  std::string item_separator = ", ";
  std::string key_separator = ": ";
  bool sort_keys = false;
};

// json.dumps(value) as transformers' tojson calls it: nothing is escaped for HTML.
absl::StatusOr<Text> JsonText(const Value& value, const JsonStyle& style, Budget& budget);

}  // namespace vitrine::jinja
