#include "model/jinja/objects.h"

#include <algorithm>

#include "model/jinja/errors.h"
#include "model/jinja/operators.h"
#include "model/status.h"

namespace vitrine::jinja {
namespace {

Value MethodOf(Builtin method, Object& object) {
  return Value::Of(std::make_shared<Function>(method, Value::Of(object.shared_from_this())));
}

absl::StatusOr<Value> LoopCycle(Interpreter& /*interpreter*/, const Value& self,
                                const Arguments& arguments) {
  return static_cast<Loop&>(self.object()).Cycle(arguments);
}

absl::StatusOr<Value> LoopChanged(Interpreter& interpreter, const Value& self,
                                  const Arguments& arguments) {
  return static_cast<Loop&>(self.object()).Changed(interpreter, arguments);
}

absl::StatusOr<Value> CyclerNext(Interpreter& /*interpreter*/, const Value& self,
                                 const Arguments& /*arguments*/) {
  return static_cast<Cycler&>(self.object()).Next();
}

absl::StatusOr<Value> CyclerReset(Interpreter& /*interpreter*/, const Value& self,
                                  const Arguments& /*arguments*/) {
  static_cast<Cycler&>(self.object()).Reset();
  return Value::None();
}

}  // namespace

std::optional<Value> Namespace::Attribute(std::string_view name) {
  for (const auto& [key, value] : attributes_) {
    if (key == name) return value;
  }
  return std::nullopt;
}

void Namespace::Set(std::string_view name, Value value) {
  for (auto& [key, current] : attributes_) {
    if (key != name) continue;
    current = std::move(value);
    return;
  }
  attributes_.emplace_back(std::string(name), std::move(value));
}

std::optional<Value> Macro::Attribute(std::string_view name) {
  if (name == "name") return Value::Literal(definition_.name);
  return std::nullopt;
}

absl::StatusOr<Value> Macro::Call(Interpreter& interpreter, const Arguments& arguments) {
  return interpreter.CallMacro(definition_, body_, scope_, arguments);
}

std::optional<Value> Loop::Attribute(std::string_view name) {
  const auto index = static_cast<int64_t>(index_);
  const auto length = static_cast<int64_t>(elements_.size());
  if (name == "index") return Value::Int(index + 1);
  if (name == "index0") return Value::Int(index);
  if (name == "revindex") return Value::Int(length - index);
  if (name == "revindex0") return Value::Int(length - index - 1);
  if (name == "first") return Value::Bool(index == 0);
  if (name == "last") return Value::Bool(index + 1 == length);
  if (name == "length") return Value::Int(length);
  if (name == "depth") return Value::Int(depth_ + 1);
  if (name == "depth0") return Value::Int(depth_);
  if (name == "previtem") {
    return index > 0 ? elements_[index_ - 1] : Value::Undefined("there is no previous item");
  }
  if (name == "nextitem") {
    return index + 1 < length ? elements_[index_ + 1] : Value::Undefined("there is no next item");
  }
  if (name == "cycle") return MethodOf(LoopCycle, *this);
  if (name == "changed") return MethodOf(LoopChanged, *this);
  return std::nullopt;
}

absl::StatusOr<Value> Loop::Call(Interpreter& interpreter, const Arguments& arguments) {
  if (!statement_.is_recursive || scope_ == nullptr) {
    return EvaluationError({"the loop must have the 'recursive' marker to be called recursively"});
  }
  VITRINE_ASSIGN_OR_RETURN(const std::vector<Value> bound, Bind(arguments, {"iterable"}, 1));
  VITRINE_ASSIGN_OR_RETURN(std::vector<Value> elements, Elements(bound[0], interpreter.budget()));
  Text out;
  VITRINE_RETURN_IF_ERROR(
      interpreter.RunLoop(statement_, std::move(elements), scope_, depth_ + 1, out));
  return Value::String(std::move(out));
}

absl::StatusOr<Value> Loop::Cycle(const Arguments& arguments) const {
  if (arguments.positional.empty()) return EvaluationError({"no items for cycling given"});
  return arguments.positional[index_ % arguments.positional.size()];
}

Value Loop::Changed(Interpreter& interpreter, const Arguments& arguments) {
  const bool is_same =
      last_changed_ &&
      std::equal(last_changed_->begin(), last_changed_->end(), arguments.positional.begin(),
                 arguments.positional.end(),
                 [&](const Value& a, const Value& b) { return Equal(a, b, interpreter.budget()); });
  if (!is_same) last_changed_ = arguments.positional;
  return Value::Bool(!is_same);
}

std::optional<Value> Cycler::Attribute(std::string_view name) {
  if (name == "current") return values_[index_];
  if (name == "next") return MethodOf(CyclerNext, *this);
  if (name == "reset") return MethodOf(CyclerReset, *this);
  return std::nullopt;
}

Value Cycler::Next() {
  Value value = values_[index_];
  index_ = (index_ + 1) % values_.size();
  return value;
}

absl::StatusOr<Value> Joiner::Call(Interpreter& /*interpreter*/, const Arguments& /*arguments*/) {
  if (std::exchange(was_called_, true)) return separator_;
  return Value::Literal("");
}

}  // namespace vitrine::jinja
