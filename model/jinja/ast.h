// A parsed template. Immutable, so thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "model/jinja/builtins.h"
#include "model/jinja/operators.h"
#include "model/jinja/value.h"

namespace vitrine::jinja {

struct Expression;
using ExpressionPtr = std::unique_ptr<Expression>;

struct CallArguments {
  std::vector<ExpressionPtr> positional;
  std::vector<std::pair<std::string, ExpressionPtr>> named;
  ExpressionPtr star;       // *list
  ExpressionPtr star_star;  // **dict
};

struct Expression {
  enum class Kind : uint8_t {
    kConstant,     // constant
    kName,         // symbol
    kList,         // children
    kTuple,        // children
    kDict,         // children: key, value, key, value
    kConditional,  // children: condition, then, else (absent: undefined)
    kAnd,          // children: left, right
    kOr,
    kNot,        // children: operand
    kCompare,    // children: first, then one per operator
    kConcat,     // children
    kBinary,     // operators[0], children: left, right
    kSign,       // operators[0], children: operand
    kAttribute,  // children: object; name
    kItem,       // children: object, key
    kSlice,      // children: object, start, stop, step; null where left out
    kCall,       // children: callee; arguments
    kFilter,     // children: input, null inside a filter block; builtin, arguments
    kTest,       // children: input; builtin, arguments
  };

  Kind kind = Kind::kConstant;
  int line = 0;
  int depth = 1;  // Of the tree below.
  int symbol = -1;
  std::string name = {};
  Value constant = {};
  std::vector<Operator> operators = {};
  std::vector<ExpressionPtr> children = {};
  CallArguments arguments = {};
  Builtin builtin = nullptr;  // Null: no such filter or test, an error when it is reached.
};

struct Statement;
using Block = std::vector<std::unique_ptr<Statement>>;

// What a value is assigned to: a name, an attribute of a namespace, or a tuple of targets.
struct Target {
  int symbol = -1;
  std::string attribute = {};  // Of the namespace in `symbol`.
  std::vector<Target> parts = {};
};

// Parameters and body of a macro, or of a call block.
struct MacroDefinition {
  std::string name = {};
  std::vector<int> parameters = {};
  std::vector<std::string> parameter_names = {};
  std::vector<ExpressionPtr> defaults = {};  // Of the last parameters.
  bool uses_caller = false;
  bool uses_varargs = false;
  bool uses_kwargs = false;
};

struct Statement {
  enum class Kind : uint8_t {
    kText,      // constant
    kPrint,     // value
    kIf,        // branches: (condition, body); else_body
    kFor,       // target, value, condition, body, else_body
    kSet,       // target, value
    kSetBlock,  // target, body, value (a filter, or null)
    kWith,      // assignments, body
    kMacro,     // macro, body; symbol
    kCall,      // value (a call), macro, body
    kFilter,    // value (a filter), body
    kScope,     // body: what a generation block or a named block is
    kBreak,
    kContinue,
  };

  Kind kind = Kind::kText;
  int line = 0;
  int symbol = -1;
  Value constant = {};
  Target target = {};
  ExpressionPtr value = {};
  ExpressionPtr condition = {};
  bool is_recursive = false;
  bool uses_loop = false;
  std::vector<std::pair<ExpressionPtr, Block>> branches = {};
  std::vector<std::pair<Target, ExpressionPtr>> assignments = {};
  MacroDefinition macro = {};
  Block body = {};
  Block else_body = {};
};

struct Template {
  Block body;
  std::vector<std::string> symbols;     // Names of variables, by symbol.
  std::vector<std::string> names_read;  // Sorted; also those that it defines itself.
};

// Symbols that the interpreter itself assigns.
inline constexpr int kLoopSymbol = 0;
inline constexpr int kCallerSymbol = 1;
inline constexpr int kVarargsSymbol = 2;
inline constexpr int kKwargsSymbol = 3;

}  // namespace vitrine::jinja
