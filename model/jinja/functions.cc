// Functions that templates find: jinja2's own and those that transformers adds.
#include <ctime>
#include <memory>

#include "model/jinja/builtin_tables.h"
#include "model/jinja/errors.h"
#include "model/jinja/interpreter.h"
#include "model/jinja/objects.h"
#include "model/jinja/operators.h"
#include "model/jinja/printing.h"
#include "model/status.h"

namespace vitrine::jinja {
namespace {

using Result = absl::StatusOr<Value>;

constexpr int64_t kMaxRange = 100'000;  // As in jinja2's sandbox.
constexpr size_t kMaxDateFormat = 256;

Result Range(Interpreter& /*interpreter*/, const Value& /*self*/, const Arguments& arguments) {
  if (!arguments.named.empty()) return EvaluationError({"range() takes no keyword arguments"});
  VITRINE_ASSIGN_OR_RETURN(const std::vector<Value> bound,
                           Bind(arguments, {"start", "stop", "step"}, 1));
  for (const Value& bound_value : bound) {
    if (bound_value.is_missing() || bound_value.is_integer()) continue;
    return EvaluationError({"range() takes integers, not ", bound_value.type_name()});
  }
  const bool has_start = !bound[1].is_missing();
  const int64_t start = has_start ? bound[0].as_int() : 0;
  const int64_t stop = has_start ? bound[1].as_int() : bound[0].as_int();
  const int64_t step = bound[2].is_missing() ? 1 : bound[2].as_int();
  if (step == 0) return EvaluationError({"range() arg 3 must not be zero"});
  constexpr int64_t kMaxBound = int64_t{1} << 60;  // So that no difference overflows.
  for (const int64_t value : {start, stop, step}) {
    if (value > kMaxBound || value < -kMaxBound) {
      return EvaluationError({"range() takes integers below 2^60"});
    }
  }
  if (RangeNode{start, stop, step}.size() > kMaxRange) {
    return OverBudget({"a range is larger than 100000"});
  }
  return Value::Range(start, stop, step);
}

// The entries of dict(mapping or pairs, **named).
absl::StatusOr<DictNode> Entries(Interpreter& interpreter, const Arguments& arguments) {
  DictNode dict;
  if (arguments.positional.size() > 1) return EvaluationError({"expected at most 1 argument"});
  if (!arguments.positional.empty() && arguments.positional[0].is(Value::Kind::kDict)) {
    dict = arguments.positional[0].dict();
    VITRINE_RETURN_IF_ERROR(interpreter.budget().Allocate(dict.entries.size() * 2 * sizeof(Value)));
  } else if (!arguments.positional.empty()) {
    VITRINE_ASSIGN_OR_RETURN(const std::vector<Value> pairs,
                             Elements(arguments.positional[0], interpreter.budget()));
    for (const Value& pair : pairs) {
      VITRINE_ASSIGN_OR_RETURN(std::vector<Value> parts, Elements(pair, interpreter.budget()));
      if (parts.size() != 2 || !KeyOf(parts[0])) {
        return EvaluationError({"a dictionary is made of pairs of a hashable key and a value"});
      }
      interpreter.budget().Charge(1);
      dict.Set(std::move(parts[0]), std::move(parts[1]));
    }
  }
  for (const auto& [name, value] : arguments.named) dict.Set(Value::Literal(name), value);
  return dict;
}

Result MakeDictionary(Interpreter& interpreter, const Value& /*self*/, const Arguments& arguments) {
  VITRINE_ASSIGN_OR_RETURN(DictNode dict, Entries(interpreter, arguments));
  return MakeDict(std::move(dict), interpreter.budget());
}

Result MakeNamespace(Interpreter& interpreter, const Value& /*self*/, const Arguments& arguments) {
  VITRINE_ASSIGN_OR_RETURN(const DictNode dict, Entries(interpreter, arguments));
  VITRINE_RETURN_IF_ERROR(interpreter.budget().Allocate(sizeof(Namespace)));
  const auto result = std::make_shared<Namespace>();
  interpreter.Adopt(result);
  for (const auto& [key, value] : dict.entries) {
    if (key.is_string()) result->Set(key.view(), value);
  }
  return Value::Of(result);
}

Result MakeCycler(Interpreter& /*interpreter*/, const Value& /*self*/, const Arguments& arguments) {
  if (arguments.positional.empty())
    return EvaluationError({"at least one item has to be provided"});
  return Value::Of(std::make_shared<Cycler>(arguments.positional));
}

Result MakeJoiner(Interpreter& /*interpreter*/, const Value& /*self*/, const Arguments& arguments) {
  VITRINE_ASSIGN_OR_RETURN(const std::vector<Value> bound, Bind(arguments, {"sep"}));
  return Value::Of(
      std::make_shared<Joiner>(bound[0].is_missing() ? Value::Literal(", ") : bound[0]));
}

Result RaiseException(Interpreter& interpreter, const Value& /*self*/, const Arguments& arguments) {
  VITRINE_ASSIGN_OR_RETURN(const std::vector<Value> bound, Bind(arguments, {"message"}, 1));
  VITRINE_ASSIGN_OR_RETURN(const Text text, Str(bound[0], interpreter.budget()));
  std::string literal;
  size_t begin = 0;
  for (const Text::Run& run : text.runs()) {
    literal += run.source == kTemplate ? text.view().substr(begin, run.end - begin) : "...";
    begin = run.end;
  }
  return Raised(literal, text.view());
}

Result StrftimeNow(Interpreter& interpreter, const Value& /*self*/, const Arguments& arguments) {
  VITRINE_ASSIGN_OR_RETURN(const std::vector<Value> bound, Bind(arguments, {"format"}, 1));
  if (!bound[0].is_string()) return EvaluationError({"strftime_now() takes a string"});
  if (bound[0].view().size() > kMaxDateFormat || bound[0].view().find('\0') != std::string::npos) {
    return EvaluationError({"strftime_now() takes a format of at most 256 bytes without NUL"});
  }
  // The dot makes an empty result, which strftime cannot tell from a buffer too small, not empty.
  const std::string format = Concat({bound[0].view(), "."});
  std::string text(64 * kMaxDateFormat, '\0');
  const size_t size = std::strftime(text.data(), text.size(), format.c_str(), &interpreter.now());
  if (size == 0) return EvaluationError({"strftime_now() cannot print this format"});
  text.resize(size - 1);
  return Value::String(bound[0].text().Derive(std::move(text)));
}

}  // namespace

BuiltinTable Functions() {
  static constexpr NamedBuiltin kTable[] = {
      {"cycler", MakeCycler},
      {"dict", MakeDictionary},
      {"joiner", MakeJoiner},
      {"namespace", MakeNamespace},
      {"raise_exception", RaiseException},
      {"range", Range},
      {"strftime_now", StrftimeNow},
  };
  return kTable;
}

}  // namespace vitrine::jinja
