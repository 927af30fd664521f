// The tables behind builtins.h, each from the file that implements it.
#pragma once

#include "model/jinja/builtins.h"

namespace vitrine::jinja {

BuiltinTable TextFilters();
BuiltinTable SequenceFilters();
BuiltinTable Tests();
BuiltinTable Functions();
BuiltinTable StringMethods();
BuiltinTable DictMethods();
BuiltinTable ListMethods();

// What filters and methods share.

// str.replace: `count` below 0 is no limit. A replacement is as trusted as what it replaces.
absl::StatusOr<Value> ReplaceText(const Text& text, const Text& old, const Text& replacement,
                                  int64_t count, Interpreter& interpreter);
absl::StatusOr<Value> JoinTexts(const Text& separator, const std::vector<Value>& items,
                                Interpreter& interpreter);
// str.center and its kin; `align` is '<', '>' or '^'.
absl::StatusOr<Value> PadText(const Text& text, int64_t width, char align, std::string_view fill,
                              Interpreter& interpreter);
// str.splitlines()
absl::StatusOr<std::vector<Text>> SplitLines(const Text& text, bool keep_ends,
                                             Interpreter& interpreter);

// The integer of an argument, or `absent` where it is missing or None.
absl::StatusOr<int64_t> IntOr(const Value& argument, int64_t absent);

}  // namespace vitrine::jinja
