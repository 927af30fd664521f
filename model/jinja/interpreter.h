// Renders one template once. What a template can reach is what stands here and in builtins.h: no
// host objects, no files, no clock but the one that is passed in. Limits bound time and memory.
#pragma once

#include <ctime>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "model/jinja/ast.h"
#include "model/jinja/errors.h"
#include "model/jinja/text.h"
#include "model/jinja/value.h"

namespace vitrine::jinja {

// Variables of a block. Reading goes outwards, assigning does not.
struct Scope {
  explicit Scope(std::shared_ptr<Scope> outer) : parent(std::move(outer)) {}

  const Value* Find(int symbol) const;
  void Set(int symbol, Value value);

  std::shared_ptr<Scope> parent;
  std::vector<std::pair<int, Value>> variables;
};
using ScopePtr = std::shared_ptr<Scope>;

using Variables = std::vector<std::pair<std::string, Value>>;

class Interpreter {
 public:
  // `tree` must outlive the interpreter. `now` is what strftime_now prints.
  Interpreter(const Template& tree, const Limits& limits, const std::tm& now);
  ~Interpreter();
  Interpreter(const Interpreter&) = delete;
  Interpreter& operator=(const Interpreter&) = delete;

  // Once. Errors as in errors.h, with the line; that of raise_exception has none.
  absl::StatusOr<Text> Run(const Variables& variables);

  // For builtins and objects.
  Budget& budget() { return budget_; }
  const std::tm& now() const { return now_; }
  // value.name and value[key] as jinja2's sandbox resolves them: undefined where there is none.
  absl::StatusOr<Value> Attribute(const Value& value, std::string_view name);
  absl::StatusOr<Value> Subscript(const Value& value, const Value& key);
  absl::StatusOr<Value> Call(const Value& callee, const Arguments& arguments);
  // Keeps an object that others may point back to until the end, which then breaks the circle.
  void Adopt(const std::shared_ptr<Object>& object) { adopted_.push_back(object); }
  absl::StatusOr<Value> CallMacro(const MacroDefinition& macro, const Block& body,
                                  const ScopePtr& scope, const Arguments& arguments);
  // The iterations of a loop over `elements`, of which this is number `depth` inside itself.
  absl::Status RunLoop(const Statement& loop, std::vector<Value> elements, const ScopePtr& scope,
                       int depth, Text& out);

 private:
  enum class Flow { kNext, kBreak, kContinue };

  absl::StatusOr<Flow> Execute(const Block& block, const ScopePtr& scope, Text& out);
  absl::StatusOr<Flow> Execute(const Statement& statement, const ScopePtr& scope, Text& out);
  absl::Status Print(const Value& value, Text& out);
  absl::StatusOr<Flow> ExecuteIf(const Statement& statement, const ScopePtr& scope, Text& out);
  absl::Status ExecuteFor(const Statement& statement, const ScopePtr& scope, Text& out);
  absl::StatusOr<std::vector<Value>> Select(const Statement& loop, std::vector<Value> elements,
                                            const ScopePtr& scope);
  absl::Status ExecuteSetBlock(const Statement& statement, const ScopePtr& scope);
  absl::StatusOr<Flow> ExecuteWith(const Statement& statement, const ScopePtr& scope, Text& out);
  absl::Status ExecuteCall(const Statement& statement, const ScopePtr& scope, Text& out);
  absl::Status ExecuteFilter(const Statement& statement, const ScopePtr& scope, Text& out);
  absl::Status Assign(const Target& target, const Value& value, Scope& scope);
  // What a block prints, with variables of its own, as a string.
  absl::StatusOr<Value> Capture(const Block& block, const ScopePtr& scope);

  absl::StatusOr<Value> Evaluate(const Expression& node, const ScopePtr& scope);
  absl::StatusOr<Value> EvaluateOperators(const Expression& node, const ScopePtr& scope);
  absl::StatusOr<Value> EvaluateAccess(const Expression& node, const ScopePtr& scope);
  absl::StatusOr<Value> EvaluateName(const Expression& node, const Scope& scope) const;
  absl::StatusOr<Value> EvaluateSequence(const Expression& node, const ScopePtr& scope);
  absl::StatusOr<Value> EvaluateDict(const Expression& node, const ScopePtr& scope);
  absl::StatusOr<Value> EvaluateCompare(const Expression& node, const ScopePtr& scope);
  absl::StatusOr<Value> EvaluateConcat(const Expression& node, const ScopePtr& scope);
  absl::StatusOr<Value> EvaluateSlice(const Expression& node, const ScopePtr& scope);
  absl::StatusOr<Value> EvaluateCall(const Expression& node, const ScopePtr& scope);
  absl::StatusOr<Value> EvaluateBuiltin(const Expression& node, const ScopePtr& scope);
  absl::StatusOr<Arguments> EvaluateArguments(const CallArguments& arguments,
                                              const ScopePtr& scope);

  const Template& tree_;
  Budget budget_;
  const std::tm now_;
  int line_ = 1;
  Value filter_block_input_;
  std::vector<std::shared_ptr<Object>> adopted_;
};

}  // namespace vitrine::jinja
