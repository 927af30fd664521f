// Template text to a tree.
#pragma once

#include <memory>
#include <string_view>

#include "absl/status/statusor.h"
#include "model/jinja/ast.h"

namespace vitrine::jinja {

inline constexpr size_t kMaxTemplateBytes = 1 << 20;

// INVALID_ARGUMENT: a breach of the grammar. UNIMPLEMENTED: a statement, filter, test, function or
// method that jinja2 or transformers have and this interpreter lacks. What they lack as well is an
// error only when it is reached, as there. Both name the line.
absl::StatusOr<std::unique_ptr<const Template>> Parse(std::string_view source);

}  // namespace vitrine::jinja
