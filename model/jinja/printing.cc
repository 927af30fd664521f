#include "model/jinja/printing.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <string_view>
#include <utility>
#include <vector>

#include "model/jinja/characters.h"
#include "model/jinja/operators.h"
#include "model/status.h"
#include "model/unicode_tables.h"

namespace vitrine::jinja {
namespace {

constexpr std::string_view kHex = "0123456789abcdef";

// str.isprintable for one character that is not ASCII.
bool IsPrintable(uint32_t code) {
  using enum GeneralCategory;
  constexpr CategorySet kHidden = SetOf(kCc, kCcSpace, kCf, kCs, kCo, kCn, kZl, kZp, kZs);
  return (SetOf(GeneralCategories()[code]) & kHidden) == 0;
}

void AppendHex(std::string& out, uint32_t code, int digits) {
  for (int i = digits - 1; i >= 0; --i) out += kHex[code >> (4 * i) & 0xf];
}

void AppendStringRepr(std::string& out, std::string_view text) {
  const bool has_single = text.find('\'') != std::string_view::npos;
  const bool has_double = text.find('"') != std::string_view::npos;
  const char quote = has_single && !has_double ? '"' : '\'';
  out += quote;
  for (size_t i = 0; i < text.size();) {
    const size_t begin = i;
    const uint32_t code = NextCodePoint(text, i);
    if (code == static_cast<uint32_t>(quote) || code == '\\') {
      out += '\\';
      out += static_cast<char>(code);
    } else if (code == '\n' || code == '\r' || code == '\t') {
      out += code == '\n' ? "\\n" : (code == '\r' ? "\\r" : "\\t");
    } else if (code < 0x80 ? code >= ' ' && code < 0x7f : IsPrintable(code)) {
      out += text.substr(begin, i - begin);
    } else {
      out += code < 0x100 ? "\\x" : (code < 0x10000 ? "\\u" : "\\U");
      AppendHex(out, code, code < 0x100 ? 2 : (code < 0x10000 ? 4 : 8));
    }
  }
  out += quote;
}

// Writes values into one string and pays for it as it grows.
class Printer {
 public:
  explicit Printer(Budget& budget) : budget_(budget) {}

  absl::Status Repr(const Value& value) {
    VITRINE_RETURN_IF_ERROR(budget_.Step());
    switch (value.kind()) {
      case Value::Kind::kString:
        VITRINE_RETURN_IF_ERROR(budget_.Allocate(value.view().size()));
        if (value.string().is_markup) out_ += "Markup(";
        AppendStringRepr(out_, value.view());
        if (value.string().is_markup) out_ += ')';
        return absl::OkStatus();
      case Value::Kind::kList:
      case Value::Kind::kTuple:
      case Value::Kind::kView:
        return ReprSequence(value);
      case Value::Kind::kDict:
        return ReprDict(value.dict());
      case Value::Kind::kUndefined:
        out_ += "Undefined";
        return absl::OkStatus();
      default:
        AppendScalar(value);
        return budget_.Allocate(32);
    }
  }

  // str() of what is no string and no container.
  void AppendScalar(const Value& value) {
    switch (value.kind()) {
      case Value::Kind::kNone:
        out_ += "None";
        break;
      case Value::Kind::kBool:
        out_ += value.as_bool() ? "True" : "False";
        break;
      case Value::Kind::kInt:
        out_ += std::to_string(value.as_int());
        break;
      case Value::Kind::kFloat:
        out_ += FloatText(value.as_double());
        break;
      case Value::Kind::kRange: {
        const RangeNode& range = value.range();
        out_ += "range(" + std::to_string(range.start) + ", " + std::to_string(range.stop);
        out_ += range.step == 1 ? ")" : ", " + std::to_string(range.step) + ")";
        break;
      }
      case Value::Kind::kIterator:
      case Value::Kind::kObject:
        out_ += Concat({"<", value.type_name(), ">"});
        break;
      default:
        break;
    }
  }

  std::string Take() { return std::move(out_); }

 private:
  absl::Status ReprSequence(const Value& value) {
    const bool is_tuple = value.is(Value::Kind::kTuple);
    const ListNode& list = value.list();
    if (value.is(Value::Kind::kView)) out_ += Concat({list.view_name, "("});
    out_ += is_tuple ? '(' : '[';
    for (size_t i = 0; i < list.items.size(); ++i) {
      if (i > 0) out_ += ", ";
      VITRINE_RETURN_IF_ERROR(Repr(list.items[i]));
    }
    if (is_tuple && list.items.size() == 1) out_ += ',';
    out_ += is_tuple ? ')' : ']';
    if (value.is(Value::Kind::kView)) out_ += ')';
    return absl::OkStatus();
  }

  absl::Status ReprDict(const DictNode& dict) {
    out_ += '{';
    bool is_first = true;
    for (const auto& [key, value] : dict.entries) {
      if (!std::exchange(is_first, false)) out_ += ", ";
      VITRINE_RETURN_IF_ERROR(Repr(key));
      out_ += ": ";
      VITRINE_RETURN_IF_ERROR(Repr(value));
    }
    out_ += '}';
    return absl::OkStatus();
  }

  Budget& budget_;
  std::string out_;
};

class JsonPrinter {
 public:
  JsonPrinter(const JsonStyle& style, Budget& budget) : style_(style), budget_(budget) {}

  absl::Status Print(const Value& value) {
    VITRINE_RETURN_IF_ERROR(budget_.Step());
    switch (value.kind()) {
      case Value::Kind::kNone:
        out_ += "null";
        return absl::OkStatus();
      case Value::Kind::kBool:
        out_ += value.as_bool() ? "true" : "false";
        return absl::OkStatus();
      case Value::Kind::kInt:
      case Value::Kind::kFloat:
        out_ += NumberText(value);
        return absl::OkStatus();
      case Value::Kind::kString:
        return PrintString(value.view());
      case Value::Kind::kList:
      case Value::Kind::kTuple:
        return PrintList(value.list());
      case Value::Kind::kDict:
        return PrintDict(value.dict());
      default:
        return EvaluationError({"Object of type ", value.type_name(), " is not JSON serializable"});
    }
  }

  std::string Take() { return std::move(out_); }

 private:
  bool has_lines() const { return style_.indent >= 0 || !style_.indent_text.empty(); }

  static std::string NumberText(const Value& value) {
    if (value.is(Value::Kind::kInt)) return std::to_string(value.as_int());
    const double number = value.as_double();
    if (std::isnan(number)) return "NaN";
    if (std::isinf(number)) return number > 0 ? "Infinity" : "-Infinity";
    return FloatText(number);
  }

  absl::Status PrintString(std::string_view text) {
    VITRINE_RETURN_IF_ERROR(budget_.Allocate(2 * text.size() + 2));
    out_ += '"';
    for (size_t i = 0; i < text.size();) {
      const size_t begin = i;
      const uint32_t code = NextCodePoint(text, i);
      const size_t named = std::string_view("\"\\\n\r\t\b\f").find(static_cast<char>(code));
      if (code < 0x80 && named != std::string_view::npos) {
        out_ += '\\';
        out_ += "\"\\nrtbf"[named];
      } else if (code < ' ' || (style_.ensure_ascii && code > 0x7f)) {
        PrintEscaped(code);
      } else {
        out_ += text.substr(begin, i - begin);
      }
    }
    out_ += '"';
    return absl::OkStatus();
  }

  void PrintEscaped(uint32_t code) {
    if (code >= 0x10000) {
      PrintEscaped(0xd800 + ((code - 0x10000) >> 10));
      code = 0xdc00 + (code & 0x3ff);
    }
    out_ += "\\u";
    AppendHex(out_, code, 4);
  }

  // The line break and indentation before a member, or before the end of a container.
  absl::Status BreakLine() {
    if (!has_lines()) return absl::OkStatus();
    out_ += '\n';
    const size_t width =
        style_.indent_text.empty() ? static_cast<size_t>(style_.indent) : style_.indent_text.size();
    VITRINE_RETURN_IF_ERROR(budget_.Allocate(width * static_cast<size_t>(depth_) + 1));
    for (int i = 0; i < depth_; ++i) {
      out_ += style_.indent_text.empty() ? std::string(width, ' ') : style_.indent_text;
    }
    return absl::OkStatus();
  }

  absl::Status PrintList(const ListNode& list) {
    if (list.items.empty()) {
      out_ += "[]";
      return absl::OkStatus();
    }
    out_ += '[';
    ++depth_;
    for (size_t i = 0; i < list.items.size(); ++i) {
      if (i > 0) out_ += style_.item_separator;
      VITRINE_RETURN_IF_ERROR(BreakLine());
      VITRINE_RETURN_IF_ERROR(Print(list.items[i]));
    }
    --depth_;
    VITRINE_RETURN_IF_ERROR(BreakLine());
    out_ += ']';
    return absl::OkStatus();
  }

  absl::StatusOr<std::string> KeyText(const Value& key) {
    switch (key.kind()) {
      case Value::Kind::kString:
        return std::string(key.view());
      case Value::Kind::kInt:
      case Value::Kind::kFloat:
        return NumberText(key);
      case Value::Kind::kBool:
        return std::string(key.as_bool() ? "true" : "false");
      case Value::Kind::kNone:
        return std::string("null");
      default:
        return EvaluationError(
            {"keys must be str, int, float, bool or None, not ", key.type_name()});
    }
  }

  absl::Status PrintDict(const DictNode& dict) {
    if (dict.entries.empty()) {
      out_ += "{}";
      return absl::OkStatus();
    }
    std::vector<std::pair<Value, Value>> entries = dict.entries;
    if (style_.sort_keys) {
      std::vector<Value> keys;
      for (const auto& [key, value] : entries) keys.push_back(key);
      VITRINE_RETURN_IF_ERROR(CheckSortable(keys, budget_));
      std::stable_sort(entries.begin(), entries.end(),
                       [](const auto& a, const auto& b) { return SortsBefore(a.first, b.first); });
    }
    out_ += '{';
    ++depth_;
    bool is_first = true;
    for (const auto& [key, value] : entries) {
      if (!std::exchange(is_first, false)) out_ += style_.item_separator;
      VITRINE_RETURN_IF_ERROR(BreakLine());
      VITRINE_ASSIGN_OR_RETURN(const std::string name, KeyText(key));
      VITRINE_RETURN_IF_ERROR(PrintString(name));
      out_ += style_.key_separator;
      VITRINE_RETURN_IF_ERROR(Print(value));
    }
    --depth_;
    VITRINE_RETURN_IF_ERROR(BreakLine());
    out_ += '}';
    return absl::OkStatus();
  }

  const JsonStyle& style_;
  Budget& budget_;
  std::string out_;
  int depth_ = 0;
};

}  // namespace

std::string FloatText(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  char buffer[64];
  const auto [end, error] =
      std::to_chars(buffer, buffer + sizeof(buffer), value, std::chars_format::scientific);
  const std::string_view text(buffer, static_cast<size_t>(end - buffer));
  const size_t e = text.find('e');
  int exponent = 0;
  std::from_chars(text.data() + e + (text[e + 1] == '+' ? 2 : 1), text.data() + text.size(),
                  exponent);
  std::string digits;
  std::string out;
  for (const char c : text.substr(0, e)) {
    if (c == '-') out += c;
    if (c >= '0' && c <= '9') digits += c;
  }
  const int count = static_cast<int>(digits.size());
  if (exponent < -4 || exponent >= 16) {
    out += digits[0];
    if (count > 1) out += "." + digits.substr(1);
    out += exponent < 0 ? "e-" : "e+";
    const std::string power = std::to_string(std::abs(exponent));
    return out + (power.size() < 2 ? "0" : "") + power;
  }
  if (exponent < 0)
    return out + "0." + std::string(static_cast<size_t>(-exponent - 1), '0') + digits;
  if (count <= exponent + 1) {
    return out + digits + std::string(static_cast<size_t>(exponent + 1 - count), '0') + ".0";
  }
  const auto point = static_cast<size_t>(exponent + 1);
  return out + digits.substr(0, point) + "." + digits.substr(point);
}

absl::StatusOr<Text> Str(const Value& value, Budget& budget) {
  switch (value.kind()) {
    case Value::Kind::kString:
      return value.text();
    case Value::Kind::kMissing:
    case Value::Kind::kUndefined:
      return Text();
    case Value::Kind::kList:
    case Value::Kind::kTuple:
    case Value::Kind::kView:
    case Value::Kind::kDict: {
      VITRINE_ASSIGN_OR_RETURN(std::string text, Repr(value, budget));
      return Text(std::move(text), kData);
    }
    default:
      break;
  }
  Printer printer(budget);
  printer.AppendScalar(value);
  return Text(printer.Take(), kTemplate);
}

absl::StatusOr<std::string> Repr(const Value& value, Budget& budget) {
  Printer printer(budget);
  VITRINE_RETURN_IF_ERROR(printer.Repr(value));
  return printer.Take();
}

absl::StatusOr<Text> JsonText(const Value& value, const JsonStyle& style, Budget& budget) {
  JsonPrinter printer(style, budget);
  VITRINE_RETURN_IF_ERROR(printer.Print(value));
  return Text(printer.Take(), value.is_string() ? value.text().source() : kData);
}

}  // namespace vitrine::jinja
