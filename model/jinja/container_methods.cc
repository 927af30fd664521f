// Methods of dictionaries, lists and tuples: those that change nothing.
#include "model/jinja/builtin_tables.h"
#include "model/jinja/errors.h"
#include "model/jinja/interpreter.h"
#include "model/jinja/operators.h"
#include "model/status.h"

namespace vitrine::jinja {
namespace {

using Result = absl::StatusOr<Value>;

Result Get(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  VITRINE_ASSIGN_OR_RETURN(const std::vector<Value> bound, Bind(arguments, {"key", "default"}, 1));
  if (!KeyOf(bound[0])) return EvaluationError({"unhashable type: '", bound[0].type_name(), "'"});
  VITRINE_RETURN_IF_ERROR(interpreter.budget().Step());
  const Value* const found = self.dict().Find(bound[0]);
  if (found != nullptr) return *found;
  return bound[1].is_missing() ? Value::None() : bound[1];
}

enum class Part { kKeys, kValues, kItems };

template <Part part>
Result View(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  VITRINE_RETURN_IF_ERROR(Bind(arguments, {}).status());
  constexpr size_t kEntryBytes = (part == Part::kItems ? 3 : 1) * sizeof(Value);
  VITRINE_RETURN_IF_ERROR(interpreter.budget().Allocate(self.dict().entries.size() * kEntryBytes));
  std::vector<Value> parts;
  for (const auto& [key, value] : self.dict().entries) {
    parts.push_back(part == Part::kItems ? Value::Tuple({key, value})
                                         : (part == Part::kKeys ? key : value));
  }
  constexpr std::string_view kNames[] = {"dict_keys", "dict_values", "dict_items"};
  return Value::View(kNames[static_cast<int>(part)], std::move(parts));
}

Result Copy(Interpreter& /*interpreter*/, const Value& self, const Arguments& arguments) {
  VITRINE_RETURN_IF_ERROR(Bind(arguments, {}).status());
  return self;
}

Result Index(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  VITRINE_ASSIGN_OR_RETURN(const std::vector<Value> bound,
                           Bind(arguments, {"value", "start", "stop"}, 1));
  VITRINE_ASSIGN_OR_RETURN(int64_t start, IntOr(bound[1], 0));
  const std::vector<Value>& items = self.list().items;
  const auto size = static_cast<int64_t>(items.size());
  VITRINE_ASSIGN_OR_RETURN(int64_t stop, IntOr(bound[2], size));
  start = std::max<int64_t>(start < 0 ? start + size : start, 0);
  stop = std::min(stop < 0 ? stop + size : stop, size);
  for (int64_t i = start; i < stop; ++i) {
    if (Equal(items[static_cast<size_t>(i)], bound[0], interpreter.budget())) return Value::Int(i);
  }
  return EvaluationError({"the value is not in the ", self.type_name()});
}

Result Count(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  VITRINE_ASSIGN_OR_RETURN(const std::vector<Value> bound, Bind(arguments, {"value"}, 1));
  int64_t count = 0;
  for (const Value& item : self.list().items) {
    count += Equal(item, bound[0], interpreter.budget()) ? 1 : 0;
  }
  return Value::Int(count);
}

}  // namespace

BuiltinTable DictMethods() {
  static constexpr NamedBuiltin kTable[] = {
      {"copy", Copy},
      {"get", Get},
      {"items", View<Part::kItems>},
      {"keys", View<Part::kKeys>},
      {"values", View<Part::kValues>},
  };
  return kTable;
}

BuiltinTable ListMethods() {
  static constexpr NamedBuiltin kTable[] = {
      {"copy", Copy},
      {"count", Count},
      {"index", Index},
  };
  return kTable;
}

}  // namespace vitrine::jinja
