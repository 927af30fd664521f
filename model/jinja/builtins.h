// What templates find without defining it: filters, tests, functions, and methods of values.
#pragma once

#include <initializer_list>
#include <span>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "model/jinja/value.h"

namespace vitrine::jinja {

// `self` is the input of a filter or test and the object of a method; missing for functions. Tests
// give a bool.
using Builtin = absl::StatusOr<Value> (*)(Interpreter& interpreter, const Value& self,
                                          const Arguments& arguments);

// Null when there is none of that name.
Builtin FindFilter(std::string_view name);
Builtin FindTest(std::string_view name);
Builtin FindFunction(std::string_view name);
// Of strings, lists, tuples, dictionaries and numbers.
Builtin FindMethod(const Value& value, std::string_view name);
// Whether values of jinja2 or Python have it and this interpreter lacks it.
bool IsMissingFilter(std::string_view name);
bool IsMissingMethod(std::string_view name);
bool IsMissingFunction(std::string_view name);

// A part of the above; tables are sorted by name.
struct NamedBuiltin {
  std::string_view name;
  Builtin builtin;
};
using BuiltinTable = std::span<const NamedBuiltin>;
Builtin FindIn(BuiltinTable table, std::string_view name);

// `arguments` in the order of `names`, missing where not given. An error for more of them, for
// unknown names, and when one of the first `required` is missing.
absl::StatusOr<std::vector<Value>> Bind(const Arguments& arguments,
                                        std::initializer_list<std::string_view> names,
                                        size_t required = 0);

}  // namespace vitrine::jinja
