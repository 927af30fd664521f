// The tests of templates: `value is NAME`, and the conditions of select and its kin.

#include "model/jinja/builtin_tables.h"
#include "model/jinja/characters.h"
#include "model/jinja/errors.h"
#include "model/jinja/interpreter.h"
#include "model/jinja/operators.h"
#include "model/jinja/printing.h"
#include "model/status.h"

namespace vitrine::jinja {
namespace {

using Result = absl::StatusOr<Value>;
using Kind = Value::Kind;

// Tests of one value.
template <bool (*holds)(const Value&)>
Result Is(Interpreter& /*interpreter*/, const Value& self, const Arguments& arguments) {
  VITRINE_RETURN_IF_ERROR(Bind(arguments, {}).status());
  return Value::Bool(holds(self));
}

bool IsDefined(const Value& value) { return !value.is_undefined(); }
bool IsUndefined(const Value& value) { return value.is_undefined(); }
bool IsNone(const Value& value) { return value.is_none(); }
bool IsBoolean(const Value& value) { return value.is(Kind::kBool); }
bool IsTrue(const Value& value) { return value.is(Kind::kBool) && value.as_bool(); }
bool IsFalse(const Value& value) { return value.is(Kind::kBool) && !value.as_bool(); }
bool IsInteger(const Value& value) { return value.is(Kind::kInt); }
bool IsFloat(const Value& value) { return value.is(Kind::kFloat); }
bool IsNumber(const Value& value) { return value.is_number(); }
bool IsString(const Value& value) { return value.is_string(); }
bool IsMapping(const Value& value) { return value.is(Kind::kDict); }
bool IsSequence(const Value& value) {
  return value.is_string() || value.is_list_or_tuple() || value.is(Kind::kDict) ||
         value.is(Kind::kRange) || value.is_undefined();
}
bool IsIterable(const Value& value) {
  return IsSequence(value) || value.is(Kind::kView) || value.is(Kind::kIterator);
}
bool IsCallable(const Value& value) {
  // An undefined value has the method that raises when it is called.
  return value.is_undefined() || (value.is(Kind::kObject) && value.object().is_callable());
}
bool IsEscaped(const Value& value) { return value.is_string() && value.string().is_markup; }

template <Operator op>
Result Relates(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  VITRINE_ASSIGN_OR_RETURN(const std::vector<Value> bound, Bind(arguments, {"other"}, 1));
  VITRINE_ASSIGN_OR_RETURN(const bool holds, Compare(op, self, bound[0], interpreter.budget()));
  return Value::Bool(holds);
}

Result SameAs(Interpreter& /*interpreter*/, const Value& self, const Arguments& arguments) {
  VITRINE_ASSIGN_OR_RETURN(const std::vector<Value> bound, Bind(arguments, {"other"}, 1));
  return Value::Bool(self.IsSame(bound[0]));
}

template <int64_t remainder>
Result HasRemainderOfTwo(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  VITRINE_RETURN_IF_ERROR(Bind(arguments, {}).status());
  VITRINE_ASSIGN_OR_RETURN(
      const Value rest, Arithmetic(Operator::kModulo, self, Value::Int(2), interpreter.budget()));
  return Value::Bool(Equal(rest, Value::Int(remainder), interpreter.budget()));
}

Result DivisibleBy(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  VITRINE_ASSIGN_OR_RETURN(const std::vector<Value> bound, Bind(arguments, {"num"}, 1));
  VITRINE_ASSIGN_OR_RETURN(const Value rest,
                           Arithmetic(Operator::kModulo, self, bound[0], interpreter.budget()));
  return Value::Bool(Equal(rest, Value::Int(0), interpreter.budget()));
}

// str(value).islower() and isupper().
Result AskString(Interpreter& interpreter, const Value& self, const Arguments& arguments,
                 std::string_view method) {
  VITRINE_ASSIGN_OR_RETURN(Text text, Str(self, interpreter.budget()));
  return FindIn(StringMethods(), method)(interpreter, Value::String(std::move(text)), arguments);
}
Result IsLowerTest(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  return AskString(interpreter, self, arguments, "islower");
}
Result IsUpperTest(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  return AskString(interpreter, self, arguments, "isupper");
}

bool NamesFilter(const Value& value) {
  return value.is_string() && FindFilter(value.view()) != nullptr;
}
bool NamesTest(const Value& value) {
  return value.is_string() && FindTest(value.view()) != nullptr;
}

}  // namespace

BuiltinTable Tests() {
  static constexpr NamedBuiltin kTable[] = {
      {"!=", Relates<Operator::kNotEqual>},
      {"<", Relates<Operator::kLess>},
      {"<=", Relates<Operator::kLessOrEqual>},
      {"==", Relates<Operator::kEqual>},
      {">", Relates<Operator::kGreater>},
      {">=", Relates<Operator::kGreaterOrEqual>},
      {"boolean", Is<IsBoolean>},
      {"callable", Is<IsCallable>},
      {"defined", Is<IsDefined>},
      {"divisibleby", DivisibleBy},
      {"eq", Relates<Operator::kEqual>},
      {"equalto", Relates<Operator::kEqual>},
      {"escaped", Is<IsEscaped>},
      {"even", HasRemainderOfTwo<0>},
      {"false", Is<IsFalse>},
      {"filter", Is<NamesFilter>},
      {"float", Is<IsFloat>},
      {"ge", Relates<Operator::kGreaterOrEqual>},
      {"greaterthan", Relates<Operator::kGreater>},
      {"gt", Relates<Operator::kGreater>},
      {"in", Relates<Operator::kIn>},
      {"integer", Is<IsInteger>},
      {"iterable", Is<IsIterable>},
      {"le", Relates<Operator::kLessOrEqual>},
      {"lessthan", Relates<Operator::kLess>},
      {"lower", IsLowerTest},
      {"lt", Relates<Operator::kLess>},
      {"mapping", Is<IsMapping>},
      {"ne", Relates<Operator::kNotEqual>},
      {"none", Is<IsNone>},
      {"number", Is<IsNumber>},
      {"odd", HasRemainderOfTwo<1>},
      {"sameas", SameAs},
      {"sequence", Is<IsSequence>},
      {"string", Is<IsString>},
      {"test", Is<NamesTest>},
      {"true", Is<IsTrue>},
      {"undefined", Is<IsUndefined>},
      {"upper", IsUpperTest},
  };
  return kTable;
}

}  // namespace vitrine::jinja
