#include "model/jinja/expression_parser.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <utility>

#include "model/jinja/errors.h"
#include "model/status.h"

namespace vitrine::jinja {
namespace {

using Kind = Expression::Kind;

// Deep enough for long chains of + and filters, shallow enough for the stack.
constexpr int kMaxDepth = 200;
constexpr int kMaxNesting = 60;  // Of brackets, each of which costs a dozen frames of the parser.

struct OperatorToken {
  std::string_view token;
  Operator op;
};
constexpr OperatorToken kComparisons[] = {
    {"==", Operator::kEqual},       {"!=", Operator::kNotEqual}, {"<", Operator::kLess},
    {"<=", Operator::kLessOrEqual}, {">", Operator::kGreater},   {">=", Operator::kGreaterOrEqual}};
constexpr OperatorToken kProducts[] = {{"*", Operator::kMultiply},
                                       {"/", Operator::kDivide},
                                       {"//", Operator::kFloorDivide},
                                       {"%", Operator::kModulo}};

template <size_t n>
const OperatorToken* FindOperator(const OperatorToken (&table)[n], const TokenStream& stream) {
  const auto* const found = std::find_if(std::begin(table), std::end(table), [&](const auto& row) {
    return stream.IsOperator(row.token);
  });
  return found == std::end(table) ? nullptr : found;
}

ExpressionPtr MakeConstant(Value value, int line) {
  auto node = std::make_unique<Expression>();
  node->line = line;
  node->constant = std::move(value);
  return node;
}

}  // namespace

ExpressionPtr ExpressionParser::Make(Kind kind) const {
  auto node = std::make_unique<Expression>();
  node->kind = kind;
  node->line = stream_.line();
  return node;
}

absl::StatusOr<ExpressionPtr> ExpressionParser::Finish(ExpressionPtr node) const {
  int depth = 0;
  const auto take = [&](const ExpressionPtr& child) {
    if (child != nullptr) depth = std::max(depth, child->depth);
  };
  for (const ExpressionPtr& child : node->children) take(child);
  for (const ExpressionPtr& argument : node->arguments.positional) take(argument);
  for (const auto& [name, argument] : node->arguments.named) take(argument);
  take(node->arguments.star);
  take(node->arguments.star_star);
  node->depth = depth + 1;
  if (node->depth <= kMaxDepth) return node;
  return SyntaxError(node->line, {"an expression nests deeper than it may"});
}

absl::StatusOr<ExpressionPtr> ExpressionParser::Binary(Operator op, ExpressionPtr left,
                                                       ExpressionPtr right) const {
  ExpressionPtr node = Make(Kind::kBinary);
  node->operators.push_back(op);
  node->children.push_back(std::move(left));
  node->children.push_back(std::move(right));
  return Finish(std::move(node));
}

absl::StatusOr<ExpressionPtr> ExpressionParser::Parse(bool with_conditional) {
  if (++nesting_ > kMaxNesting) {
    return SyntaxError(stream_.line(), {"an expression nests deeper than it may"});
  }
  auto node = with_conditional ? ParseConditional() : ParseOr();
  --nesting_;
  return node;
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseConditional() {
  const size_t unknown_before = unknown_.size();
  VITRINE_ASSIGN_OR_RETURN(ExpressionPtr node, ParseOr());
  bool is_conditional = false;
  while (stream_.TakeName("if")) {
    is_conditional = true;
    ExpressionPtr conditional = Make(Kind::kConditional);
    VITRINE_ASSIGN_OR_RETURN(ExpressionPtr condition, ParseOr());
    conditional->children.push_back(std::move(condition));
    conditional->children.push_back(std::move(node));
    if (stream_.TakeName("else")) {
      VITRINE_ASSIGN_OR_RETURN(ExpressionPtr otherwise, Parse());
      conditional->children.push_back(std::move(otherwise));
    }
    VITRINE_ASSIGN_OR_RETURN(node, Finish(std::move(conditional)));
  }
  if (is_conditional) unknown_.resize(unknown_before);
  return node;
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseOr() {
  VITRINE_ASSIGN_OR_RETURN(ExpressionPtr left, ParseAnd());
  while (stream_.TakeName("or")) {
    ExpressionPtr node = Make(Kind::kOr);
    VITRINE_ASSIGN_OR_RETURN(ExpressionPtr right, ParseAnd());
    node->children.push_back(std::move(left));
    node->children.push_back(std::move(right));
    VITRINE_ASSIGN_OR_RETURN(left, Finish(std::move(node)));
  }
  return left;
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseAnd() {
  VITRINE_ASSIGN_OR_RETURN(ExpressionPtr left, ParseNot());
  while (stream_.TakeName("and")) {
    ExpressionPtr node = Make(Kind::kAnd);
    VITRINE_ASSIGN_OR_RETURN(ExpressionPtr right, ParseNot());
    node->children.push_back(std::move(left));
    node->children.push_back(std::move(right));
    VITRINE_ASSIGN_OR_RETURN(left, Finish(std::move(node)));
  }
  return left;
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseNot() {
  int negations = 0;
  while (stream_.TakeName("not")) ++negations;
  VITRINE_ASSIGN_OR_RETURN(ExpressionPtr node, ParseCompare());
  for (; negations > 0; --negations) {
    ExpressionPtr negation = Make(Kind::kNot);
    negation->children.push_back(std::move(node));
    VITRINE_ASSIGN_OR_RETURN(node, Finish(std::move(negation)));
  }
  return node;
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseCompare() {
  ExpressionPtr compare = Make(Kind::kCompare);
  VITRINE_ASSIGN_OR_RETURN(ExpressionPtr first, ParseSum());
  compare->children.push_back(std::move(first));
  while (true) {
    if (const OperatorToken* row = FindOperator(kComparisons, stream_)) {
      compare->operators.push_back(row->op);
      stream_.Next();
    } else if (stream_.TakeName("in")) {
      compare->operators.push_back(Operator::kIn);
    } else if (stream_.IsName("not") && stream_.Peek().type == TokenType::kName &&
               stream_.Peek().text == "in") {
      stream_.Next();
      stream_.Next();
      compare->operators.push_back(Operator::kNotIn);
    } else {
      break;
    }
    VITRINE_ASSIGN_OR_RETURN(ExpressionPtr operand, ParseSum());
    compare->children.push_back(std::move(operand));
  }
  if (compare->operators.empty()) return std::move(compare->children.front());
  return Finish(std::move(compare));
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseSum() {
  VITRINE_ASSIGN_OR_RETURN(ExpressionPtr left, ParseConcat());
  while (stream_.IsOperator("+") || stream_.IsOperator("-")) {
    const Operator op = stream_.Next().text == "+" ? Operator::kAdd : Operator::kSubtract;
    VITRINE_ASSIGN_OR_RETURN(ExpressionPtr right, ParseConcat());
    VITRINE_ASSIGN_OR_RETURN(left, Binary(op, std::move(left), std::move(right)));
  }
  return left;
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseConcat() {
  ExpressionPtr concat = Make(Kind::kConcat);
  VITRINE_ASSIGN_OR_RETURN(ExpressionPtr first, ParseProduct());
  if (!stream_.IsOperator("~")) return first;
  concat->children.push_back(std::move(first));
  while (stream_.TakeOperator("~")) {
    VITRINE_ASSIGN_OR_RETURN(ExpressionPtr part, ParseProduct());
    concat->children.push_back(std::move(part));
  }
  return Finish(std::move(concat));
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseProduct() {
  VITRINE_ASSIGN_OR_RETURN(ExpressionPtr left, ParsePower());
  while (const OperatorToken* row = FindOperator(kProducts, stream_)) {
    stream_.Next();
    VITRINE_ASSIGN_OR_RETURN(ExpressionPtr right, ParsePower());
    VITRINE_ASSIGN_OR_RETURN(left, Binary(row->op, std::move(left), std::move(right)));
  }
  return left;
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParsePower() {
  VITRINE_ASSIGN_OR_RETURN(ExpressionPtr left, ParseUnary(true));
  while (stream_.TakeOperator("**")) {
    VITRINE_ASSIGN_OR_RETURN(ExpressionPtr right, ParseUnary(true));
    VITRINE_ASSIGN_OR_RETURN(left, Binary(Operator::kPower, std::move(left), std::move(right)));
  }
  return left;
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseUnary(bool with_filter) {
  ExpressionPtr node;
  if (stream_.IsOperator("-") || stream_.IsOperator("+")) {
    if (++nesting_ > kMaxNesting) {
      return SyntaxError(stream_.line(), {"an expression nests deeper than it may"});
    }
    ExpressionPtr sign = Make(Kind::kSign);
    sign->operators.push_back(stream_.Next().text == "-" ? Operator::kNegative
                                                         : Operator::kPositive);
    VITRINE_ASSIGN_OR_RETURN(ExpressionPtr operand, ParseUnary(false));
    --nesting_;
    sign->children.push_back(std::move(operand));
    VITRINE_ASSIGN_OR_RETURN(node, Finish(std::move(sign)));
  } else {
    VITRINE_ASSIGN_OR_RETURN(node, ParsePrimary());
  }
  VITRINE_ASSIGN_OR_RETURN(node, ParsePostfix(std::move(node)));
  if (!with_filter) return node;
  return ParseFilterExpression(std::move(node));
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParsePrimary() {
  switch (stream_.current().type) {
    case TokenType::kName:
      return ParseName();
    case TokenType::kString: {
      const int line = stream_.line();
      std::string text;
      while (stream_.Is(TokenType::kString)) text += stream_.Next().text;
      return MakeConstant(Value::Literal(text), line);
    }
    case TokenType::kInteger:
    case TokenType::kFloat:
      return ParseNumber();
    case TokenType::kOperator:
      if (stream_.IsOperator("(")) return ParseParentheses();
      if (stream_.IsOperator("[")) return ParseListLiteral();
      if (stream_.IsOperator("{")) return ParseDictLiteral();
      break;
    default:
      break;
  }
  return stream_.Unexpected();
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseName() {
  const Token token = stream_.Next();
  if (token.text == "true" || token.text == "True") {
    return MakeConstant(Value::Bool(true), token.line);
  }
  if (token.text == "false" || token.text == "False") {
    return MakeConstant(Value::Bool(false), token.line);
  }
  if (token.text == "none" || token.text == "None") return MakeConstant(Value::None(), token.line);
  ExpressionPtr node = Make(Kind::kName);
  node->line = token.line;
  node->name = token.text;
  node->symbol = symbols_.Intern(token.text);
  symbols_.Read(node->symbol);
  return node;
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseNumber() {
  const Token token = stream_.Next();
  if (token.type == TokenType::kFloat) {
    double number = 0;
    std::from_chars(token.text.data(), token.text.data() + token.text.size(), number);
    return MakeConstant(Value::Float(number), token.line);
  }
  int base = 10;
  std::string_view digits = token.text;
  if (digits.size() > 2 && digits[0] == '0' && (digits[1] < '0' || digits[1] > '9')) {
    base =
        digits[1] == 'x' || digits[1] == 'X' ? 16 : (digits[1] == 'o' || digits[1] == 'O' ? 8 : 2);
    digits.remove_prefix(2);
  }
  int64_t number = 0;
  const char* const digits_end = digits.data() + digits.size();
  const auto [end, error] = std::from_chars(digits.data(), digits_end, number, base);
  if (error == std::errc() && end == digits_end) {
    return MakeConstant(Value::Int(number), token.line);
  }
  return MissingFeature(token.line, {"an integer outside of 64 bits"});
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseParentheses() {
  VITRINE_RETURN_IF_ERROR(stream_.ExpectOperator("("));
  ExpressionPtr node;
  if (stream_.IsOperator(")")) {
    node = Make(Kind::kTuple);
  } else {
    VITRINE_ASSIGN_OR_RETURN(node, ParseTuple());
  }
  VITRINE_RETURN_IF_ERROR(stream_.ExpectOperator(")"));
  return node;
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseTuple(bool with_conditional,
                                                           std::string_view end) {
  ExpressionPtr tuple = Make(Kind::kTuple);
  bool has_comma = false;
  const auto is_end = [&] {
    return stream_.Is(TokenType::kVariableEnd) || stream_.Is(TokenType::kBlockEnd) ||
           stream_.IsOperator(")") || (!end.empty() && stream_.IsName(end));
  };
  while (!is_end()) {
    VITRINE_ASSIGN_OR_RETURN(ExpressionPtr item, Parse(with_conditional));
    tuple->children.push_back(std::move(item));
    if (!stream_.TakeOperator(",")) break;
    has_comma = true;
  }
  if (tuple->children.empty()) return stream_.Unexpected();
  if (!has_comma) return std::move(tuple->children.front());
  return Finish(std::move(tuple));
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseListLiteral() {
  ExpressionPtr list = Make(Kind::kList);
  VITRINE_RETURN_IF_ERROR(stream_.ExpectOperator("["));
  while (!stream_.IsOperator("]")) {
    if (!list->children.empty()) VITRINE_RETURN_IF_ERROR(stream_.ExpectOperator(","));
    if (stream_.IsOperator("]")) break;
    VITRINE_ASSIGN_OR_RETURN(ExpressionPtr item, Parse());
    list->children.push_back(std::move(item));
  }
  VITRINE_RETURN_IF_ERROR(stream_.ExpectOperator("]"));
  return Finish(std::move(list));
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseDictLiteral() {
  ExpressionPtr dict = Make(Kind::kDict);
  VITRINE_RETURN_IF_ERROR(stream_.ExpectOperator("{"));
  while (!stream_.IsOperator("}")) {
    if (!dict->children.empty()) VITRINE_RETURN_IF_ERROR(stream_.ExpectOperator(","));
    if (stream_.IsOperator("}")) break;
    VITRINE_ASSIGN_OR_RETURN(ExpressionPtr key, Parse());
    VITRINE_RETURN_IF_ERROR(stream_.ExpectOperator(":"));
    VITRINE_ASSIGN_OR_RETURN(ExpressionPtr value, Parse());
    dict->children.push_back(std::move(key));
    dict->children.push_back(std::move(value));
  }
  VITRINE_RETURN_IF_ERROR(stream_.ExpectOperator("}"));
  return Finish(std::move(dict));
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParsePostfix(ExpressionPtr node) {
  while (true) {
    if (stream_.IsOperator(".") || stream_.IsOperator("[")) {
      VITRINE_ASSIGN_OR_RETURN(node, ParseSubscript(std::move(node)));
    } else if (stream_.IsOperator("(")) {
      VITRINE_ASSIGN_OR_RETURN(node, ParseCall(std::move(node)));
    } else {
      return node;
    }
  }
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseFilterExpression(ExpressionPtr node) {
  while (true) {
    if (stream_.TakeOperator("|")) {
      VITRINE_ASSIGN_OR_RETURN(node, ParseFilters(std::move(node)));
    } else if (stream_.TakeName("is")) {
      VITRINE_ASSIGN_OR_RETURN(node, ParseTest(std::move(node)));
    } else if (stream_.IsOperator("(")) {
      VITRINE_ASSIGN_OR_RETURN(node, ParseCall(std::move(node)));
    } else {
      return node;
    }
  }
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseFilters(ExpressionPtr input) {
  do {
    ExpressionPtr filter = Make(Kind::kFilter);
    VITRINE_ASSIGN_OR_RETURN(filter->name, stream_.ExpectAnyName());
    while (stream_.TakeOperator(".")) {
      VITRINE_ASSIGN_OR_RETURN(const std::string part, stream_.ExpectAnyName());
      filter->name += "." + part;
    }
    filter->builtin = FindFilter(filter->name);
    if (filter->builtin == nullptr && IsMissingFilter(filter->name)) {
      return MissingFeature(filter->line, {"the filter '", filter->name, "'"});
    }
    if (filter->builtin == nullptr && conditional_depth_ == 0) {
      unknown_.push_back(SyntaxError(filter->line, {"there is no filter '", filter->name, "'"}));
    }
    if (stream_.IsOperator("(")) VITRINE_RETURN_IF_ERROR(ParseArguments(filter->arguments));
    filter->children.push_back(std::move(input));
    VITRINE_ASSIGN_OR_RETURN(input, Finish(std::move(filter)));
  } while (stream_.TakeOperator("|"));
  return input;
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseTest(ExpressionPtr node) {
  const bool negated = stream_.TakeName("not");
  ExpressionPtr test = Make(Kind::kTest);
  VITRINE_ASSIGN_OR_RETURN(test->name, stream_.ExpectAnyName());
  test->builtin = FindTest(test->name);
  if (test->builtin == nullptr && conditional_depth_ == 0) {
    unknown_.push_back(SyntaxError(test->line, {"there is no test '", test->name, "'"}));
  }
  const bool begins_operand = stream_.Is(TokenType::kName) || stream_.Is(TokenType::kString) ||
                              stream_.Is(TokenType::kInteger) || stream_.Is(TokenType::kFloat) ||
                              stream_.IsOperator("[") || stream_.IsOperator("{");
  const bool is_keyword = stream_.IsName("else") || stream_.IsName("or") || stream_.IsName("and");
  if (stream_.IsOperator("(")) {
    VITRINE_RETURN_IF_ERROR(ParseArguments(test->arguments));
  } else if (stream_.IsName("is")) {
    return SyntaxError(stream_.line(), {"tests cannot be chained with 'is'"});
  } else if (begins_operand && !is_keyword) {
    VITRINE_ASSIGN_OR_RETURN(ExpressionPtr operand, ParsePrimary());
    VITRINE_ASSIGN_OR_RETURN(operand, ParsePostfix(std::move(operand)));
    test->arguments.positional.push_back(std::move(operand));
  }
  test->children.push_back(std::move(node));
  if (!negated) return Finish(std::move(test));
  ExpressionPtr negation = Make(Kind::kNot);
  VITRINE_ASSIGN_OR_RETURN(test, Finish(std::move(test)));
  negation->children.push_back(std::move(test));
  return Finish(std::move(negation));
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseSubscript(ExpressionPtr node) {
  if (stream_.TakeOperator(".")) {
    if (stream_.Is(TokenType::kInteger)) {
      ExpressionPtr item = Make(Kind::kItem);
      item->children.push_back(std::move(node));
      VITRINE_ASSIGN_OR_RETURN(ExpressionPtr index, ParseNumber());
      item->children.push_back(std::move(index));
      return Finish(std::move(item));
    }
    ExpressionPtr attribute = Make(Kind::kAttribute);
    VITRINE_ASSIGN_OR_RETURN(attribute->name, stream_.ExpectAnyName());
    attribute->children.push_back(std::move(node));
    return Finish(std::move(attribute));
  }
  VITRINE_RETURN_IF_ERROR(stream_.ExpectOperator("["));
  VITRINE_ASSIGN_OR_RETURN(node, ParseSubscribed(std::move(node)));
  VITRINE_RETURN_IF_ERROR(stream_.ExpectOperator("]"));
  return node;
}

// KEY, or START:STOP:STEP with all of them optional.
absl::StatusOr<ExpressionPtr> ExpressionParser::ParseSubscribed(ExpressionPtr node) {
  ExpressionPtr bounds[3];
  int colons = 0;
  const int line = stream_.line();
  while (!stream_.IsOperator("]")) {
    if (stream_.IsOperator(",")) {
      return MissingFeature(stream_.line(), {"a subscript with commas"});
    }
    if (stream_.IsOperator(":")) {
      if (++colons > 2) return stream_.Unexpected();
      stream_.Next();
      continue;
    }
    if (bounds[colons] != nullptr) return stream_.Unexpected();
    VITRINE_ASSIGN_OR_RETURN(bounds[colons], Parse());
  }
  if (colons == 0 && bounds[0] == nullptr) return stream_.Unexpected();
  ExpressionPtr result = Make(colons == 0 ? Kind::kItem : Kind::kSlice);
  result->line = line;
  result->children.push_back(std::move(node));
  result->children.push_back(std::move(bounds[0]));
  if (colons > 0) {
    result->children.push_back(std::move(bounds[1]));
    result->children.push_back(std::move(bounds[2]));
  }
  return Finish(std::move(result));
}

absl::Status ExpressionParser::CheckCallee(const Expression& callee) const {
  if (callee.kind == Kind::kAttribute && IsMissingMethod(callee.name)) {
    return MissingFeature(callee.line, {"the method '", callee.name, "'"});
  }
  if (callee.kind == Kind::kName && IsMissingFunction(callee.name)) {
    return MissingFeature(callee.line, {"the function '", callee.name, "'"});
  }
  return absl::OkStatus();
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseCall(ExpressionPtr node) {
  VITRINE_RETURN_IF_ERROR(CheckCallee(*node));
  ExpressionPtr call = Make(Kind::kCall);
  VITRINE_RETURN_IF_ERROR(ParseArguments(call->arguments));
  call->children.push_back(std::move(node));
  return Finish(std::move(call));
}

absl::Status ExpressionParser::ParseArguments(CallArguments& arguments) {
  VITRINE_RETURN_IF_ERROR(stream_.ExpectOperator("("));
  bool is_first = true;
  while (!stream_.IsOperator(")")) {
    if (!is_first) {
      VITRINE_RETURN_IF_ERROR(stream_.ExpectOperator(","));
      if (stream_.IsOperator(")")) break;
    }
    is_first = false;
    VITRINE_RETURN_IF_ERROR(ParseArgument(arguments));
  }
  return stream_.ExpectOperator(")");
}

absl::Status ExpressionParser::ParseArgument(CallArguments& arguments) {
  const int line = stream_.line();
  if (stream_.TakeOperator("*")) {
    if (arguments.star != nullptr || arguments.star_star != nullptr) return stream_.Unexpected();
    VITRINE_ASSIGN_OR_RETURN(arguments.star, Parse());
    return absl::OkStatus();
  }
  if (stream_.TakeOperator("**")) {
    if (arguments.star_star != nullptr) return stream_.Unexpected();
    VITRINE_ASSIGN_OR_RETURN(arguments.star_star, Parse());
    return absl::OkStatus();
  }
  const bool is_named = stream_.Is(TokenType::kName) &&
                        stream_.Peek().type == TokenType::kOperator && stream_.Peek().text == "=";
  if (is_named) {
    const std::string name = stream_.Next().text;
    stream_.Next();
    VITRINE_ASSIGN_OR_RETURN(ExpressionPtr value, Parse());
    arguments.named.emplace_back(name, std::move(value));
    return absl::OkStatus();
  }
  if (!arguments.named.empty() || arguments.star != nullptr || arguments.star_star != nullptr) {
    return SyntaxError(line, {"a positional argument behind a named one"});
  }
  VITRINE_ASSIGN_OR_RETURN(ExpressionPtr value, Parse());
  arguments.positional.push_back(std::move(value));
  return absl::OkStatus();
}

}  // namespace vitrine::jinja
