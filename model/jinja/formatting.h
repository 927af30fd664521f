// Python's two ways to format strings.
#pragma once

#include <string_view>

#include "absl/status/statusor.h"
#include "model/jinja/errors.h"
#include "model/jinja/value.h"

namespace vitrine::jinja {

// format % arguments
absl::StatusOr<Value> PercentFormat(const Value& format, const Value& arguments, Budget& budget);
// format.format(*positional, **named); fields may have indices and attributes of dictionaries.
absl::StatusOr<Value> BraceFormat(const Value& format, const Arguments& arguments, Budget& budget);

}  // namespace vitrine::jinja
