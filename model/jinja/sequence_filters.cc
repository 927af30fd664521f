// Filters that work on lists, dictionaries and whatever else can be walked.
#include <algorithm>
#include <charconv>
#include <utility>

#include "absl/container/flat_hash_set.h"
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

bool TruthOf(const Value& argument) { return !argument.is_missing() && Truth(argument); }

// value.a.b.0 for the attribute "a.b.0"; `absent` where there is none.
Result DottedAttribute(Interpreter& interpreter, Value value, const Value& attribute,
                       const Value& absent) {
  if (!attribute.is_string()) {
    VITRINE_ASSIGN_OR_RETURN(value, interpreter.Subscript(value, attribute));
    return value.is_undefined() && !absent.is_missing() ? absent : value;
  }
  std::string_view rest = attribute.view();
  while (true) {
    const std::string_view part = rest.substr(0, rest.find('.'));
    int64_t index = 0;
    const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), index);
    const bool is_index = error == std::errc() && end == part.data() + part.size() && index >= 0;
    VITRINE_ASSIGN_OR_RETURN(
        value,
        interpreter.Subscript(
            value, is_index ? Value::Int(index)
                            : Value::String(Text(std::string(part), attribute.text().source()))));
    if (value.is_undefined() && !absent.is_missing()) return absent;
    if (part.size() == rest.size()) return value;
    rest.remove_prefix(part.size() + 1);
  }
}

// What sort, unique, groupby, min and max compare: an attribute, without case unless asked for.
absl::StatusOr<std::vector<Value>> SortKeys(Interpreter& interpreter,
                                            const std::vector<Value>& items, const Value& attribute,
                                            bool case_sensitive, const Value& absent = Value()) {
  std::vector<Value> keys;
  for (const Value& item : items) {
    Value key = item;
    if (!attribute.is_missing() && !attribute.is_none()) {
      VITRINE_ASSIGN_OR_RETURN(key, DottedAttribute(interpreter, item, attribute, absent));
    }
    if (key.is_string() && !case_sensitive) {
      VITRINE_RETURN_IF_ERROR(interpreter.budget().Allocate(key.view().size()));
      key = Value::String(key.text().Derive(ToLower(key.view())));
    }
    keys.push_back(std::move(key));
  }
  return keys;
}

// The same for attributes with commas between: the first counts most. Always tuples, as in jinja2:
// within one, equal values need no order, so two undefined ones, nulls or dicts may meet.
absl::StatusOr<std::vector<Value>> SeveralSortKeys(Interpreter& interpreter,
                                                   const std::vector<Value>& items,
                                                   const Value& attributes, bool case_sensitive) {
  const bool has_several =
      attributes.is_string() && attributes.view().find(',') != std::string_view::npos;
  std::vector<Value> names;
  if (!has_several) names.push_back(attributes);
  for (std::string_view rest = has_several ? attributes.view() : ""; !rest.empty();) {
    const std::string_view name = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(name.size() + 1, rest.size()));
    names.push_back(Value::String(Text(std::string(name), attributes.text().source())));
  }
  std::vector<std::vector<Value>> parts(items.size());
  for (const Value& attribute : names) {
    VITRINE_ASSIGN_OR_RETURN(const std::vector<Value> keys,
                             SortKeys(interpreter, items, attribute, case_sensitive));
    for (size_t i = 0; i < keys.size(); ++i) parts[i].push_back(keys[i]);
  }
  std::vector<Value> tuples;
  for (std::vector<Value>& part : parts) {
    VITRINE_ASSIGN_OR_RETURN(Value tuple, MakeTuple(std::move(part), interpreter.budget()));
    tuples.push_back(std::move(tuple));
  }
  return tuples;
}

// Positions of `keys` in ascending order; equal ones stay in theirs.
absl::StatusOr<std::vector<size_t>> SortedOrder(const std::vector<Value>& keys, bool is_reverse,
                                                Budget& budget) {
  VITRINE_RETURN_IF_ERROR(CheckSortable(keys, budget));
  std::vector<size_t> order(keys.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return is_reverse ? SortsBefore(keys[b], keys[a]) : SortsBefore(keys[a], keys[b]);
  });
  return order;
}

Result Default(Interpreter& /*interpreter*/, const Value& self, const Arguments& arguments) {
  VITRINE_ASSIGN_OR_RETURN(const std::vector<Value> bound,
                           Bind(arguments, {"default_value", "boolean"}));
  const bool is_absent = self.is_undefined() || (TruthOf(bound[1]) && !Truth(self));
  if (!is_absent) return self;
  return bound[0].is_missing() ? Value::Literal("") : bound[0];
}

Result LengthFilter(Interpreter& /*interpreter*/, const Value& self, const Arguments& arguments) {
  VITRINE_RETURN_IF_ERROR(Bind(arguments, {}).status());
  VITRINE_ASSIGN_OR_RETURN(const int64_t length, Length(self));
  return Value::Int(length);
}

Result First(Interpreter& interpreter, const Value& self, const Arguments& /*arguments*/) {
  if (self.is(Kind::kIterator)) {
    IteratorNode& iterator = self.iterator();
    if (iterator.next < iterator.items.size()) return iterator.items[iterator.next++];
    return Value::Undefined("No first item, sequence was empty.");
  }
  if (self.is_string() && !self.view().empty()) {
    return Item(self, Value::Int(0), interpreter.budget());
  }
  VITRINE_ASSIGN_OR_RETURN(const std::vector<Value> items, Elements(self, interpreter.budget()));
  return items.empty() ? Value::Undefined("No first item, sequence was empty.") : items.front();
}

Result Last(Interpreter& interpreter, const Value& self, const Arguments& /*arguments*/) {
  if (self.is(Kind::kIterator)) {
    return EvaluationError({"'generator' object is not reversible"});
  }
  if (self.is_string() && !self.view().empty()) {
    return Item(self, Value::Int(-1), interpreter.budget());
  }
  VITRINE_ASSIGN_OR_RETURN(const std::vector<Value> items, Elements(self, interpreter.budget()));
  return items.empty() ? Value::Undefined("No last item, sequence was empty.") : items.back();
}

Result Join(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  VITRINE_ASSIGN_OR_RETURN(const std::vector<Value> bound, Bind(arguments, {"d", "attribute"}));
  VITRINE_ASSIGN_OR_RETURN(std::vector<Value> items, Elements(self, interpreter.budget()));
  for (Value& item : items) {
    if (!bound[1].is_missing() && !bound[1].is_none()) {
      VITRINE_ASSIGN_OR_RETURN(item, DottedAttribute(interpreter, item, bound[1], Value()));
    }
    if (item.is_string()) continue;
    VITRINE_ASSIGN_OR_RETURN(Text text, Str(item, interpreter.budget()));
    item = Value::String(std::move(text));
  }
  Text separator;
  if (!bound[0].is_missing()) {
    VITRINE_ASSIGN_OR_RETURN(separator, Str(bound[0], interpreter.budget()));
  }
  return JoinTexts(separator, items, interpreter);
}

Result ListFilter(Interpreter& interpreter, const Value& self, const Arguments& /*arguments*/) {
  VITRINE_ASSIGN_OR_RETURN(std::vector<Value> items, Elements(self, interpreter.budget()));
  return MakeList(std::move(items), interpreter.budget());
}

Result Items(Interpreter& interpreter, const Value& self, const Arguments& /*arguments*/) {
  std::vector<Value> items;
  if (self.is_undefined()) return Value::Iterator(std::move(items));
  if (!self.is(Kind::kDict)) return EvaluationError({"Can only get item pairs from a mapping."});
  VITRINE_RETURN_IF_ERROR(
      interpreter.budget().Allocate(self.dict().entries.size() * 3 * sizeof(Value)));
  for (const auto& [key, value] : self.dict().entries) items.push_back(Value::Tuple({key, value}));
  return Value::Iterator(std::move(items));
}

Result DictSort(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  VITRINE_ASSIGN_OR_RETURN(const std::vector<Value> bound,
                           Bind(arguments, {"case_sensitive", "by", "reverse"}));
  if (!self.is(Kind::kDict)) {
    return EvaluationError({"'", self.type_name(), "' object has no items to sort"});
  }
  const bool by_value = bound[1].is_string() && bound[1].view() == "value";
  std::vector<Value> sorted_by;
  for (const auto& [key, value] : self.dict().entries) sorted_by.push_back(by_value ? value : key);
  VITRINE_ASSIGN_OR_RETURN(const std::vector<Value> keys,
                           SortKeys(interpreter, sorted_by, Value(), TruthOf(bound[0])));
  VITRINE_ASSIGN_OR_RETURN(const std::vector<size_t> order,
                           SortedOrder(keys, TruthOf(bound[2]), interpreter.budget()));
  std::vector<Value> items;
  for (const size_t i : order) {
    items.push_back(Value::Tuple({self.dict().entries[i].first, self.dict().entries[i].second}));
  }
  return MakeList(std::move(items), interpreter.budget());
}

Result Sort(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  VITRINE_ASSIGN_OR_RETURN(const std::vector<Value> bound,
                           Bind(arguments, {"reverse", "case_sensitive", "attribute"}));
  VITRINE_ASSIGN_OR_RETURN(const std::vector<Value> items, Elements(self, interpreter.budget()));
  VITRINE_ASSIGN_OR_RETURN(const std::vector<Value> keys,
                           SeveralSortKeys(interpreter, items, bound[2], TruthOf(bound[1])));
  VITRINE_ASSIGN_OR_RETURN(const std::vector<size_t> order,
                           SortedOrder(keys, TruthOf(bound[0]), interpreter.budget()));
  std::vector<Value> sorted;
  for (const size_t i : order) sorted.push_back(items[i]);
  return MakeList(std::move(sorted), interpreter.budget());
}

Result Unique(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  VITRINE_ASSIGN_OR_RETURN(const std::vector<Value> bound,
                           Bind(arguments, {"case_sensitive", "attribute"}));
  VITRINE_ASSIGN_OR_RETURN(const std::vector<Value> items, Elements(self, interpreter.budget()));
  VITRINE_ASSIGN_OR_RETURN(const std::vector<Value> keys,
                           SortKeys(interpreter, items, bound[1], TruthOf(bound[0])));
  absl::flat_hash_set<std::string> seen;
  std::vector<Value> unique;
  for (size_t i = 0; i < items.size(); ++i) {
    std::optional<std::string> key = KeyOf(keys[i]);
    if (!key) return EvaluationError({"unhashable type: '", keys[i].type_name(), "'"});
    if (seen.insert(*std::move(key)).second) unique.push_back(items[i]);
  }
  return Value::Iterator(std::move(unique));
}

Result GroupBy(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  VITRINE_ASSIGN_OR_RETURN(const std::vector<Value> bound,
                           Bind(arguments, {"attribute", "default", "case_sensitive"}, 1));
  VITRINE_ASSIGN_OR_RETURN(const std::vector<Value> items, Elements(self, interpreter.budget()));
  VITRINE_ASSIGN_OR_RETURN(const std::vector<Value> keys,
                           SortKeys(interpreter, items, bound[0], TruthOf(bound[2]), bound[1]));
  VITRINE_ASSIGN_OR_RETURN(const std::vector<size_t> order,
                           SortedOrder(keys, false, interpreter.budget()));
  std::vector<Value> groups;
  for (size_t i = 0; i < order.size();) {
    std::vector<Value> members;
    const size_t first = order[i];
    for (; i < order.size() && Equal(keys[order[i]], keys[first], interpreter.budget()); ++i) {
      members.push_back(items[order[i]]);
    }
    // Without case the first member's spelling names the group.
    VITRINE_ASSIGN_OR_RETURN(Value key,
                             DottedAttribute(interpreter, items[first], bound[0], bound[1]));
    VITRINE_ASSIGN_OR_RETURN(Value list, MakeList(std::move(members), interpreter.budget()));
    groups.push_back(Value::Group(std::move(key), std::move(list)));
    // NaN equals nothing, not even itself.
    if (i < order.size() && order[i] == first) ++i;
  }
  return MakeList(std::move(groups), interpreter.budget());
}

template <bool wants_max>
Result Extreme(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  VITRINE_ASSIGN_OR_RETURN(const std::vector<Value> bound,
                           Bind(arguments, {"case_sensitive", "attribute"}));
  VITRINE_ASSIGN_OR_RETURN(const std::vector<Value> items, Elements(self, interpreter.budget()));
  if (items.empty()) return Value::Undefined("No aggregated item, sequence was empty.");
  VITRINE_ASSIGN_OR_RETURN(const std::vector<Value> keys,
                           SortKeys(interpreter, items, bound[1], TruthOf(bound[0])));
  VITRINE_RETURN_IF_ERROR(CheckSortable(keys, interpreter.budget()));
  size_t best = 0;
  for (size_t i = 1; i < keys.size(); ++i) {
    const bool is_better =
        wants_max ? SortsBefore(keys[best], keys[i]) : SortsBefore(keys[i], keys[best]);
    if (is_better) best = i;
  }
  return items[best];
}

Result Sum(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  VITRINE_ASSIGN_OR_RETURN(const std::vector<Value> bound, Bind(arguments, {"attribute", "start"}));
  VITRINE_ASSIGN_OR_RETURN(const std::vector<Value> items, Elements(self, interpreter.budget()));
  Value total = bound[1].is_missing() ? Value::Int(0) : bound[1];
  if (total.is_string()) return EvaluationError({"sum() can't sum strings"});
  for (const Value& item : items) {
    Value summand = item;
    if (!bound[0].is_missing() && !bound[0].is_none()) {
      VITRINE_ASSIGN_OR_RETURN(summand, DottedAttribute(interpreter, item, bound[0], Value()));
    }
    VITRINE_ASSIGN_OR_RETURN(total,
                             Arithmetic(Operator::kAdd, total, summand, interpreter.budget()));
  }
  return total;
}

Result Reverse(Interpreter& interpreter, const Value& self, const Arguments& /*arguments*/) {
  VITRINE_ASSIGN_OR_RETURN(std::vector<Value> items, Elements(self, interpreter.budget()));
  std::reverse(items.begin(), items.end());
  if (self.is_string()) return JoinTexts(Text(), items, interpreter);
  return Value::Iterator(std::move(items));
}

Result Batch(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  VITRINE_ASSIGN_OR_RETURN(const std::vector<Value> bound,
                           Bind(arguments, {"linecount", "fill_with"}, 1));
  VITRINE_ASSIGN_OR_RETURN(const int64_t width, IntOr(bound[0], 0));
  VITRINE_ASSIGN_OR_RETURN(const std::vector<Value> items, Elements(self, interpreter.budget()));
  const auto count = static_cast<int64_t>(items.size());
  std::vector<Value> rows;
  for (int64_t begin = 0; begin < count; begin += std::max<int64_t>(width, 1)) {
    const int64_t end = std::min(count, begin + std::max<int64_t>(width, 1));
    std::vector<Value> row(items.begin() + begin, items.begin() + end);
    const bool fills = !bound[1].is_missing() && !bound[1].is_none();
    if (fills && width > static_cast<int64_t>(row.size())) {
      VITRINE_RETURN_IF_ERROR(
          interpreter.budget().Allocate(static_cast<size_t>(width) * sizeof(Value)));
      row.resize(static_cast<size_t>(width), bound[1]);
    }
    VITRINE_ASSIGN_OR_RETURN(Value list, MakeList(std::move(row), interpreter.budget()));
    rows.push_back(std::move(list));
  }
  return Value::Iterator(std::move(rows));
}

Result SliceFilter(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  VITRINE_ASSIGN_OR_RETURN(const std::vector<Value> bound,
                           Bind(arguments, {"slices", "fill_with"}, 1));
  VITRINE_ASSIGN_OR_RETURN(const int64_t slices, IntOr(bound[0], 0));
  VITRINE_ASSIGN_OR_RETURN(const std::vector<Value> items, Elements(self, interpreter.budget()));
  if (slices < 1) return EvaluationError({"integer division or modulo by zero"});
  VITRINE_RETURN_IF_ERROR(interpreter.budget().Allocate(
      static_cast<size_t>(std::min(slices, int64_t{1} << 40)) * sizeof(Value)));
  const auto count = static_cast<int64_t>(items.size());
  std::vector<Value> columns;
  int64_t begin = 0;
  for (int64_t i = 0; i < slices; ++i) {
    VITRINE_RETURN_IF_ERROR(interpreter.budget().Step());
    const int64_t length = count / slices + (i < count % slices ? 1 : 0);
    std::vector<Value> column(items.begin() + begin, items.begin() + begin + length);
    begin += length;
    const bool fills = !bound[1].is_missing() && !bound[1].is_none();
    if (fills && i >= count % slices) column.push_back(bound[1]);
    VITRINE_ASSIGN_OR_RETURN(Value list, MakeList(std::move(column), interpreter.budget()));
    columns.push_back(std::move(list));
  }
  return Value::Iterator(std::move(columns));
}

Result AttributeFilter(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  VITRINE_ASSIGN_OR_RETURN(const std::vector<Value> bound, Bind(arguments, {"name"}, 1));
  if (!bound[0].is_string()) return EvaluationError({"attribute name must be string"});
  // Attributes only, as opposed to keys.
  if (!self.is(Kind::kDict)) return interpreter.Attribute(self, bound[0].view());
  if (FindMethod(self, bound[0].view()) != nullptr) {
    return interpreter.Attribute(self, bound[0].view());
  }
  return Value::Undefined("'dict object' has no such attribute");
}

Result Map(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  if (!Truth(self)) return Value::Iterator({});  // None as well, unlike in a loop.
  VITRINE_ASSIGN_OR_RETURN(std::vector<Value> items, Elements(self, interpreter.budget()));
  if (arguments.positional.empty()) {
    VITRINE_ASSIGN_OR_RETURN(const std::vector<Value> bound,
                             Bind(arguments, {"attribute", "default"}, 1));
    for (Value& item : items) {
      VITRINE_RETURN_IF_ERROR(interpreter.budget().Step());
      VITRINE_ASSIGN_OR_RETURN(item, DottedAttribute(interpreter, item, bound[0], bound[1]));
    }
    return Value::Iterator(std::move(items));
  }
  const Value& name = arguments.positional[0];
  const Builtin filter = name.is_string() ? FindFilter(name.view()) : nullptr;
  if (filter == nullptr) return EvaluationError({"map: there is no such filter"});
  Arguments rest = arguments;
  rest.positional.erase(rest.positional.begin());
  for (Value& item : items) {
    VITRINE_RETURN_IF_ERROR(interpreter.budget().Step());
    VITRINE_ASSIGN_OR_RETURN(item, filter(interpreter, item, rest));
  }
  return Value::Iterator(std::move(items));
}

// select and its kin: [attribute,] [test, arguments of the test].
template <bool keeps, bool takes_attribute>
Result Select(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  if (!Truth(self)) return Value::Iterator({});
  VITRINE_ASSIGN_OR_RETURN(std::vector<Value> items, Elements(self, interpreter.budget()));
  Arguments rest = arguments;
  Value attribute;
  if (takes_attribute) {
    if (rest.positional.empty()) return EvaluationError({"missing parameter for attribute name"});
    attribute = rest.positional[0];
    rest.positional.erase(rest.positional.begin());
  }
  Builtin test = nullptr;
  if (!rest.positional.empty()) {
    const Value& name = rest.positional[0];
    test = name.is_string() ? FindTest(name.view()) : nullptr;
    if (test == nullptr) return EvaluationError({"there is no such test"});
    rest.positional.erase(rest.positional.begin());
  }
  std::vector<Value> kept;
  for (Value& item : items) {
    VITRINE_RETURN_IF_ERROR(interpreter.budget().Step());
    Value tested = item;
    if (takes_attribute) {
      VITRINE_ASSIGN_OR_RETURN(tested, DottedAttribute(interpreter, item, attribute, Value()));
    }
    if (test != nullptr) {
      VITRINE_ASSIGN_OR_RETURN(tested, test(interpreter, tested, rest));
    }
    if (Truth(tested) == keeps) kept.push_back(std::move(item));
  }
  return Value::Iterator(std::move(kept));
}

}  // namespace

BuiltinTable SequenceFilters() {
  static constexpr NamedBuiltin kTable[] = {
      {"attr", AttributeFilter},
      {"batch", Batch},
      {"count", LengthFilter},
      {"d", Default},
      {"default", Default},
      {"dictsort", DictSort},
      {"first", First},
      {"groupby", GroupBy},
      {"items", Items},
      {"join", Join},
      {"last", Last},
      {"length", LengthFilter},
      {"list", ListFilter},
      {"map", Map},
      {"max", Extreme<true>},
      {"min", Extreme<false>},
      {"reject", Select<false, false>},
      {"rejectattr", Select<false, true>},
      {"reverse", Reverse},
      {"select", Select<true, false>},
      {"selectattr", Select<true, true>},
      {"slice", SliceFilter},
      {"sort", Sort},
      {"sum", Sum},
      {"unique", Unique},
  };
  return kTable;
}

}  // namespace vitrine::jinja
