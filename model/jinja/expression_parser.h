// The expressions of templates. Grammar and precedence are those of jinja2/parser.py.
#pragma once

#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "model/jinja/ast.h"
#include "model/jinja/token_stream.h"

namespace vitrine::jinja {

class ExpressionParser {
 public:
  ExpressionParser(TokenStream& stream, SymbolTable& symbols)
      : stream_(stream), symbols_(symbols) {}

  absl::StatusOr<ExpressionPtr> Parse(bool with_conditional = true);
  // An expression, or several with commas between: a tuple. It ends before the name `end`.
  absl::StatusOr<ExpressionPtr> ParseTuple(bool with_conditional = true, std::string_view end = "");
  // A literal, name, call, attribute: what stands without operators.
  absl::StatusOr<ExpressionPtr> ParsePrimary();
  // FILTER | FILTER ... on `input`, where the | in front of the first one has been read.
  absl::StatusOr<ExpressionPtr> ParseFilters(ExpressionPtr input);
  absl::StatusOr<ExpressionPtr> ParsePostfix(ExpressionPtr node);

  // In bodies of `if` an unknown filter or test is an error only when it is reached.
  void EnterConditional() { ++conditional_depth_; }
  void LeaveConditional() { --conditional_depth_; }
  // The first unknown one elsewhere.
  absl::Status CheckKnown() const { return unknown_.empty() ? absl::OkStatus() : unknown_.front(); }

 private:
  absl::StatusOr<ExpressionPtr> ParseConditional();
  absl::StatusOr<ExpressionPtr> ParseOr();
  absl::StatusOr<ExpressionPtr> ParseAnd();
  absl::StatusOr<ExpressionPtr> ParseNot();
  absl::StatusOr<ExpressionPtr> ParseCompare();
  absl::StatusOr<ExpressionPtr> ParseSum();
  absl::StatusOr<ExpressionPtr> ParseConcat();
  absl::StatusOr<ExpressionPtr> ParseProduct();
  absl::StatusOr<ExpressionPtr> ParsePower();
  absl::StatusOr<ExpressionPtr> ParseUnary(bool with_filter);
  absl::StatusOr<ExpressionPtr> ParseName();
  absl::StatusOr<ExpressionPtr> ParseNumber();
  absl::StatusOr<ExpressionPtr> ParseParentheses();
  absl::StatusOr<ExpressionPtr> ParseListLiteral();
  absl::StatusOr<ExpressionPtr> ParseDictLiteral();
  absl::StatusOr<ExpressionPtr> ParseFilterExpression(ExpressionPtr node);
  absl::StatusOr<ExpressionPtr> ParseTest(ExpressionPtr node);
  absl::StatusOr<ExpressionPtr> ParseSubscript(ExpressionPtr node);
  absl::StatusOr<ExpressionPtr> ParseSubscribed(ExpressionPtr node);
  absl::StatusOr<ExpressionPtr> ParseCall(ExpressionPtr node);
  absl::Status ParseArguments(CallArguments& arguments);
  absl::Status ParseArgument(CallArguments& arguments);
  absl::Status CheckCallee(const Expression& callee) const;

  ExpressionPtr Make(Expression::Kind kind) const;
  // Takes the children in, or refuses a tree that is too deep.
  absl::StatusOr<ExpressionPtr> Finish(ExpressionPtr node) const;
  absl::StatusOr<ExpressionPtr> Binary(Operator op, ExpressionPtr left, ExpressionPtr right) const;

  TokenStream& stream_;
  SymbolTable& symbols_;
  int nesting_ = 0;
  int conditional_depth_ = 0;
  std::vector<absl::Status> unknown_;
};

}  // namespace vitrine::jinja
