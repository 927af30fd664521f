// The objects that templates meet: what they define themselves and what the interpreter lends them.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "model/jinja/ast.h"
#include "model/jinja/builtins.h"
#include "model/jinja/interpreter.h"
#include "model/jinja/value.h"

namespace vitrine::jinja {

// namespace(): the one value whose attributes can be assigned.
class Namespace final : public Object {
 public:
  std::string_view type_name() const override { return "Namespace"; }
  std::optional<Value> Attribute(std::string_view name) override;
  void Clear() override { attributes_.clear(); }

  void Set(std::string_view name, Value value);

 private:
  std::vector<std::pair<std::string, Value>> attributes_;
};

class Macro final : public Object {
 public:
  Macro(const MacroDefinition& definition, const Block& body, ScopePtr scope)
      : definition_(definition), body_(body), scope_(std::move(scope)) {}

  std::string_view type_name() const override { return "Macro"; }
  std::optional<Value> Attribute(std::string_view name) override;
  bool is_callable() const override { return true; }
  absl::StatusOr<Value> Call(Interpreter& interpreter, const Arguments& arguments) override;
  void Clear() override { scope_.reset(); }

 private:
  const MacroDefinition& definition_;
  const Block& body_;
  ScopePtr scope_;
};

// A function, or a method together with its object.
class Function final : public Object {
 public:
  Function(Builtin builtin, Value self) : builtin_(builtin), self_(std::move(self)) {}

  std::string_view type_name() const override { return "function"; }
  std::optional<Value> Attribute(std::string_view /*name*/) override { return std::nullopt; }
  bool is_callable() const override { return true; }
  absl::StatusOr<Value> Call(Interpreter& interpreter, const Arguments& arguments) override {
    return builtin_(interpreter, self_, arguments);
  }

 private:
  Builtin builtin_;
  Value self_;
};

// `loop` in the body of a for.
class Loop final : public Object {
 public:
  Loop(const Statement& statement, std::vector<Value> elements, ScopePtr scope, int depth)
      : statement_(statement),
        elements_(std::move(elements)),
        scope_(std::move(scope)),
        depth_(depth) {}

  std::string_view type_name() const override { return "LoopContext"; }
  std::optional<Value> Attribute(std::string_view name) override;
  bool is_callable() const override { return statement_.is_recursive; }
  absl::StatusOr<Value> Call(Interpreter& interpreter, const Arguments& arguments) override;
  void Clear() override {
    scope_.reset();
    last_changed_.reset();
    elements_.clear();
  }

  const std::vector<Value>& elements() const { return elements_; }
  void MoveTo(size_t index) { index_ = index; }
  absl::StatusOr<Value> Cycle(const Arguments& arguments) const;
  Value Changed(Interpreter& interpreter, const Arguments& arguments);

 private:
  const Statement& statement_;
  std::vector<Value> elements_;
  ScopePtr scope_;
  int depth_;
  size_t index_ = 0;
  std::optional<std::vector<Value>> last_changed_;
};

// cycler(...): one of its values after the other.
class Cycler final : public Object {
 public:
  explicit Cycler(std::vector<Value> values) : values_(std::move(values)) {}

  std::string_view type_name() const override { return "Cycler"; }
  std::optional<Value> Attribute(std::string_view name) override;

  Value Next();
  void Reset() { index_ = 0; }

 private:
  std::vector<Value> values_;
  size_t index_ = 0;
};

// joiner(separator): nothing at its first call, the separator from then on.
class Joiner final : public Object {
 public:
  explicit Joiner(Value separator) : separator_(std::move(separator)) {}

  std::string_view type_name() const override { return "Joiner"; }
  std::optional<Value> Attribute(std::string_view /*name*/) override { return std::nullopt; }
  bool is_callable() const override { return true; }
  absl::StatusOr<Value> Call(Interpreter& interpreter, const Arguments& arguments) override;

 private:
  Value separator_;
  bool was_called_ = false;
};

}  // namespace vitrine::jinja
