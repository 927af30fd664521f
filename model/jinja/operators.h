// Python's operators on values. Errors are evaluation errors, or over budget.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "model/jinja/errors.h"
#include "model/jinja/value.h"

namespace vitrine::jinja {

enum class Operator : uint8_t {
  kAdd,
  kSubtract,
  kMultiply,
  kDivide,
  kFloorDivide,
  kModulo,
  kPower,
  kNegative,
  kPositive,
  kEqual,
  kNotEqual,
  kLess,
  kLessOrEqual,
  kGreater,
  kGreaterOrEqual,
  kIn,
  kNotIn,
};

bool Truth(const Value& value);
bool Equal(const Value& a, const Value& b, Budget& budget);
// kEqual to kNotIn.
absl::StatusOr<bool> Compare(Operator op, const Value& a, const Value& b, Budget& budget);
// kAdd to kPower.
absl::StatusOr<Value> Arithmetic(Operator op, const Value& a, const Value& b, Budget& budget);
// kNegative and kPositive.
absl::StatusOr<Value> Sign(Operator op, const Value& value);
absl::StatusOr<bool> Contains(const Value& container, const Value& item, Budget& budget);

// len(value)
absl::StatusOr<int64_t> Length(const Value& value);
// list(value); an iterator is used up.
absl::StatusOr<std::vector<Value>> Elements(const Value& value, Budget& budget);

// value[key] where it is an index or key that exists; undefined otherwise, as jinja2's getitem but
// without its fallback to attributes.
absl::StatusOr<Value> Item(const Value& value, const Value& key, Budget& budget);
// value[start:stop:step]; missing bounds are None.
absl::StatusOr<Value> Slice(const Value& value, const Value& start, const Value& stop,
                            const Value& step, Budget& budget);

// Refuses values that `<` does not order among each other.
absl::Status CheckSortable(const std::vector<Value>& values, Budget& budget);
// a < b for values that CheckSortable accepted.
bool SortsBefore(const Value& a, const Value& b);

// Text that may stand beside `other` if that is a string that counts as escaped (markupsafe).
absl::StatusOr<Text> EscapeHtml(const Value& value, Budget& budget);

// Checks that a container built of these nests no deeper than it may, then makes it.
absl::StatusOr<Value> MakeList(std::vector<Value> items, Budget& budget);
absl::StatusOr<Value> MakeTuple(std::vector<Value> items, Budget& budget);
absl::StatusOr<Value> MakeDict(DictNode entries, Budget& budget);

}  // namespace vitrine::jinja
