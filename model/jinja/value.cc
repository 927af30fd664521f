#include "model/jinja/value.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "model/jinja/errors.h"

namespace vitrine::jinja {
namespace {

// Below it a linear search is as fast as an index.
constexpr size_t kIndexedEntries = 16;

bool IsAscii(std::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return static_cast<uint8_t>(c) < 0x80; });
}

int DepthAround(const std::vector<Value>& items) {
  int depth = 0;
  for (const Value& item : items) depth = std::max(depth, item.depth());
  return depth + 1;
}

}  // namespace

Value Value::Undefined(std::string error) {
  Value value(Kind::kUndefined);
  value.node_ = std::make_shared<std::string>(std::move(error));
  return value;
}

Value Value::Bool(bool b) {
  Value value(Kind::kBool);
  value.int_ = b ? 1 : 0;
  return value;
}

Value Value::Int(int64_t i) {
  Value value(Kind::kInt);
  value.int_ = i;
  return value;
}

Value Value::Float(double d) {
  Value value(Kind::kFloat);
  value.float_ = d;
  return value;
}

Value Value::String(Text text) {
  Value value(Kind::kString);
  const bool is_ascii = IsAscii(text.view());
  value.node_ =
      std::make_shared<StringNode>(StringNode{.text = std::move(text), .is_ascii = is_ascii});
  return value;
}

Value Value::Markup(Text text) {
  Value value = String(std::move(text));
  value.Node<StringNode>()->is_markup = true;
  return value;
}

Value Value::Sequence(Kind kind, std::vector<Value> items) {
  Value value(kind);
  const int depth = DepthAround(items);
  value.node_ = std::make_shared<ListNode>(ListNode{.items = std::move(items), .depth = depth});
  return value;
}

Value Value::View(std::string_view name, std::vector<Value> items) {
  Value value = Sequence(Kind::kView, std::move(items));
  value.Node<ListNode>()->view_name = name;
  return value;
}

Value Value::Group(Value key, Value members) {
  std::vector<Value> pair;
  pair.push_back(std::move(key));
  pair.push_back(std::move(members));
  Value value = Tuple(std::move(pair));
  value.Node<ListNode>()->is_group = true;
  return value;
}

Value Value::Dict(DictNode entries) {
  Value value(Kind::kDict);
  for (const auto& [key, item] : entries.entries) {
    entries.depth = std::max({entries.depth, key.depth() + 1, item.depth() + 1});
  }
  value.node_ = std::make_shared<DictNode>(std::move(entries));
  return value;
}

Value Value::Range(int64_t start, int64_t stop, int64_t step) {
  Value value(Kind::kRange);
  value.node_ = std::make_shared<RangeNode>(RangeNode{start, stop, step});
  return value;
}

Value Value::Iterator(std::vector<Value> items) {
  Value value(Kind::kIterator);
  value.int_ = DepthAround(items);
  value.node_ = std::make_shared<IteratorNode>(IteratorNode{.items = std::move(items)});
  return value;
}

Value Value::Of(std::shared_ptr<Object> object) {
  Value value(Kind::kObject);
  value.node_ = std::move(object);
  return value;
}

const Text& Value::text() const { return Node<StringNode>()->text; }

bool Value::IsSame(const Value& other) const {
  if (kind_ != other.kind_) return false;
  return node_ != nullptr ? node_ == other.node_ : int_ == other.int_ && float_ == other.float_;
}

int Value::depth() const {
  switch (kind_) {
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kView:
      return list().depth;
    case Kind::kDict:
      return dict().depth;
    case Kind::kIterator:
      return static_cast<int>(int_);
    default:
      return 0;
  }
}

std::string_view Value::type_name() const {
  switch (kind_) {
    case Kind::kMissing:
    case Kind::kUndefined:
      return "Undefined";
    case Kind::kNone:
      return "NoneType";
    case Kind::kBool:
      return "bool";
    case Kind::kInt:
      return "int";
    case Kind::kFloat:
      return "float";
    case Kind::kString:
      return string().is_markup ? "Markup" : "str";
    case Kind::kList:
      return "list";
    case Kind::kTuple:
      return "tuple";
    case Kind::kView:
      return list().view_name;
    case Kind::kDict:
      return "dict";
    case Kind::kRange:
      return "range";
    case Kind::kIterator:
      return "generator";
    case Kind::kObject:
      return object().type_name();
  }
  return "";
}

std::optional<std::string> KeyOf(const Value& key) {
  std::string text;
  switch (key.kind()) {
    case Value::Kind::kString:
      return Concat({"s", key.view()});
    case Value::Kind::kNone:
      return "n";
    case Value::Kind::kBool:
    case Value::Kind::kInt:
      return "i" + std::to_string(key.as_int());
    case Value::Kind::kFloat:
      if (key.as_double() == std::floor(key.as_double()) && std::fabs(key.as_double()) < 9e15) {
        return "i" + std::to_string(static_cast<int64_t>(key.as_double()));
      }
      return "f" + std::to_string(std::bit_cast<int64_t>(key.as_double()));
    case Value::Kind::kTuple:
      text = "(";
      for (const Value& item : key.list().items) {
        const std::optional<std::string> part = KeyOf(item);
        if (!part) return std::nullopt;
        text += std::to_string(part->size()) + ":" + *part;
      }
      return text;
    default:
      return std::nullopt;
  }
}

const Value* DictNode::Find(const Value& key) const {
  const std::optional<std::string> wanted = KeyOf(key);
  if (!wanted) return nullptr;
  if (!index.empty()) {
    const auto found = index.find(*wanted);
    return found == index.end() ? nullptr : &entries[found->second].second;
  }
  for (const auto& [name, value] : entries) {
    if (KeyOf(name) == wanted) return &value;
  }
  return nullptr;
}

const Value* DictNode::Find(std::string_view key) const {
  if (!index.empty()) {
    const auto found = index.find(Concat({"s", key}));
    return found == index.end() ? nullptr : &entries[found->second].second;
  }
  for (const auto& [name, value] : entries) {
    if (name.is_string() && name.view() == key) return &value;
  }
  return nullptr;
}

void DictNode::Set(Value key, Value value) {
  const Value* const found = Find(key);
  if (found != nullptr) {
    const auto entry = std::find_if(entries.begin(), entries.end(),
                                    [&](const auto& e) { return &e.second == found; });
    entry->second = std::move(value);
    return;
  }
  if (!index.empty()) index.emplace(KeyOf(key).value_or(""), entries.size());
  entries.emplace_back(std::move(key), std::move(value));
  if (index.empty() && entries.size() > kIndexedEntries) {
    for (size_t i = 0; i < entries.size(); ++i) {
      index.emplace(KeyOf(entries[i].first).value_or(""), i);
    }
  }
}

int64_t RangeNode::size() const {
  if (step > 0) return start < stop ? (stop - start - 1) / step + 1 : 0;
  return start > stop ? (start - stop - 1) / -step + 1 : 0;
}

absl::StatusOr<Value> Object::Call(Interpreter& /*interpreter*/, const Arguments& /*arguments*/) {
  return EvaluationError({"'", type_name(), "' object is not callable"});
}

}  // namespace vitrine::jinja
