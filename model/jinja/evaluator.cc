// Expressions: the other half of interpreter.h.
#include <algorithm>
#include <optional>
#include <utility>

#include "model/jinja/builtins.h"
#include "model/jinja/interpreter.h"
#include "model/jinja/objects.h"
#include "model/jinja/operators.h"
#include "model/jinja/printing.h"
#include "model/status.h"

namespace vitrine::jinja {
namespace {

using Kind = Expression::Kind;

// jinja2's immutable sandbox hides what would change a list or a dictionary.
bool ChangesItsObject(const Value& value, std::string_view name) {
  const auto is_one_of = [&](std::initializer_list<std::string_view> names) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  if (value.is(Value::Kind::kList)) {
    return is_one_of({"append", "clear", "extend", "insert", "pop", "remove", "reverse", "sort"});
  }
  return value.is(Value::Kind::kDict) &&
         is_one_of({"clear", "pop", "popitem", "setdefault", "update"});
}

Value Unsafe(const Value& value, std::string_view name) {
  return Value::Undefined(
      Concat({"access to attribute '", name, "' of '", value.type_name(), "' object is unsafe."}));
}

Value NoAttribute(const Value& value, std::string_view name) {
  if (value.is_none()) return Value::Undefined(Concat({"'None' has no attribute '", name, "'"}));
  return Value::Undefined(
      Concat({"'", value.type_name(), " object' has no attribute '", name, "'"}));
}

// What Python's getattr would find, without what the sandbox hides.
std::optional<Value> PythonAttribute(const Value& value, std::string_view name) {
  if (name.starts_with("__") || ChangesItsObject(value, name)) return Unsafe(value, name);
  if (value.is(Value::Kind::kObject)) return value.object().Attribute(name);
  if (value.is(Value::Kind::kTuple) && value.list().is_group) {
    if (name == "grouper") return value.list().items[0];
    if (name == "list") return value.list().items[1];
  }
  if (const Builtin method = FindMethod(value, name)) {
    return Value::Of(std::make_shared<Function>(method, value));
  }
  return std::nullopt;
}

}  // namespace

absl::StatusOr<Value> Interpreter::Attribute(const Value& value, std::string_view name) {
  if (value.is_undefined()) return EvaluationError({value.error()});
  if (std::optional<Value> found = PythonAttribute(value, name)) return *std::move(found);
  if (!value.is(Value::Kind::kDict)) return NoAttribute(value, name);
  const Value* const member = value.dict().Find(name);
  return member != nullptr ? *member : NoAttribute(value, name);
}

absl::StatusOr<Value> Interpreter::Subscript(const Value& value, const Value& key) {
  VITRINE_ASSIGN_OR_RETURN(Value item, Item(value, key, budget_));
  if (!item.is_undefined() || !key.is_string()) return item;
  // Names that the conversation brings stay out of error messages.
  if (key.text().source() != kTemplate && key.view().starts_with("__")) return item;
  if (std::optional<Value> found = PythonAttribute(value, key.view())) return *std::move(found);
  return item;
}

absl::StatusOr<Value> Interpreter::Call(const Value& callee, const Arguments& arguments) {
  if (callee.is_undefined()) return EvaluationError({callee.error()});
  if (!callee.is(Value::Kind::kObject)) {
    return EvaluationError({"'", callee.type_name(), "' object is not callable"});
  }
  return callee.object().Call(*this, arguments);
}

absl::StatusOr<Value> Interpreter::Evaluate(const Expression& node, const ScopePtr& scope) {
  if (node.kind == Kind::kConstant) return node.constant;
  VITRINE_RETURN_IF_ERROR(budget_.Step());
  line_ = node.line;
  if (node.kind == Kind::kName) return EvaluateName(node, *scope);
  VITRINE_RETURN_IF_ERROR(budget_.Enter());
  absl::StatusOr<Value> value =
      node.kind >= Kind::kAttribute ? EvaluateAccess(node, scope) : EvaluateOperators(node, scope);
  budget_.Leave();
  return value;
}

absl::StatusOr<Value> Interpreter::EvaluateOperators(const Expression& node,
                                                     const ScopePtr& scope) {
  switch (node.kind) {
    case Kind::kList:
    case Kind::kTuple:
      return EvaluateSequence(node, scope);
    case Kind::kDict:
      return EvaluateDict(node, scope);
    case Kind::kConditional: {
      VITRINE_ASSIGN_OR_RETURN(const Value condition, Evaluate(*node.children[0], scope));
      if (Truth(condition)) return Evaluate(*node.children[1], scope);
      if (node.children.size() == 3) return Evaluate(*node.children[2], scope);
      return Value::Undefined("an inline if was false and has no else");
    }
    case Kind::kAnd:
    case Kind::kOr: {
      VITRINE_ASSIGN_OR_RETURN(Value left, Evaluate(*node.children[0], scope));
      if (Truth(left) == (node.kind == Kind::kOr)) return left;
      return Evaluate(*node.children[1], scope);
    }
    case Kind::kNot: {
      VITRINE_ASSIGN_OR_RETURN(const Value operand, Evaluate(*node.children[0], scope));
      return Value::Bool(!Truth(operand));
    }
    case Kind::kCompare:
      return EvaluateCompare(node, scope);
    case Kind::kConcat:
      return EvaluateConcat(node, scope);
    case Kind::kBinary: {
      VITRINE_ASSIGN_OR_RETURN(const Value left, Evaluate(*node.children[0], scope));
      VITRINE_ASSIGN_OR_RETURN(const Value right, Evaluate(*node.children[1], scope));
      return Arithmetic(node.operators[0], left, right, budget_);
    }
    default: {
      VITRINE_ASSIGN_OR_RETURN(const Value operand, Evaluate(*node.children[0], scope));
      return Sign(node.operators[0], operand);
    }
  }
}

absl::StatusOr<Value> Interpreter::EvaluateAccess(const Expression& node, const ScopePtr& scope) {
  switch (node.kind) {
    case Kind::kAttribute: {
      VITRINE_ASSIGN_OR_RETURN(const Value value, Evaluate(*node.children[0], scope));
      return Attribute(value, node.name);
    }
    case Kind::kItem: {
      VITRINE_ASSIGN_OR_RETURN(const Value value, Evaluate(*node.children[0], scope));
      VITRINE_ASSIGN_OR_RETURN(const Value key, Evaluate(*node.children[1], scope));
      return Subscript(value, key);
    }
    case Kind::kSlice:
      return EvaluateSlice(node, scope);
    case Kind::kCall:
      return EvaluateCall(node, scope);
    default:
      return EvaluateBuiltin(node, scope);
  }
}

absl::StatusOr<Value> Interpreter::EvaluateName(const Expression& node, const Scope& scope) const {
  if (const Value* const value = scope.Find(node.symbol)) return *value;
  if (const Builtin function = FindFunction(node.name)) {
    return Value::Of(std::make_shared<Function>(function, Value()));
  }
  return Value::Undefined(Concat({"'", node.name, "' is undefined"}));
}

absl::StatusOr<Value> Interpreter::EvaluateSequence(const Expression& node, const ScopePtr& scope) {
  std::vector<Value> items;
  for (const ExpressionPtr& child : node.children) {
    VITRINE_ASSIGN_OR_RETURN(Value item, Evaluate(*child, scope));
    items.push_back(std::move(item));
  }
  return node.kind == Kind::kList ? MakeList(std::move(items), budget_)
                                  : MakeTuple(std::move(items), budget_);
}

absl::StatusOr<Value> Interpreter::EvaluateDict(const Expression& node, const ScopePtr& scope) {
  DictNode dict;
  for (size_t i = 0; i < node.children.size(); i += 2) {
    VITRINE_ASSIGN_OR_RETURN(Value key, Evaluate(*node.children[i], scope));
    VITRINE_ASSIGN_OR_RETURN(Value value, Evaluate(*node.children[i + 1], scope));
    if (!KeyOf(key)) return EvaluationError({"unhashable type: '", key.type_name(), "'"});
    dict.Set(std::move(key), std::move(value));
  }
  return MakeDict(std::move(dict), budget_);
}

absl::StatusOr<Value> Interpreter::EvaluateCompare(const Expression& node, const ScopePtr& scope) {
  VITRINE_ASSIGN_OR_RETURN(Value left, Evaluate(*node.children[0], scope));
  for (size_t i = 0; i < node.operators.size(); ++i) {
    VITRINE_ASSIGN_OR_RETURN(Value right, Evaluate(*node.children[i + 1], scope));
    VITRINE_ASSIGN_OR_RETURN(const bool holds, Compare(node.operators[i], left, right, budget_));
    if (!holds) return Value::Bool(false);
    left = std::move(right);
  }
  return Value::Bool(true);
}

absl::StatusOr<Value> Interpreter::EvaluateConcat(const Expression& node, const ScopePtr& scope) {
  Text text;
  for (const ExpressionPtr& child : node.children) {
    VITRINE_ASSIGN_OR_RETURN(const Value value, Evaluate(*child, scope));
    VITRINE_ASSIGN_OR_RETURN(const Text part, Str(value, budget_));
    VITRINE_RETURN_IF_ERROR(budget_.Allocate(part.size()));
    text.Append(part);
  }
  return Value::String(std::move(text));
}

absl::StatusOr<Value> Interpreter::EvaluateSlice(const Expression& node, const ScopePtr& scope) {
  VITRINE_ASSIGN_OR_RETURN(const Value value, Evaluate(*node.children[0], scope));
  Value bounds[3];
  for (size_t i = 0; i < 3; ++i) {
    bounds[i] = Value::None();
    if (node.children[i + 1] == nullptr) continue;
    VITRINE_ASSIGN_OR_RETURN(bounds[i], Evaluate(*node.children[i + 1], scope));
  }
  return Slice(value, bounds[0], bounds[1], bounds[2], budget_);
}

absl::StatusOr<Arguments> Interpreter::EvaluateArguments(const CallArguments& arguments,
                                                         const ScopePtr& scope) {
  Arguments values;
  for (const ExpressionPtr& argument : arguments.positional) {
    VITRINE_ASSIGN_OR_RETURN(Value value, Evaluate(*argument, scope));
    values.positional.push_back(std::move(value));
  }
  for (const auto& [name, argument] : arguments.named) {
    VITRINE_ASSIGN_OR_RETURN(Value value, Evaluate(*argument, scope));
    values.named.emplace_back(name, std::move(value));
  }
  if (arguments.star != nullptr) {
    VITRINE_ASSIGN_OR_RETURN(const Value list, Evaluate(*arguments.star, scope));
    VITRINE_ASSIGN_OR_RETURN(const std::vector<Value> elements, Elements(list, budget_));
    values.positional.insert(values.positional.end(), elements.begin(), elements.end());
  }
  if (arguments.star_star != nullptr) {
    VITRINE_ASSIGN_OR_RETURN(const Value dict, Evaluate(*arguments.star_star, scope));
    if (!dict.is(Value::Kind::kDict)) {
      return EvaluationError({"argument after ** must be a mapping, not ", dict.type_name()});
    }
    VITRINE_RETURN_IF_ERROR(budget_.Allocate(dict.dict().entries.size() * sizeof(Value)));
    for (const auto& [key, value] : dict.dict().entries) {
      if (!key.is_string()) return EvaluationError({"keywords must be strings"});
      values.named.emplace_back(key.view(), value);
    }
  }
  return values;
}

absl::StatusOr<Value> Interpreter::EvaluateCall(const Expression& node, const ScopePtr& scope) {
  VITRINE_ASSIGN_OR_RETURN(const Value callee, Evaluate(*node.children[0], scope));
  VITRINE_ASSIGN_OR_RETURN(const Arguments arguments, EvaluateArguments(node.arguments, scope));
  line_ = node.line;
  return Call(callee, arguments);
}

absl::StatusOr<Value> Interpreter::EvaluateBuiltin(const Expression& node, const ScopePtr& scope) {
  Value input = filter_block_input_;
  if (node.children[0] != nullptr) {
    VITRINE_ASSIGN_OR_RETURN(input, Evaluate(*node.children[0], scope));
  }
  VITRINE_ASSIGN_OR_RETURN(const Arguments arguments, EvaluateArguments(node.arguments, scope));
  line_ = node.line;
  if (node.builtin == nullptr) {
    return EvaluationError(
        {"there is no ", node.kind == Kind::kFilter ? "filter" : "test", " '", node.name, "'"});
  }
  return node.builtin(*this, input, arguments);
}

}  // namespace vitrine::jinja
