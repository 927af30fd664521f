#include "model/jinja/interpreter.h"

#include <algorithm>

#include "model/jinja/builtins.h"
#include "model/jinja/objects.h"
#include "model/jinja/operators.h"
#include "model/jinja/printing.h"
#include "model/status.h"

namespace vitrine::jinja {
namespace {

using Kind = Statement::Kind;

// Leaves the level that it entered.
class Level {
 public:
  explicit Level(Budget& budget) : budget_(budget), status_(budget.Enter()) {}
  ~Level() { budget_.Leave(); }
  Level(const Level&) = delete;
  Level& operator=(const Level&) = delete;

  const absl::Status& status() const { return status_; }

 private:
  Budget& budget_;
  const absl::Status status_;
};

}  // namespace

const Value* Scope::Find(int symbol) const {
  for (const Scope* scope = this; scope != nullptr; scope = scope->parent.get()) {
    for (const auto& [name, value] : scope->variables) {
      if (name == symbol) return &value;
    }
  }
  return nullptr;
}

void Scope::Set(int symbol, Value value) {
  for (auto& [name, current] : variables) {
    if (name != symbol) continue;
    current = std::move(value);
    return;
  }
  variables.emplace_back(symbol, std::move(value));
}

Interpreter::Interpreter(const Template& tree, const Limits& limits, const std::tm& now)
    : tree_(tree), budget_(limits), now_(now) {}

Interpreter::~Interpreter() {
  for (const std::shared_ptr<Object>& object : adopted_) object->Clear();
}

absl::StatusOr<Text> Interpreter::Run(const Variables& variables) {
  const auto scope = std::make_shared<Scope>(nullptr);
  for (const auto& [name, value] : variables) {
    const auto symbol = std::find(tree_.symbols.begin(), tree_.symbols.end(), name);
    if (symbol == tree_.symbols.end()) continue;
    scope->Set(static_cast<int>(symbol - tree_.symbols.begin()), value);
  }
  // What the template sets may refer back to the scope that it is set in.
  const auto top = std::make_shared<Scope>(scope);
  Text out;
  const absl::Status status = Execute(tree_.body, top, out).status();
  for (const std::shared_ptr<Object>& object : adopted_) object->Clear();
  if (status.ok()) return out;
  return RaisedText(status) ? status : AtLine(status, line_);
}

absl::StatusOr<Interpreter::Flow> Interpreter::Execute(const Block& block, const ScopePtr& scope,
                                                       Text& out) {
  const Level level(budget_);
  VITRINE_RETURN_IF_ERROR(level.status());
  for (const auto& statement : block) {
    VITRINE_ASSIGN_OR_RETURN(const Flow flow, Execute(*statement, scope, out));
    if (flow != Flow::kNext) return flow;
  }
  return Flow::kNext;
}

absl::StatusOr<Interpreter::Flow> Interpreter::Execute(const Statement& statement,
                                                       const ScopePtr& scope, Text& out) {
  VITRINE_RETURN_IF_ERROR(budget_.Step());
  line_ = statement.line;
  absl::Status status;
  switch (statement.kind) {
    case Kind::kText:
      status = Print(statement.constant, out);
      break;
    case Kind::kPrint: {
      VITRINE_ASSIGN_OR_RETURN(const Value value, Evaluate(*statement.value, scope));
      status = Print(value, out);
      break;
    }
    case Kind::kIf:
      return ExecuteIf(statement, scope, out);
    case Kind::kFor:
      status = ExecuteFor(statement, scope, out);
      break;
    case Kind::kSet: {
      VITRINE_ASSIGN_OR_RETURN(const Value value, Evaluate(*statement.value, scope));
      status = Assign(statement.target, value, *scope);
      break;
    }
    case Kind::kSetBlock:
      status = ExecuteSetBlock(statement, scope);
      break;
    case Kind::kWith:
      return ExecuteWith(statement, scope, out);
    case Kind::kMacro: {
      const auto macro = std::make_shared<Macro>(statement.macro, statement.body, scope);
      Adopt(macro);
      VITRINE_RETURN_IF_ERROR(budget_.Allocate(sizeof(Macro)));
      scope->Set(statement.symbol, Value::Of(macro));
      break;
    }
    case Kind::kCall:
      status = ExecuteCall(statement, scope, out);
      break;
    case Kind::kFilter:
      status = ExecuteFilter(statement, scope, out);
      break;
    case Kind::kScope:
      return Execute(statement.body, std::make_shared<Scope>(scope), out);
    case Kind::kBreak:
      return Flow::kBreak;
    case Kind::kContinue:
      return Flow::kContinue;
  }
  if (!status.ok()) return status;
  return Flow::kNext;
}

absl::Status Interpreter::Print(const Value& value, Text& out) {
  if (value.is_string()) {
    VITRINE_RETURN_IF_ERROR(budget_.Output(value.view().size()));
    out.Append(value.text());
    return absl::OkStatus();
  }
  VITRINE_ASSIGN_OR_RETURN(const Text text, Str(value, budget_));
  VITRINE_RETURN_IF_ERROR(budget_.Output(text.size()));
  out.Append(text);
  return absl::OkStatus();
}

absl::StatusOr<Interpreter::Flow> Interpreter::ExecuteIf(const Statement& statement,
                                                         const ScopePtr& scope, Text& out) {
  for (const auto& [condition, body] : statement.branches) {
    VITRINE_ASSIGN_OR_RETURN(const Value value, Evaluate(*condition, scope));
    if (Truth(value)) return Execute(body, scope, out);
  }
  return Execute(statement.else_body, scope, out);
}

absl::Status Interpreter::ExecuteFor(const Statement& statement, const ScopePtr& scope, Text& out) {
  VITRINE_ASSIGN_OR_RETURN(const Value iterable, Evaluate(*statement.value, scope));
  VITRINE_ASSIGN_OR_RETURN(std::vector<Value> elements, Elements(iterable, budget_));
  return RunLoop(statement, std::move(elements), scope, 0, out);
}

// The elements that the condition of the loop keeps.
absl::StatusOr<std::vector<Value>> Interpreter::Select(const Statement& loop,
                                                       std::vector<Value> elements,
                                                       const ScopePtr& scope) {
  std::vector<Value> kept;
  for (Value& element : elements) {
    const auto inner = std::make_shared<Scope>(scope);
    VITRINE_RETURN_IF_ERROR(Assign(loop.target, element, *inner));
    VITRINE_ASSIGN_OR_RETURN(const Value condition, Evaluate(*loop.condition, inner));
    if (Truth(condition)) kept.push_back(std::move(element));
  }
  return kept;
}

absl::Status Interpreter::RunLoop(const Statement& loop, std::vector<Value> elements,
                                  const ScopePtr& scope, int depth, Text& out) {
  // Where nothing needs to know the number of elements, the condition is evaluated between the
  // iterations, whose assignments to namespaces it may see.
  const bool is_lazy = loop.condition != nullptr && !loop.uses_loop;
  if (loop.condition != nullptr && !is_lazy) {
    VITRINE_ASSIGN_OR_RETURN(elements, Select(loop, std::move(elements), scope));
  }
  const auto context =
      std::make_shared<Loop>(loop, std::move(elements), loop.is_recursive ? scope : nullptr, depth);
  if (loop.is_recursive) Adopt(context);
  const Value loop_value = Value::Of(context);
  bool has_run = false;
  for (size_t i = 0; i < context->elements().size(); ++i) {
    VITRINE_RETURN_IF_ERROR(budget_.Step());
    const auto inner = std::make_shared<Scope>(scope);
    VITRINE_RETURN_IF_ERROR(Assign(loop.target, context->elements()[i], *inner));
    if (is_lazy) {
      VITRINE_ASSIGN_OR_RETURN(const Value condition, Evaluate(*loop.condition, inner));
      if (!Truth(condition)) continue;
    }
    has_run = true;
    context->MoveTo(i);
    if (loop.uses_loop) inner->Set(kLoopSymbol, loop_value);
    VITRINE_ASSIGN_OR_RETURN(const Flow flow, Execute(loop.body, inner, out));
    if (flow == Flow::kBreak) break;
  }
  if (has_run || loop.else_body.empty()) return absl::OkStatus();
  return Execute(loop.else_body, std::make_shared<Scope>(scope), out).status();
}

absl::StatusOr<Value> Interpreter::Capture(const Block& block, const ScopePtr& scope) {
  Text out;
  VITRINE_RETURN_IF_ERROR(Execute(block, std::make_shared<Scope>(scope), out).status());
  VITRINE_RETURN_IF_ERROR(budget_.Allocate(out.size()));
  return Value::String(std::move(out));
}

absl::Status Interpreter::ExecuteSetBlock(const Statement& statement, const ScopePtr& scope) {
  VITRINE_ASSIGN_OR_RETURN(Value value, Capture(statement.body, scope));
  if (statement.value != nullptr) {
    filter_block_input_ = std::move(value);
    VITRINE_ASSIGN_OR_RETURN(value, Evaluate(*statement.value, scope));
  }
  return Assign(statement.target, value, *scope);
}

absl::StatusOr<Interpreter::Flow> Interpreter::ExecuteWith(const Statement& statement,
                                                           const ScopePtr& scope, Text& out) {
  const auto inner = std::make_shared<Scope>(scope);
  for (const auto& [target, expression] : statement.assignments) {
    VITRINE_ASSIGN_OR_RETURN(const Value value, Evaluate(*expression, scope));
    VITRINE_RETURN_IF_ERROR(Assign(target, value, *inner));
  }
  return Execute(statement.body, inner, out);
}

absl::Status Interpreter::ExecuteCall(const Statement& statement, const ScopePtr& scope,
                                      Text& out) {
  const Expression& call = *statement.value;
  VITRINE_ASSIGN_OR_RETURN(const Value callee, Evaluate(*call.children[0], scope));
  VITRINE_ASSIGN_OR_RETURN(Arguments arguments, EvaluateArguments(call.arguments, scope));
  const auto caller = std::make_shared<Macro>(statement.macro, statement.body, scope);
  Adopt(caller);
  VITRINE_RETURN_IF_ERROR(budget_.Allocate(sizeof(Macro)));
  arguments.named.emplace_back("caller", Value::Of(caller));
  VITRINE_ASSIGN_OR_RETURN(const Value value, Call(callee, arguments));
  return Print(value, out);
}

absl::Status Interpreter::ExecuteFilter(const Statement& statement, const ScopePtr& scope,
                                        Text& out) {
  VITRINE_ASSIGN_OR_RETURN(filter_block_input_, Capture(statement.body, scope));
  VITRINE_ASSIGN_OR_RETURN(const Value value, Evaluate(*statement.value, scope));
  return Print(value, out);
}

absl::Status Interpreter::Assign(const Target& target, const Value& value, Scope& scope) {
  if (!target.attribute.empty()) {
    const Value* const found = scope.Find(target.symbol);
    const bool is_namespace = found != nullptr && found->is(Value::Kind::kObject) &&
                              found->object().type_name() == "Namespace";
    if (!is_namespace) {
      return EvaluationError({"cannot assign attribute on non-namespace object"});
    }
    VITRINE_RETURN_IF_ERROR(budget_.Allocate(sizeof(Value)));
    static_cast<Namespace&>(found->object()).Set(target.attribute, value);
    return absl::OkStatus();
  }
  if (target.parts.empty()) {
    scope.Set(target.symbol, value);
    return absl::OkStatus();
  }
  VITRINE_ASSIGN_OR_RETURN(const std::vector<Value> elements, Elements(value, budget_));
  if (elements.size() != target.parts.size()) {
    return EvaluationError(
        {elements.size() < target.parts.size() ? "not enough" : "too many", " values to unpack"});
  }
  for (size_t i = 0; i < elements.size(); ++i) {
    VITRINE_RETURN_IF_ERROR(Assign(target.parts[i], elements[i], scope));
  }
  return absl::OkStatus();
}

absl::StatusOr<Value> Interpreter::CallMacro(const MacroDefinition& macro, const Block& body,
                                             const ScopePtr& scope, const Arguments& arguments) {
  const auto inner = std::make_shared<Scope>(scope);
  const size_t count = macro.parameters.size();
  std::vector<Value> values(count);
  std::vector<Value> extra;
  for (size_t i = 0; i < arguments.positional.size(); ++i) {
    if (i < count) {
      values[i] = arguments.positional[i];
    } else {
      extra.push_back(arguments.positional[i]);
    }
  }
  DictNode extra_named;
  Value caller = Value::Undefined("No caller defined");
  for (const auto& [name, value] : arguments.named) {
    const auto found = std::find(macro.parameter_names.begin(), macro.parameter_names.end(), name);
    const auto index = static_cast<size_t>(found - macro.parameter_names.begin());
    if (index < count && values[index].is_missing()) {
      values[index] = value;
    } else if (name == "caller" && macro.uses_caller) {
      caller = value;
    } else if (index == count && macro.uses_kwargs) {
      extra_named.Set(Value::Literal(name), value);
    } else {
      return EvaluationError({"macro '", macro.name, "' takes no keyword argument of that name"});
    }
  }
  if (!extra.empty() && !macro.uses_varargs) {
    return EvaluationError({"macro '", macro.name, "' takes fewer positional arguments"});
  }
  if (macro.uses_varargs) inner->Set(kVarargsSymbol, Value::Tuple(std::move(extra)));
  if (macro.uses_kwargs) inner->Set(kKwargsSymbol, Value::Dict(std::move(extra_named)));
  if (macro.uses_caller) inner->Set(kCallerSymbol, caller);
  const size_t first_default = count - macro.defaults.size();
  for (size_t i = 0; i < count; ++i) {
    if (values[i].is_missing() && i >= first_default) {
      VITRINE_ASSIGN_OR_RETURN(values[i], Evaluate(*macro.defaults[i - first_default], inner));
    } else if (values[i].is_missing()) {
      values[i] =
          Value::Undefined(Concat({"parameter '", macro.parameter_names[i], "' was not provided"}));
    }
    inner->Set(macro.parameters[i], values[i]);
  }
  return Capture(body, inner);
}

}  // namespace vitrine::jinja
