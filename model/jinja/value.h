// Values of templates: immutable, as in jinja2's immutable sandbox, and cheap to copy. What can
// change (namespaces, loops, iterators) belongs to one rendering and one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "model/jinja/text.h"

namespace vitrine::jinja {

class Interpreter;
class Object;
struct Arguments;
struct DictNode;
struct IteratorNode;
struct ListNode;
struct RangeNode;
struct StringNode;

class Value {
 public:
  enum class Kind : uint8_t {
    kMissing,  // An argument that was not given.
    kUndefined,
    kNone,
    kBool,
    kInt,
    kFloat,
    kString,
    kList,
    kTuple,
    kView,  // What items(), keys() and values() give.
    kDict,
    kRange,
    kIterator,  // Can be walked once.
    kObject,
  };

  Value() = default;
  static Value Undefined(std::string error);  // The message of what may not be done with it.
  static Value None() { return Value(Kind::kNone); }
  static Value Bool(bool value);
  static Value Int(int64_t value);
  static Value Float(double value);
  static Value String(Text text);
  static Value Markup(Text text);  // A string that counts as escaped.
  static Value Literal(std::string_view text) { return String(Text(std::string(text), kTemplate)); }
  static Value Data(std::string_view text) { return String(Text(std::string(text), kData)); }
  static Value List(std::vector<Value> items) { return Sequence(Kind::kList, std::move(items)); }
  static Value Tuple(std::vector<Value> items) { return Sequence(Kind::kTuple, std::move(items)); }
  static Value View(std::string_view name, std::vector<Value> items);
  // A tuple of two whose members also have the names "grouper" and "list".
  static Value Group(Value key, Value members);
  static Value Dict(DictNode entries);
  static Value Range(int64_t start, int64_t stop, int64_t step);
  static Value Iterator(std::vector<Value> items);
  static Value Of(std::shared_ptr<Object> object);

  Kind kind() const { return kind_; }
  bool is(Kind kind) const { return kind_ == kind; }
  bool is_missing() const { return kind_ == Kind::kMissing; }
  bool is_undefined() const { return kind_ == Kind::kUndefined; }
  bool is_none() const { return kind_ == Kind::kNone; }
  bool is_string() const { return kind_ == Kind::kString; }
  bool is_number() const { return kind_ >= Kind::kBool && kind_ <= Kind::kFloat; }
  bool is_integer() const { return kind_ == Kind::kBool || kind_ == Kind::kInt; }
  bool is_list_or_tuple() const { return kind_ == Kind::kList || kind_ == Kind::kTuple; }

  // Of the kind that the name says; as_int also of a bool, as_double of every number, list() of
  // lists, tuples and views.
  bool as_bool() const { return int_ != 0; }
  int64_t as_int() const { return int_; }
  double as_double() const { return kind_ == Kind::kFloat ? float_ : static_cast<double>(int_); }
  const Text& text() const;
  std::string_view view() const { return text().view(); }
  const StringNode& string() const { return *Node<StringNode>(); }
  const ListNode& list() const { return *Node<ListNode>(); }
  const DictNode& dict() const { return *Node<DictNode>(); }
  const RangeNode& range() const { return *Node<RangeNode>(); }
  IteratorNode& iterator() const { return *Node<IteratorNode>(); }
  Object& object() const { return *Node<Object>(); }
  const std::string& error() const { return *Node<std::string>(); }  // Of an undefined value.
  // Same node, or same value where there is none.
  bool IsSame(const Value& other) const;

  // How many containers are nested, this one included; 0 for what is none.
  int depth() const;
  // As in Python: "str", "NoneType".
  std::string_view type_name() const;

 private:
  explicit Value(Kind kind) : kind_(kind) {}
  static Value Sequence(Kind kind, std::vector<Value> items);
  template <class T>
  T* Node() const {
    return static_cast<T*>(node_.get());
  }

  Kind kind_ = Kind::kMissing;
  int64_t int_ = 0;
  double float_ = 0;
  std::shared_ptr<void> node_;
};

// Containers do not nest deeper, so that walking and freeing them cannot exhaust the stack.
inline constexpr int kMaxValueDepth = 100;

struct StringNode {
  Text text;
  bool is_ascii = true;
  bool is_markup = false;
};

struct ListNode {
  std::vector<Value> items;
  int depth = 1;
  std::string_view view_name = {};  // "dict_items"
  bool is_group = false;
};

// Keys in the order of insertion.
struct DictNode {
  std::vector<std::pair<Value, Value>> entries;
  // Key, as KeyOf writes it, to entry; only for larger dictionaries.
  absl::flat_hash_map<std::string, size_t> index = {};
  int depth = 1;

  const Value* Find(const Value& key) const;
  const Value* Find(std::string_view key) const;
  // Adds an entry or replaces its value. `key` is hashable.
  void Set(Value key, Value value);
};

struct RangeNode {
  int64_t start;
  int64_t stop;
  int64_t step;

  int64_t size() const;
  int64_t at(int64_t i) const { return start + i * step; }
};

struct IteratorNode {
  std::vector<Value> items;
  size_t next = 0;
};

struct Arguments {
  std::vector<Value> positional = {};
  std::vector<std::pair<std::string, Value>> named = {};
};

// A value with behaviour of its own: namespaces, loops, macros, functions.
class Object : public std::enable_shared_from_this<Object> {
 public:
  Object() = default;
  virtual ~Object() = default;
  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;

  virtual std::string_view type_name() const = 0;
  virtual std::optional<Value> Attribute(std::string_view name) = 0;
  virtual bool is_callable() const { return false; }
  virtual absl::StatusOr<Value> Call(Interpreter& interpreter, const Arguments& arguments);
  // Lets go of other values, at the end of a rendering.
  virtual void Clear() {}
};

// Equal keys, and only they, give equal strings: 1, 1.0 and True are one key. nullopt: the value
// cannot be a key.
std::optional<std::string> KeyOf(const Value& key);

}  // namespace vitrine::jinja
