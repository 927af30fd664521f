#include "model/jinja/parser.h"

#include <utility>

#include "model/detokenizer.h"
#include "model/jinja/errors.h"
#include "model/jinja/expression_parser.h"
#include "model/jinja/token_stream.h"
#include "model/status.h"

namespace vitrine::jinja {
namespace {

using Kind = Statement::Kind;

constexpr int kMaxBlockDepth = 50;

class StatementParser {
 public:
  explicit StatementParser(std::vector<Token> tokens)
      : stream_(std::move(tokens)), expressions_(stream_, symbols_) {}

  absl::StatusOr<std::unique_ptr<const Template>> Run() {
    auto result = std::make_unique<Template>();
    VITRINE_ASSIGN_OR_RETURN(result->body, ParseBlock({}));
    if (!stream_.Is(TokenType::kEnd)) return stream_.Unexpected();
    VITRINE_RETURN_IF_ERROR(expressions_.CheckKnown());
    result->names_read = symbols_.ReadNames();
    result->symbols = symbols_.Take();
    return std::unique_ptr<const Template>(std::move(result));
  }

 private:
  using StatementPtr = std::unique_ptr<Statement>;
  using Names = std::vector<std::string_view>;

  StatementPtr Make(Kind kind) const {
    auto statement = std::make_unique<Statement>();
    statement->kind = kind;
    statement->line = stream_.line();
    return statement;
  }

  // Until a tag with one of these names, which stays unread behind its {%; or the end.
  absl::StatusOr<Block> ParseBlock(const Names& ends) {
    Block block;
    if (++depth_ > kMaxBlockDepth) {
      return SyntaxError(stream_.line(), {"blocks nest deeper than they may"});
    }
    while (!stream_.Is(TokenType::kEnd)) {
      if (stream_.Is(TokenType::kText)) {
        StatementPtr text = Make(Kind::kText);
        text->constant = Value::Literal(stream_.Next().text);
        block.push_back(std::move(text));
      } else if (stream_.Is(TokenType::kVariableBegin)) {
        VITRINE_ASSIGN_OR_RETURN(StatementPtr print, ParsePrint());
        block.push_back(std::move(print));
      } else {
        VITRINE_RETURN_IF_ERROR(stream_.Expect(TokenType::kBlockBegin));
        for (const std::string_view end : ends) {
          if (stream_.IsName(end)) {
            --depth_;
            return block;
          }
        }
        VITRINE_ASSIGN_OR_RETURN(StatementPtr statement, ParseStatement());
        VITRINE_RETURN_IF_ERROR(stream_.Expect(TokenType::kBlockEnd));
        block.push_back(std::move(statement));
      }
    }
    --depth_;
    if (ends.empty()) return block;
    return SyntaxError(stream_.line(),
                       {"unexpected end of the template, expected '", ends.back(), "'"});
  }

  // The body behind the tag that is being read: up to `end`, whose name is read too.
  absl::StatusOr<Block> ParseBody(std::string_view end) {
    VITRINE_RETURN_IF_ERROR(stream_.Expect(TokenType::kBlockEnd));
    VITRINE_ASSIGN_OR_RETURN(Block body, ParseBlock({end}));
    VITRINE_RETURN_IF_ERROR(stream_.ExpectName(end));
    return body;
  }

  absl::StatusOr<StatementPtr> ParsePrint() {
    StatementPtr print = Make(Kind::kPrint);
    VITRINE_RETURN_IF_ERROR(stream_.Expect(TokenType::kVariableBegin));
    VITRINE_ASSIGN_OR_RETURN(print->value, expressions_.ParseTuple());
    VITRINE_RETURN_IF_ERROR(stream_.Expect(TokenType::kVariableEnd));
    return print;
  }

  absl::StatusOr<StatementPtr> ParseStatement() {
    using Parse = absl::StatusOr<StatementPtr> (StatementParser::*)();
    constexpr std::pair<std::string_view, Parse> kStatements[] = {
        {"if", &StatementParser::ParseIf},
        {"for", &StatementParser::ParseFor},
        {"set", &StatementParser::ParseSet},
        {"with", &StatementParser::ParseWith},
        {"macro", &StatementParser::ParseMacro},
        {"call", &StatementParser::ParseCallBlock},
        {"filter", &StatementParser::ParseFilterBlock},
        {"generation", &StatementParser::ParseGeneration},
        {"block", &StatementParser::ParseNamedBlock},
        {"break", &StatementParser::ParseBreak},
        {"continue", &StatementParser::ParseContinue},
        {"print", &StatementParser::ParsePrintTag},
    };
    const int line = stream_.line();
    VITRINE_ASSIGN_OR_RETURN(const std::string name, stream_.ExpectAnyName());
    for (const auto& [tag, parse] : kStatements) {
      if (name == tag) return (this->*parse)();
    }
    for (const std::string_view tag : {"extends", "include", "import", "from", "autoescape"}) {
      if (name == tag) return MissingFeature(line, {"the statement '", name, "'"});
    }
    return SyntaxError(line, {"there is no statement '", name.substr(0, 32), "'"});
  }

  absl::StatusOr<StatementPtr> ParseIf() {
    StatementPtr statement = Make(Kind::kIf);
    expressions_.EnterConditional();
    while (true) {
      VITRINE_ASSIGN_OR_RETURN(ExpressionPtr condition, expressions_.ParseTuple(false));
      VITRINE_RETURN_IF_ERROR(stream_.Expect(TokenType::kBlockEnd));
      VITRINE_ASSIGN_OR_RETURN(Block body, ParseBlock({"elif", "else", "endif"}));
      statement->branches.emplace_back(std::move(condition), std::move(body));
      if (!stream_.TakeName("elif")) break;
    }
    if (stream_.TakeName("else")) {
      VITRINE_RETURN_IF_ERROR(stream_.Expect(TokenType::kBlockEnd));
      VITRINE_ASSIGN_OR_RETURN(statement->else_body, ParseBlock({"endif"}));
    }
    expressions_.LeaveConditional();
    VITRINE_RETURN_IF_ERROR(stream_.ExpectName("endif"));
    return statement;
  }

  absl::StatusOr<StatementPtr> ParseFor() {
    StatementPtr statement = Make(Kind::kFor);
    VITRINE_ASSIGN_OR_RETURN(statement->target, ParseTargets());
    VITRINE_RETURN_IF_ERROR(stream_.ExpectName("in"));
    VITRINE_ASSIGN_OR_RETURN(statement->value, expressions_.ParseTuple(false, "recursive"));
    const int loops_before = symbols_.reads(kLoopSymbol);
    if (stream_.TakeName("if")) {
      VITRINE_ASSIGN_OR_RETURN(statement->condition, expressions_.Parse());
    }
    statement->is_recursive = stream_.TakeName("recursive");
    VITRINE_RETURN_IF_ERROR(stream_.Expect(TokenType::kBlockEnd));
    ++loops_;
    VITRINE_ASSIGN_OR_RETURN(statement->body, ParseBlock({"else", "endfor"}));
    --loops_;
    statement->uses_loop = symbols_.reads(kLoopSymbol) > loops_before;
    if (stream_.TakeName("else")) {
      VITRINE_RETURN_IF_ERROR(stream_.Expect(TokenType::kBlockEnd));
      VITRINE_ASSIGN_OR_RETURN(statement->else_body, ParseBlock({"endfor"}));
    }
    VITRINE_RETURN_IF_ERROR(stream_.ExpectName("endfor"));
    return statement;
  }

  absl::StatusOr<StatementPtr> ParseSet() {
    StatementPtr statement = Make(Kind::kSet);
    VITRINE_ASSIGN_OR_RETURN(statement->target, ParseTargets());
    if (stream_.TakeOperator("=")) {
      VITRINE_ASSIGN_OR_RETURN(statement->value, expressions_.ParseTuple());
      return statement;
    }
    statement->kind = Kind::kSetBlock;
    if (stream_.TakeOperator("|")) {
      VITRINE_ASSIGN_OR_RETURN(statement->value, expressions_.ParseFilters(nullptr));
    }
    VITRINE_ASSIGN_OR_RETURN(statement->body, ParseBody("endset"));
    return statement;
  }

  absl::StatusOr<StatementPtr> ParseWith() {
    StatementPtr statement = Make(Kind::kWith);
    while (!stream_.Is(TokenType::kBlockEnd)) {
      if (!statement->assignments.empty()) VITRINE_RETURN_IF_ERROR(stream_.ExpectOperator(","));
      VITRINE_ASSIGN_OR_RETURN(Target target, ParseTarget());
      VITRINE_RETURN_IF_ERROR(stream_.ExpectOperator("="));
      VITRINE_ASSIGN_OR_RETURN(ExpressionPtr value, expressions_.Parse());
      statement->assignments.emplace_back(std::move(target), std::move(value));
    }
    VITRINE_ASSIGN_OR_RETURN(statement->body, ParseBody("endwith"));
    return statement;
  }

  absl::Status ParseParameters(MacroDefinition& macro) {
    VITRINE_RETURN_IF_ERROR(stream_.ExpectOperator("("));
    while (!stream_.IsOperator(")")) {
      if (!macro.parameters.empty()) VITRINE_RETURN_IF_ERROR(stream_.ExpectOperator(","));
      VITRINE_ASSIGN_OR_RETURN(const std::string name, stream_.ExpectAnyName());
      macro.parameters.push_back(symbols_.Intern(name));
      macro.parameter_names.push_back(name);
      if (stream_.TakeOperator("=")) {
        VITRINE_ASSIGN_OR_RETURN(ExpressionPtr value, expressions_.Parse());
        macro.defaults.push_back(std::move(value));
      } else if (!macro.defaults.empty()) {
        return SyntaxError(stream_.line(), {"a parameter without default behind one with it"});
      }
    }
    return stream_.ExpectOperator(")");
  }

  absl::Status ParseMacroBody(Statement& statement, std::string_view end) {
    const int callers = symbols_.reads(kCallerSymbol);
    const int varargs = symbols_.reads(kVarargsSymbol);
    const int kwargs = symbols_.reads(kKwargsSymbol);
    const int loops = std::exchange(loops_, 0);
    VITRINE_ASSIGN_OR_RETURN(statement.body, ParseBody(end));
    loops_ = loops;
    statement.macro.uses_caller = symbols_.reads(kCallerSymbol) > callers;
    statement.macro.uses_varargs = symbols_.reads(kVarargsSymbol) > varargs;
    statement.macro.uses_kwargs = symbols_.reads(kKwargsSymbol) > kwargs;
    return absl::OkStatus();
  }

  absl::StatusOr<StatementPtr> ParseMacro() {
    StatementPtr statement = Make(Kind::kMacro);
    VITRINE_ASSIGN_OR_RETURN(statement->macro.name, stream_.ExpectAnyName());
    statement->symbol = symbols_.Intern(statement->macro.name);
    VITRINE_RETURN_IF_ERROR(ParseParameters(statement->macro));
    VITRINE_RETURN_IF_ERROR(ParseMacroBody(*statement, "endmacro"));
    return statement;
  }

  absl::StatusOr<StatementPtr> ParseCallBlock() {
    StatementPtr statement = Make(Kind::kCall);
    statement->macro.name = "caller";
    if (stream_.IsOperator("(")) VITRINE_RETURN_IF_ERROR(ParseParameters(statement->macro));
    VITRINE_ASSIGN_OR_RETURN(statement->value, expressions_.Parse());
    if (statement->value->kind != Expression::Kind::kCall) {
      return SyntaxError(statement->line, {"expected a call"});
    }
    VITRINE_RETURN_IF_ERROR(ParseMacroBody(*statement, "endcall"));
    return statement;
  }

  absl::StatusOr<StatementPtr> ParseFilterBlock() {
    StatementPtr statement = Make(Kind::kFilter);
    VITRINE_ASSIGN_OR_RETURN(statement->value, expressions_.ParseFilters(nullptr));
    VITRINE_ASSIGN_OR_RETURN(statement->body, ParseBody("endfilter"));
    return statement;
  }

  // Marks what a model is trained on; printing is not affected.
  absl::StatusOr<StatementPtr> ParseGeneration() {
    StatementPtr statement = Make(Kind::kScope);
    const int loops = std::exchange(loops_, 0);
    VITRINE_ASSIGN_OR_RETURN(statement->body, ParseBody("endgeneration"));
    loops_ = loops;
    return statement;
  }

  absl::StatusOr<StatementPtr> ParseNamedBlock() {
    StatementPtr statement = Make(Kind::kScope);
    VITRINE_ASSIGN_OR_RETURN(const std::string name, stream_.ExpectAnyName());
    VITRINE_ASSIGN_OR_RETURN(statement->body, ParseBody("endblock"));
    stream_.TakeName(name);
    return statement;
  }

  absl::StatusOr<StatementPtr> ParseBreak() { return ParseLoopControl(Kind::kBreak); }
  absl::StatusOr<StatementPtr> ParseContinue() { return ParseLoopControl(Kind::kContinue); }
  absl::StatusOr<StatementPtr> ParseLoopControl(Kind kind) {
    if (loops_ == 0) return SyntaxError(stream_.line(), {"break or continue outside of a loop"});
    return Make(kind);
  }

  absl::StatusOr<StatementPtr> ParsePrintTag() {
    StatementPtr print = Make(Kind::kPrint);
    VITRINE_ASSIGN_OR_RETURN(print->value, expressions_.ParseTuple());
    return print;
  }

  // NAME, NAME.ATTRIBUTE or (TARGETS).
  absl::StatusOr<Target> ParseTarget() {
    Target target;
    if (stream_.TakeOperator("(")) {
      VITRINE_ASSIGN_OR_RETURN(target, ParseTargets());
      VITRINE_RETURN_IF_ERROR(stream_.ExpectOperator(")"));
      return target;
    }
    const int line = stream_.line();
    VITRINE_ASSIGN_OR_RETURN(const std::string name, stream_.ExpectAnyName());
    for (const std::string_view constant : {"true", "false", "none", "True", "False", "None"}) {
      if (name == constant) return SyntaxError(line, {"cannot assign to '", name, "'"});
    }
    target.symbol = symbols_.Intern(name);
    if (stream_.TakeOperator(".")) {
      VITRINE_ASSIGN_OR_RETURN(target.attribute, stream_.ExpectAnyName());
    }
    return target;
  }

  // Several of them with commas between are one tuple.
  absl::StatusOr<Target> ParseTargets() {
    if (++depth_ > kMaxBlockDepth) {
      return SyntaxError(stream_.line(), {"targets nest deeper than they may"});
    }
    VITRINE_ASSIGN_OR_RETURN(Target first, ParseTarget());
    --depth_;
    if (!stream_.IsOperator(",")) return first;
    Target tuple;
    tuple.parts.push_back(std::move(first));
    while (stream_.TakeOperator(",")) {
      if (!stream_.Is(TokenType::kName) && !stream_.IsOperator("(")) break;
      VITRINE_ASSIGN_OR_RETURN(Target next, ParseTarget());
      tuple.parts.push_back(std::move(next));
    }
    return tuple;
  }

  TokenStream stream_;
  SymbolTable symbols_;
  ExpressionParser expressions_;
  int depth_ = 0;
  int loops_ = 0;
};

}  // namespace

absl::StatusOr<std::unique_ptr<const Template>> Parse(std::string_view source) {
  if (source.size() > kMaxTemplateBytes) {
    return OverBudget({"the template is larger than a mebibyte"});
  }
  if (FindInvalidUtf8(source) != std::string_view::npos) {
    return absl::InvalidArgumentError("the template is not UTF-8");
  }
  VITRINE_ASSIGN_OR_RETURN(std::vector<Token> tokens, Tokenize(source));
  return StatementParser(std::move(tokens)).Run();
}

}  // namespace vitrine::jinja
