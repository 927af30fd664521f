#include "model/jinja/operators.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "model/jinja/characters.h"
#include "model/jinja/formatting.h"
#include "model/jinja/printing.h"
#include "model/status.h"

namespace vitrine::jinja {
namespace {

using Kind = Value::Kind;

constexpr std::string_view kSymbols[] = {"+",           "-", "*",  "/",  "//",    "%",
                                         "** or pow()", "-", "+",  "==", "!=",    "<",
                                         "<=",          ">", ">=", "in", "not in"};

absl::Status TypeError(Operator op, const Value& a, const Value& b) {
  return EvaluationError({"unsupported operand types for ", kSymbols[static_cast<int>(op)], ": '",
                          a.type_name(), "' and '", b.type_name(), "'"});
}

absl::Status IntegerOverflow() { return EvaluationError({"an integer is outside of 64 bits"}); }

// Undefined values refuse every operator but equality.
absl::Status CheckDefined(const Value& value) {
  if (!value.is_undefined()) return absl::OkStatus();
  return EvaluationError({value.error()});
}

absl::StatusOr<Value> FromDouble(double value) { return Value::Float(value); }

absl::StatusOr<Value> PowerOfInts(int64_t base, int64_t exponent) {
  if (exponent < 0) {
    if (base == 0) return EvaluationError({"0.0 cannot be raised to a negative power"});
    return FromDouble(std::pow(static_cast<double>(base), static_cast<double>(exponent)));
  }
  int64_t result = 1;
  for (int64_t factor = base; exponent > 0; exponent >>= 1) {
    if ((exponent & 1) != 0 && __builtin_mul_overflow(result, factor, &result)) {
      return IntegerOverflow();
    }
    if (exponent > 1 && __builtin_mul_overflow(factor, factor, &factor)) return IntegerOverflow();
  }
  return Value::Int(result);
}

absl::StatusOr<Value> DivideInts(Operator op, int64_t a, int64_t b) {
  if (b == 0) return EvaluationError({"integer division or modulo by zero"});
  if (a == INT64_MIN && b == -1) return IntegerOverflow();
  int64_t quotient = a / b;
  int64_t rest = a % b;
  if (rest != 0 && (rest < 0) != (b < 0)) {  // Python rounds down.
    --quotient;
    rest += b;
  }
  return Value::Int(op == Operator::kModulo ? rest : quotient);
}

absl::StatusOr<Value> IntArithmetic(Operator op, int64_t a, int64_t b) {
  int64_t result = 0;
  bool overflows = false;
  switch (op) {
    case Operator::kAdd:
      overflows = __builtin_add_overflow(a, b, &result);
      break;
    case Operator::kSubtract:
      overflows = __builtin_sub_overflow(a, b, &result);
      break;
    case Operator::kMultiply:
      overflows = __builtin_mul_overflow(a, b, &result);
      break;
    case Operator::kPower:
      return PowerOfInts(a, b);
    default:
      return DivideInts(op, a, b);
  }
  if (overflows) return IntegerOverflow();
  return Value::Int(result);
}

absl::StatusOr<Value> FloatArithmetic(Operator op, double a, double b) {
  const bool divides =
      op == Operator::kDivide || op == Operator::kFloorDivide || op == Operator::kModulo;
  if (divides && b == 0) return EvaluationError({"division by zero"});
  switch (op) {
    case Operator::kAdd:
      return FromDouble(a + b);
    case Operator::kSubtract:
      return FromDouble(a - b);
    case Operator::kMultiply:
      return FromDouble(a * b);
    case Operator::kDivide:
      return FromDouble(a / b);
    case Operator::kFloorDivide:
      return FromDouble(std::floor(a / b));
    case Operator::kModulo: {
      const double rest = std::fmod(a, b);
      return FromDouble(rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest);
    }
    default:
      if (a == 0 && b < 0) return EvaluationError({"0.0 cannot be raised to a negative power"});
      if (a < 0 && b != std::floor(b))
        return EvaluationError({"complex numbers are not supported"});
      return FromDouble(std::pow(a, b));
  }
}

absl::StatusOr<Value> AddStrings(const Value& a, const Value& b, Budget& budget) {
  VITRINE_RETURN_IF_ERROR(budget.Allocate(a.view().size() + b.view().size()));
  if (!a.string().is_markup && !b.string().is_markup) {
    Text text = a.text();
    text.Append(b.text());
    return Value::String(std::move(text));
  }
  VITRINE_ASSIGN_OR_RETURN(Text text, EscapeHtml(a, budget));
  VITRINE_ASSIGN_OR_RETURN(const Text rest, EscapeHtml(b, budget));
  text.Append(rest);
  return Value::Markup(std::move(text));
}

absl::StatusOr<Value> Repeat(const Value& value, int64_t times, Budget& budget) {
  times = std::max<int64_t>(times, 0);
  const size_t size = value.is_string() ? value.view().size() : value.list().items.size();
  const size_t unit = value.is_string() ? 1 : sizeof(Value);
  size_t bytes = 0;
  if (__builtin_mul_overflow(size * unit, static_cast<size_t>(times), &bytes)) bytes = SIZE_MAX;
  VITRINE_RETURN_IF_ERROR(budget.Allocate(bytes));
  if (value.is_string()) {
    Text text;
    for (int64_t i = 0; i < times && size > 0; ++i) text.Append(value.text());
    return value.string().is_markup ? Value::Markup(std::move(text))
                                    : Value::String(std::move(text));
  }
  std::vector<Value> items;
  for (int64_t i = 0; i < times && size > 0; ++i) {
    items.insert(items.end(), value.list().items.begin(), value.list().items.end());
  }
  return value.is(Kind::kList) ? Value::List(std::move(items)) : Value::Tuple(std::move(items));
}

absl::StatusOr<Value> JoinLists(const Value& a, const Value& b, Budget& budget) {
  std::vector<Value> items = a.list().items;
  items.insert(items.end(), b.list().items.begin(), b.list().items.end());
  return a.is(Kind::kList) ? MakeList(std::move(items), budget)
                           : MakeTuple(std::move(items), budget);
}

bool EqualLists(const std::vector<Value>& a, const std::vector<Value>& b, Budget& budget) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (!Equal(a[i], b[i], budget)) return false;
  }
  return true;
}

bool EqualDicts(const DictNode& a, const DictNode& b, Budget& budget) {
  if (a.entries.size() != b.entries.size()) return false;
  for (const auto& [key, value] : a.entries) {
    if (b.index.empty()) budget.Charge(static_cast<int64_t>(b.entries.size()));
    const Value* const other = b.Find(key);
    if (other == nullptr || !Equal(value, *other, budget)) return false;
  }
  return true;
}

// -1, 0 or 1; 2 where one is NaN.
absl::StatusOr<int> Order(const Value& a, const Value& b, Budget& budget) {
  const auto of = [](auto x, auto y) { return x < y ? -1 : (x == y ? 0 : (x > y ? 1 : 2)); };
  if (a.is_integer() && b.is_integer()) return of(a.as_int(), b.as_int());
  if (a.is_number() && b.is_number()) return of(a.as_double(), b.as_double());
  if (a.is_string() && b.is_string()) {
    budget.Charge(static_cast<int64_t>(std::min(a.view().size(), b.view().size()) / 64));
    // Bytes of UTF-8 are in the order of the code points.
    return of(a.view().compare(b.view()), 0);
  }
  if (a.is_list_or_tuple() && a.kind() == b.kind()) {
    const std::vector<Value>& left = a.list().items;
    const std::vector<Value>& right = b.list().items;
    for (size_t i = 0; i < std::min(left.size(), right.size()); ++i) {
      if (!Equal(left[i], right[i], budget)) return Order(left[i], right[i], budget);
    }
    return of(left.size(), right.size());
  }
  VITRINE_RETURN_IF_ERROR(CheckDefined(a));
  VITRINE_RETURN_IF_ERROR(CheckDefined(b));
  return EvaluationError(
      {"values of type '", a.type_name(), "' and '", b.type_name(), "' have no order"});
}

struct SliceBounds {
  int64_t start;
  int64_t count;
  int64_t step;
};

// What Python's slice.indices makes of the bounds, for a sequence of `size`.
absl::StatusOr<SliceBounds> ResolveSlice(const Value& start, const Value& stop, const Value& step,
                                         int64_t size) {
  for (const Value* bound : {&start, &stop, &step}) {
    VITRINE_RETURN_IF_ERROR(CheckDefined(*bound));
    if (!bound->is_none() && !bound->is_integer()) {
      return EvaluationError({"slice indices must be integers or None"});
    }
  }
  const int64_t stride = step.is_none() ? 1 : step.as_int();
  if (stride == 0) return EvaluationError({"slice step cannot be zero"});
  const bool is_forward = stride > 0;
  const int64_t low = is_forward ? 0 : -1;
  const int64_t high = is_forward ? size : size - 1;
  const auto resolve = [&](const Value& bound, int64_t absent) {
    if (bound.is_none()) return absent;
    const int64_t index =
        bound.as_int() < 0 ? std::max(bound.as_int(), -size - 1) + size : bound.as_int();
    return std::clamp(index, low, high);
  };
  const int64_t first = resolve(start, is_forward ? low : high);
  const int64_t last = resolve(stop, is_forward ? high : low);
  // Steps beyond the size all reach one element; INT64_MIN has no opposite.
  const int64_t pace = std::clamp(stride, -size - 1, size + 1);
  return SliceBounds{first, RangeNode{first, last, pace}.size(), pace};
}

absl::StatusOr<Value> SliceString(const Value& value, const SliceBounds& bounds, Budget& budget) {
  const std::string_view bytes = value.view();
  Text text;
  if (bounds.step == 1) {
    if (bounds.count <= 0) return Value::String(Text());
    const auto begin = static_cast<size_t>(bounds.start);
    const size_t end = begin + static_cast<size_t>(bounds.count);
    const bool is_ascii = value.string().is_ascii;
    const size_t from = is_ascii ? begin : OffsetOfCodePoint(bytes, begin);
    const size_t to = is_ascii ? end : from + OffsetOfCodePoint(bytes.substr(from), end - begin);
    VITRINE_RETURN_IF_ERROR(budget.Allocate(to - from));
    return Value::String(value.text().Substr(from, to));
  }
  std::vector<size_t> offsets;
  VITRINE_RETURN_IF_ERROR(budget.Allocate(bytes.size() * sizeof(size_t)));
  for (size_t i = 0; i < bytes.size(); NextCodePoint(bytes, i)) offsets.push_back(i);
  offsets.push_back(bytes.size());
  for (int64_t i = 0; i < bounds.count; ++i) {
    const auto at = static_cast<size_t>(bounds.start + i * bounds.step);
    text.Append(value.text(), offsets[at], offsets[at + 1]);
  }
  return Value::String(std::move(text));
}

Value NoElement(const Value& value) {
  return Value::Undefined(Concat({"'", value.type_name(), " object' has no such element"}));
}

absl::StatusOr<Value> Character(const Value& value, int64_t index, Budget& budget) {
  budget.Charge(value.string().is_ascii ? 0 : static_cast<int64_t>(value.view().size() / 64));
  return SliceString(value, {index, 1, 1}, budget);
}

}  // namespace

bool Truth(const Value& value) {
  switch (value.kind()) {
    case Kind::kMissing:
    case Kind::kUndefined:
    case Kind::kNone:
      return false;
    case Kind::kBool:
    case Kind::kInt:
      return value.as_int() != 0;
    case Kind::kFloat:
      return value.as_double() != 0;
    case Kind::kString:
      return !value.view().empty();
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kView:
      return !value.list().items.empty();
    case Kind::kDict:
      return !value.dict().entries.empty();
    case Kind::kRange:
      return value.range().size() > 0;
    case Kind::kIterator:
    case Kind::kObject:
      return true;
  }
  return false;
}

bool Equal(const Value& a, const Value& b, Budget& budget) {
  budget.Charge(1);
  if (a.is_number() && b.is_number()) {
    if (a.is_integer() && b.is_integer()) return a.as_int() == b.as_int();
    return a.as_double() == b.as_double();
  }
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Kind::kMissing:
    case Kind::kUndefined:
    case Kind::kNone:
      return true;
    case Kind::kString:
      budget.Charge(static_cast<int64_t>(std::min(a.view().size(), b.view().size()) / 256));
      return a.view() == b.view();
    case Kind::kList:
    case Kind::kTuple:
      return EqualLists(a.list().items, b.list().items, budget);
    case Kind::kDict:
      return EqualDicts(a.dict(), b.dict(), budget);
    case Kind::kRange:
      return a.range().size() == b.range().size() &&
             (a.range().size() == 0 || a.range().start == b.range().start) &&
             (a.range().size() <= 1 || a.range().step == b.range().step);
    default:
      return a.IsSame(b);
  }
}

absl::StatusOr<bool> Compare(Operator op, const Value& a, const Value& b, Budget& budget) {
  if (op == Operator::kEqual) return Equal(a, b, budget);
  if (op == Operator::kNotEqual) return !Equal(a, b, budget);
  if (op == Operator::kIn) return Contains(b, a, budget);
  if (op == Operator::kNotIn) {
    VITRINE_ASSIGN_OR_RETURN(const bool contains, Contains(b, a, budget));
    return !contains;
  }
  VITRINE_ASSIGN_OR_RETURN(const int order, Order(a, b, budget));
  switch (op) {
    case Operator::kLess:
      return order == -1;
    case Operator::kLessOrEqual:
      return order == -1 || order == 0;
    case Operator::kGreater:
      return order == 1;
    default:
      return order == 0 || order == 1;
  }
}

absl::StatusOr<Value> Arithmetic(Operator op, const Value& a, const Value& b, Budget& budget) {
  VITRINE_RETURN_IF_ERROR(CheckDefined(a));
  if (op == Operator::kModulo && a.is_string()) return PercentFormat(a, b, budget);
  VITRINE_RETURN_IF_ERROR(CheckDefined(b));
  if (a.is_integer() && b.is_integer()) {
    if (op == Operator::kDivide) return FloatArithmetic(op, a.as_double(), b.as_double());
    return IntArithmetic(op, a.as_int(), b.as_int());
  }
  if (a.is_number() && b.is_number()) return FloatArithmetic(op, a.as_double(), b.as_double());
  if (op == Operator::kAdd) {
    if (a.is_string() && b.is_string()) return AddStrings(a, b, budget);
    if (a.is_list_or_tuple() && a.kind() == b.kind()) return JoinLists(a, b, budget);
  }
  if (op == Operator::kMultiply) {
    const auto is_sequence = [](const Value& v) { return v.is_string() || v.is_list_or_tuple(); };
    if (is_sequence(a) && b.is_integer()) return Repeat(a, b.as_int(), budget);
    if (a.is_integer() && is_sequence(b)) return Repeat(b, a.as_int(), budget);
  }
  return TypeError(op, a, b);
}

absl::StatusOr<Value> Sign(Operator op, const Value& value) {
  VITRINE_RETURN_IF_ERROR(CheckDefined(value));
  if (!value.is_number()) {
    return EvaluationError({"bad operand type for unary ", kSymbols[static_cast<int>(op)], ": '",
                            value.type_name(), "'"});
  }
  const bool negates = op == Operator::kNegative;
  if (value.is(Kind::kFloat)) return Value::Float(negates ? -value.as_double() : value.as_double());
  if (negates && value.as_int() == INT64_MIN) return IntegerOverflow();
  return Value::Int(negates ? -value.as_int() : value.as_int());
}

absl::StatusOr<bool> Contains(const Value& container, const Value& item, Budget& budget) {
  switch (container.kind()) {
    case Kind::kString:
      if (!item.is_string()) {
        return EvaluationError(
            {"'in <string>' requires string as left operand, not ", item.type_name()});
      }
      budget.Charge(static_cast<int64_t>(container.view().size() / 64));
      return container.view().find(item.view()) != std::string_view::npos;
    case Kind::kDict:
      if (!KeyOf(item)) return EvaluationError({"unhashable type: '", item.type_name(), "'"});
      if (container.dict().index.empty()) budget.Charge(1);
      return container.dict().Find(item) != nullptr;
    case Kind::kUndefined:
      return false;
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kView:
    case Kind::kRange:
    case Kind::kIterator:
      break;
    default:
      return EvaluationError({"argument of type '", container.type_name(), "' is not iterable"});
  }
  VITRINE_ASSIGN_OR_RETURN(const std::vector<Value> elements, Elements(container, budget));
  return std::any_of(elements.begin(), elements.end(),
                     [&](const Value& element) { return Equal(element, item, budget); });
}

absl::StatusOr<int64_t> Length(const Value& value) {
  switch (value.kind()) {
    case Kind::kString:
      return static_cast<int64_t>(value.string().is_ascii ? value.view().size()
                                                          : CountCodePoints(value.view()));
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kView:
      return static_cast<int64_t>(value.list().items.size());
    case Kind::kDict:
      return static_cast<int64_t>(value.dict().entries.size());
    case Kind::kRange:
      return value.range().size();
    case Kind::kUndefined:
      return 0;
    default:
      return EvaluationError({"object of type '", value.type_name(), "' has no len()"});
  }
}

absl::StatusOr<std::vector<Value>> Elements(const Value& value, Budget& budget) {
  std::vector<Value> elements;
  switch (value.kind()) {
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kView:
      VITRINE_RETURN_IF_ERROR(budget.Allocate(value.list().items.size() * sizeof(Value)));
      return value.list().items;
    case Kind::kDict:
      VITRINE_RETURN_IF_ERROR(budget.Allocate(value.dict().entries.size() * sizeof(Value)));
      for (const auto& [key, item] : value.dict().entries) elements.push_back(key);
      return elements;
    case Kind::kString: {
      constexpr size_t kBytesPerCharacter = sizeof(Value) + sizeof(StringNode);
      VITRINE_RETURN_IF_ERROR(budget.Allocate(value.view().size() * kBytesPerCharacter));
      for (size_t i = 0; i < value.view().size();) {
        const size_t begin = i;
        NextCodePoint(value.view(), i);
        elements.push_back(Value::String(value.text().Substr(begin, i)));
      }
      return elements;
    }
    case Kind::kRange:
      VITRINE_RETURN_IF_ERROR(
          budget.Allocate(static_cast<size_t>(value.range().size()) * sizeof(Value)));
      for (int64_t i = 0; i < value.range().size(); ++i) {
        elements.push_back(Value::Int(value.range().at(i)));
      }
      return elements;
    case Kind::kIterator: {
      IteratorNode& iterator = value.iterator();
      elements.assign(iterator.items.begin() + static_cast<ptrdiff_t>(iterator.next),
                      iterator.items.end());
      iterator.next = iterator.items.size();
      return elements;
    }
    case Kind::kUndefined:
      return elements;
    default:
      return EvaluationError({"'", value.type_name(), "' object is not iterable"});
  }
}

absl::StatusOr<Value> Item(const Value& value, const Value& key, Budget& budget) {
  VITRINE_RETURN_IF_ERROR(CheckDefined(value));
  if (value.is(Kind::kDict)) {
    const Value* const found = value.dict().Find(key);
    if (found != nullptr) return *found;
    if (key.is_string() && key.text().source() == kTemplate) {
      return Value::Undefined(Concat({"'dict object' has no attribute '", key.view(), "'"}));
    }
    return NoElement(value);
  }
  const bool is_indexed = value.is_string() || value.is_list_or_tuple() || value.is(Kind::kRange);
  if (!is_indexed || !key.is_integer()) return NoElement(value);
  VITRINE_ASSIGN_OR_RETURN(const int64_t size, Length(value));
  const int64_t index = key.as_int() < 0 ? key.as_int() + size : key.as_int();
  if (index < 0 || index >= size) return NoElement(value);
  if (value.is_string()) return Character(value, index, budget);
  if (value.is(Kind::kRange)) return Value::Int(value.range().at(index));
  return value.list().items[static_cast<size_t>(index)];
}

absl::StatusOr<Value> Slice(const Value& value, const Value& start, const Value& stop,
                            const Value& step, Budget& budget) {
  VITRINE_RETURN_IF_ERROR(CheckDefined(value));
  if (!value.is_string() && !value.is_list_or_tuple() && !value.is(Kind::kRange)) {
    return NoElement(value);
  }
  VITRINE_ASSIGN_OR_RETURN(const int64_t size, Length(value));
  VITRINE_ASSIGN_OR_RETURN(const SliceBounds bounds, ResolveSlice(start, stop, step, size));
  if (value.is_string()) return SliceString(value, bounds, budget);
  if (value.is(Kind::kRange)) {
    const RangeNode& range = value.range();
    const int64_t pace = range.step * bounds.step;
    const int64_t first = range.at(bounds.start);
    return Value::Range(first, first + bounds.count * pace, pace);
  }
  VITRINE_RETURN_IF_ERROR(budget.Allocate(static_cast<size_t>(bounds.count) * sizeof(Value)));
  std::vector<Value> items;
  for (int64_t i = 0; i < bounds.count; ++i) {
    items.push_back(value.list().items[static_cast<size_t>(bounds.start + i * bounds.step)]);
  }
  return value.is(Kind::kList) ? Value::List(std::move(items)) : Value::Tuple(std::move(items));
}

absl::Status CheckSortable(const std::vector<Value>& values, Budget& budget) {
  // Neighbours suffice: order exists within a type, and numbers are one type.
  budget.Charge(static_cast<int64_t>(values.size()) * 8);
  for (size_t i = 1; i < values.size(); ++i) {
    VITRINE_RETURN_IF_ERROR(Order(values[i], values[i - 1], budget).status());
  }
  return budget.Step();
}

bool SortsBefore(const Value& a, const Value& b) {
  Budget unlimited{Limits{.steps = INT64_MAX}};
  const absl::StatusOr<int> order = Order(a, b, unlimited);
  return order.ok() && *order == -1;
}

absl::StatusOr<Text> EscapeHtml(const Value& value, Budget& budget) {
  VITRINE_ASSIGN_OR_RETURN(const Text text, Str(value, budget));
  if (value.is_string() && value.string().is_markup) return text;
  VITRINE_RETURN_IF_ERROR(budget.Allocate(2 * text.size()));
  constexpr std::string_view kSpecial = "&<>'\"";
  constexpr std::string_view kEscapes[] = {"&amp;", "&lt;", "&gt;", "&#39;", "&#34;"};
  Text escaped;
  size_t begin = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const size_t special = kSpecial.find(text.view()[i]);
    if (special == std::string_view::npos) continue;
    escaped.Append(text, begin, i);
    escaped.Append(kEscapes[special], text.source());
    begin = i + 1;
  }
  escaped.Append(text, begin, text.size());
  return escaped;
}

absl::StatusOr<Value> MakeList(std::vector<Value> items, Budget& budget) {
  VITRINE_RETURN_IF_ERROR(budget.Allocate(items.size() * sizeof(Value) + sizeof(ListNode)));
  Value list = Value::List(std::move(items));
  if (list.depth() <= kMaxValueDepth) return list;
  return OverBudget({"lists nest deeper than they may"});
}

absl::StatusOr<Value> MakeTuple(std::vector<Value> items, Budget& budget) {
  VITRINE_RETURN_IF_ERROR(budget.Allocate(items.size() * sizeof(Value) + sizeof(ListNode)));
  Value tuple = Value::Tuple(std::move(items));
  if (tuple.depth() <= kMaxValueDepth) return tuple;
  return OverBudget({"tuples nest deeper than they may"});
}

absl::StatusOr<Value> MakeDict(DictNode entries, Budget& budget) {
  VITRINE_RETURN_IF_ERROR(
      budget.Allocate(entries.entries.size() * 2 * sizeof(Value) + sizeof(DictNode)));
  Value dict = Value::Dict(std::move(entries));
  if (dict.depth() <= kMaxValueDepth) return dict;
  return OverBudget({"dictionaries nest deeper than they may"});
}

}  // namespace vitrine::jinja
