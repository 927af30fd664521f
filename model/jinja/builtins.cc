#include "model/jinja/builtins.h"

#include <algorithm>

#include "model/jinja/builtin_tables.h"
#include "model/jinja/errors.h"

namespace vitrine::jinja {
namespace {

// What jinja2, transformers or Python's types have beyond the tables.
constexpr std::string_view kMissingFilters[] = {"filesizeformat", "pprint",   "random", "striptags",
                                                "urlize",         "wordwrap", "xmlattr"};
constexpr std::string_view kMissingFunctions[] = {"lipsum"};
constexpr std::string_view kMissingMethods[] = {
    "as_integer_ratio", "bit_count",  "bit_length", "conjugate", "encode", "expandtabs",
    "format_map",       "from_bytes", "fromhex",    "fromkeys",  "hex",    "is_integer",
    "maketrans",        "to_bytes",   "translate"};

template <size_t n>
bool IsIn(const std::string_view (&names)[n], std::string_view name) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

}  // namespace

Builtin FindIn(BuiltinTable table, std::string_view name) {
  const auto found = std::lower_bound(
      table.begin(), table.end(), name,
      [](const NamedBuiltin& row, std::string_view wanted) { return row.name < wanted; });
  return found != table.end() && found->name == name ? found->builtin : nullptr;
}

Builtin FindFilter(std::string_view name) {
  if (const Builtin filter = FindIn(TextFilters(), name)) return filter;
  return FindIn(SequenceFilters(), name);
}

Builtin FindTest(std::string_view name) { return FindIn(Tests(), name); }

Builtin FindFunction(std::string_view name) { return FindIn(Functions(), name); }

Builtin FindMethod(const Value& value, std::string_view name) {
  switch (value.kind()) {
    case Value::Kind::kString:
      return FindIn(StringMethods(), name);
    case Value::Kind::kDict:
      return FindIn(DictMethods(), name);
    case Value::Kind::kList:
    case Value::Kind::kTuple:
      return FindIn(ListMethods(), name);
    default:
      return nullptr;
  }
}

bool IsMissingFilter(std::string_view name) { return IsIn(kMissingFilters, name); }
bool IsMissingMethod(std::string_view name) { return IsIn(kMissingMethods, name); }
bool IsMissingFunction(std::string_view name) { return IsIn(kMissingFunctions, name); }

absl::StatusOr<std::vector<Value>> Bind(const Arguments& arguments,
                                        std::initializer_list<std::string_view> names,
                                        size_t required) {
  std::vector<Value> bound(names.size());
  if (arguments.positional.size() > names.size()) {
    return EvaluationError({"takes at most ", std::to_string(names.size()), " arguments"});
  }
  std::copy(arguments.positional.begin(), arguments.positional.end(), bound.begin());
  for (const auto& [name, value] : arguments.named) {
    const auto* const found = std::find(names.begin(), names.end(), name);
    if (found == names.end()) return EvaluationError({"an argument of that name is not taken"});
    Value& slot = bound[static_cast<size_t>(found - names.begin())];
    if (!slot.is_missing()) return EvaluationError({"an argument is given twice"});
    slot = value;
  }
  for (size_t i = 0; i < required; ++i) {
    if (bound[i].is_missing()) {
      return EvaluationError({"the argument '", names.begin()[i], "' is missing"});
    }
  }
  return bound;
}

}  // namespace vitrine::jinja
