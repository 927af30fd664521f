// Filters that work on one string, or make one.
#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <utility>

#include "model/jinja/builtin_tables.h"
#include "model/jinja/characters.h"
#include "model/jinja/errors.h"
#include "model/jinja/formatting.h"
#include "model/jinja/interpreter.h"
#include "model/jinja/operators.h"
#include "model/jinja/printing.h"
#include "model/status.h"

namespace vitrine::jinja {
namespace {

using Result = absl::StatusOr<Value>;

template <std::string (*map)(std::string_view)>
Result MapText(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  VITRINE_RETURN_IF_ERROR(Bind(arguments, {}).status());
  VITRINE_ASSIGN_OR_RETURN(const Text text, Str(self, interpreter.budget()));
  VITRINE_RETURN_IF_ERROR(interpreter.budget().Allocate(2 * text.size()));
  return Value::String(text.Derive(map(text.view())));
}

// The filter `title` breaks words at fewer places than str.title.
std::string TitleWords(std::string_view text) {
  constexpr std::string_view kBreaks = "-({[<";
  std::string out;
  for (size_t i = 0; i < text.size();) {
    const auto is_break = [&](size_t at) {
      size_t next = at;
      const uint32_t code = NextCodePoint(text, next);
      return IsSpace(code) ||
             (code < 0x80 && kBreaks.find(static_cast<char>(code)) != std::string_view::npos);
    };
    size_t first_end = i;
    NextCodePoint(text, first_end);
    if (is_break(i)) {
      out += text.substr(i, first_end - i);
      i = first_end;
      continue;
    }
    size_t end = first_end;
    while (end < text.size() && !is_break(end)) NextCodePoint(text, end);
    out += ToUpper(text.substr(i, first_end - i));
    out += ToLower(text.substr(first_end, end - first_end));
    i = end;
  }
  return out;
}

Result Trim(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  VITRINE_ASSIGN_OR_RETURN(const std::vector<Value> bound, Bind(arguments, {"chars"}));
  VITRINE_ASSIGN_OR_RETURN(Text text, Str(self, interpreter.budget()));
  Arguments method;
  method.positional.push_back(bound[0].is_missing() ? Value::None() : bound[0]);
  return FindIn(StringMethods(), "strip")(interpreter, Value::String(std::move(text)), method);
}

Result Replace(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  VITRINE_ASSIGN_OR_RETURN(const std::vector<Value> bound,
                           Bind(arguments, {"old", "new", "count"}, 2));
  VITRINE_ASSIGN_OR_RETURN(const Text text, Str(self, interpreter.budget()));
  VITRINE_ASSIGN_OR_RETURN(const Text old, Str(bound[0], interpreter.budget()));
  VITRINE_ASSIGN_OR_RETURN(const Text replacement, Str(bound[1], interpreter.budget()));
  VITRINE_ASSIGN_OR_RETURN(const int64_t count, IntOr(bound[2], -1));
  return ReplaceText(text, old, replacement, count, interpreter);
}

Result Indent(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  VITRINE_ASSIGN_OR_RETURN(const std::vector<Value> bound,
                           Bind(arguments, {"width", "first", "blank"}));
  VITRINE_ASSIGN_OR_RETURN(Text text, Str(self, interpreter.budget()));
  Text indention;
  if (bound[0].is_string()) {
    indention = bound[0].text();
  } else {
    VITRINE_ASSIGN_OR_RETURN(const int64_t width, IntOr(bound[0], 4));
    const auto spaces = static_cast<size_t>(std::max<int64_t>(width, 0));
    VITRINE_RETURN_IF_ERROR(interpreter.budget().Allocate(spaces));
    indention = Text(std::string(spaces, ' '), kTemplate);
  }
  text.Append("\n", kTemplate);
  VITRINE_ASSIGN_OR_RETURN(const std::vector<Text> lines, SplitLines(text, false, interpreter));
  Text out;
  if (!bound[1].is_missing() && Truth(bound[1])) out.Append(indention);
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) {
      VITRINE_RETURN_IF_ERROR(
          interpreter.budget().Allocate(lines[i].size() + indention.size() + 1));
      out.Append("\n", kTemplate);
      if (!lines[i].empty() || Truth(bound[2])) out.Append(indention);
    }
    out.Append(lines[i]);
  }
  return Value::String(std::move(out));
}

Result Truncate(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  VITRINE_ASSIGN_OR_RETURN(const std::vector<Value> bound,
                           Bind(arguments, {"length", "killwords", "end", "leeway"}));
  VITRINE_ASSIGN_OR_RETURN(const int64_t length, IntOr(bound[0], 255));
  VITRINE_ASSIGN_OR_RETURN(const int64_t leeway, IntOr(bound[3], 5));
  VITRINE_ASSIGN_OR_RETURN(const Text text, Str(self, interpreter.budget()));
  Text end("...", kTemplate);
  if (!bound[2].is_missing()) {
    VITRINE_ASSIGN_OR_RETURN(end, Str(bound[2], interpreter.budget()));
  }
  const auto end_length = static_cast<int64_t>(CountCodePoints(end.view()));
  if (length < end_length || leeway < 0) return EvaluationError({"expected a greater length"});
  if (static_cast<int64_t>(CountCodePoints(text.view())) <= length + leeway) {
    return Value::String(text);
  }
  size_t cut = OffsetOfCodePoint(text.view(), static_cast<size_t>(length - end_length));
  if (bound[1].is_missing() || !Truth(bound[1])) {
    const size_t space = text.view().substr(0, cut).rfind(' ');
    if (space != std::string_view::npos) cut = space;
  }
  VITRINE_RETURN_IF_ERROR(interpreter.budget().Allocate(cut + end.size()));
  Text out = text.Substr(0, cut);
  out.Append(end);
  return Value::String(std::move(out));
}

Result Center(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  VITRINE_ASSIGN_OR_RETURN(const std::vector<Value> bound, Bind(arguments, {"width"}));
  VITRINE_ASSIGN_OR_RETURN(const Text text, Str(self, interpreter.budget()));
  VITRINE_ASSIGN_OR_RETURN(const int64_t width, IntOr(bound[0], 80));
  return PadText(text, width, '^', " ", interpreter);
}

Result WordCount(Interpreter& interpreter, const Value& self, const Arguments& /*arguments*/) {
  VITRINE_ASSIGN_OR_RETURN(const Text text, Str(self, interpreter.budget()));
  int64_t words = 0;
  bool in_word = false;
  for (size_t i = 0; i < text.size();) {
    const bool is_word = IsWordCharacter(NextCodePoint(text.view(), i));
    words += is_word && !in_word ? 1 : 0;
    in_word = is_word;
  }
  return Value::Int(words);
}

Result ToStringFilter(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  VITRINE_RETURN_IF_ERROR(Bind(arguments, {}).status());
  if (self.is_string()) return self;
  VITRINE_ASSIGN_OR_RETURN(Text text, Str(self, interpreter.budget()));
  return Value::String(std::move(text));
}

Result Safe(Interpreter& interpreter, const Value& self, const Arguments& /*arguments*/) {
  VITRINE_ASSIGN_OR_RETURN(Text text, Str(self, interpreter.budget()));
  return Value::Markup(std::move(text));
}

Result Escape(Interpreter& interpreter, const Value& self, const Arguments& /*arguments*/) {
  VITRINE_ASSIGN_OR_RETURN(Text text, EscapeHtml(self, interpreter.budget()));
  return Value::Markup(std::move(text));
}

Result ForceEscape(Interpreter& interpreter, const Value& self, const Arguments& /*arguments*/) {
  VITRINE_ASSIGN_OR_RETURN(Text text, Str(self, interpreter.budget()));
  VITRINE_ASSIGN_OR_RETURN(text, EscapeHtml(Value::String(std::move(text)), interpreter.budget()));
  return Value::Markup(std::move(text));
}

Result Format(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  VITRINE_ASSIGN_OR_RETURN(Text text, Str(self, interpreter.budget()));
  Value values = Value::Tuple(arguments.positional);
  if (!arguments.named.empty()) {
    if (!arguments.positional.empty()) {
      return EvaluationError({"can't handle positional and keyword arguments at the same time"});
    }
    DictNode dict;
    for (const auto& [name, value] : arguments.named) dict.Set(Value::Literal(name), value);
    values = Value::Dict(std::move(dict));
  }
  return PercentFormat(Value::String(std::move(text)), values, interpreter.budget());
}

Result ToJson(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  VITRINE_ASSIGN_OR_RETURN(const std::vector<Value> bound,
                           Bind(arguments, {"ensure_ascii", "indent", "separators", "sort_keys"}));
  JsonStyle style;
  style.ensure_ascii = Truth(bound[0]);
  if (bound[1].is_string()) {
    style.indent_text = bound[1].view();
    style.indent = 0;
  } else {
    VITRINE_ASSIGN_OR_RETURN(const int64_t indent, IntOr(bound[1], -1));
    style.indent = static_cast<int>(std::clamp<int64_t>(indent, -1, 1000));
    if (indent < 0 && bound[1].is_integer()) style.indent = 0;
  }
  if (style.indent >= 0) style.item_separator = ",";
  if (bound[2].is_list_or_tuple()) {
    const std::vector<Value>& separators = bound[2].list().items;
    if (separators.size() != 2 || !separators[0].is_string() || !separators[1].is_string()) {
      return EvaluationError({"separators must be two strings"});
    }
    style.item_separator = separators[0].view();
    style.key_separator = separators[1].view();
  } else if (!bound[2].is_missing() && !bound[2].is_none()) {
    return EvaluationError({"separators must be two strings"});
  }
  style.sort_keys = Truth(bound[3]);
  VITRINE_ASSIGN_OR_RETURN(Text text, JsonText(self, style, interpreter.budget()));
  return Value::String(std::move(text));
}

std::string QuoteUrl(std::string_view text, bool keeps_slash) {
  constexpr std::string_view kHex = "0123456789ABCDEF";
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<uint8_t>(c);
    const bool is_safe = (byte < 0x80 && std::isalnum(byte) != 0) ||
                         std::string_view("_.-~").find(c) != std::string_view::npos;
    if (is_safe || (c == '/' && keeps_slash)) {
      out += c;
    } else if (c == ' ' && !keeps_slash) {
      out += '+';
    } else {
      out += '%';
      out += kHex[byte >> 4];
      out += kHex[byte & 0xf];
    }
  }
  return out;
}

Result UrlEncode(Interpreter& interpreter, const Value& self, const Arguments& /*arguments*/) {
  if (!self.is(Value::Kind::kDict)) {
    VITRINE_ASSIGN_OR_RETURN(const Text text, Str(self, interpreter.budget()));
    VITRINE_RETURN_IF_ERROR(interpreter.budget().Allocate(3 * text.size()));
    return Value::String(text.Derive(QuoteUrl(text.view(), true)));
  }
  std::string query;
  for (const auto& [key, value] : self.dict().entries) {
    VITRINE_ASSIGN_OR_RETURN(const Text name, Str(key, interpreter.budget()));
    VITRINE_ASSIGN_OR_RETURN(const Text text, Str(value, interpreter.budget()));
    VITRINE_RETURN_IF_ERROR(interpreter.budget().Allocate(3 * (name.size() + text.size())));
    if (!query.empty()) query += '&';
    query += QuoteUrl(name.view(), false) + "=" + QuoteUrl(text.view(), false);
  }
  return Value::String(Text(std::move(query), kData));
}

// The number that a text is, as int(text, base) and float(text) read it; missing when it is none.
Value ReadInt(std::string_view text, int base) {
  const Bounds bounds = StripSpace(text, Ends::kBoth);
  std::string digits(text.substr(bounds.begin, bounds.end - bounds.begin));
  if (digits.starts_with('_') || digits.ends_with('_')) return Value();
  std::erase(digits, '_');
  const bool is_negative = digits.starts_with('-');
  if (is_negative || digits.starts_with('+')) digits.erase(0, 1);
  const std::string_view prefix = base == 16 ? "0x" : (base == 8 ? "0o" : "0b");
  if (base != 10 && ToLower(digits).starts_with(prefix)) digits.erase(0, 2);
  uint64_t magnitude = 0;
  const char* const digits_end = digits.data() + digits.size();
  const auto [end, error] = std::from_chars(digits.data(), digits_end, magnitude, base);
  if (error != std::errc() || end != digits_end || magnitude > INT64_MAX) return Value();
  const auto number = static_cast<int64_t>(magnitude);
  return Value::Int(is_negative ? -number : number);
}

Value ReadFloat(std::string_view text) {
  const Bounds bounds = StripSpace(text, Ends::kBoth);
  std::string digits(text.substr(bounds.begin, bounds.end - bounds.begin));
  std::erase(digits, '_');
  if (digits.starts_with('+')) digits.erase(0, 1);
  double number = 0;
  const char* const digits_end = digits.data() + digits.size();
  const auto [end, error] = std::from_chars(digits.data(), digits_end, number);
  if (error == std::errc::result_out_of_range) {
    return Value::Float(digits.starts_with('-') ? -HUGE_VAL : HUGE_VAL);
  }
  if (error != std::errc() || end != digits_end) return Value();
  return Value::Float(number);
}

Result ToInt(Interpreter& /*interpreter*/, const Value& self, const Arguments& arguments) {
  VITRINE_ASSIGN_OR_RETURN(const std::vector<Value> bound, Bind(arguments, {"default", "base"}));
  if (self.is_undefined()) return EvaluationError({self.error()});
  VITRINE_ASSIGN_OR_RETURN(const int64_t base, IntOr(bound[1], 10));
  if (base < 2 || base > 36) return EvaluationError({"int() base must be >= 2 and <= 36"});
  Value number;
  if (self.is_integer()) number = Value::Int(self.as_int());
  if (self.is_string()) {
    number = ReadInt(self.view(), static_cast<int>(base));
    if (number.is_missing()) number = ReadFloat(self.view());
  } else if (self.is(Value::Kind::kFloat)) {
    number = self;
  }
  if (number.is(Value::Kind::kFloat)) {
    const double value = std::trunc(number.as_double());
    number = std::fabs(value) < 9.2e18 ? Value::Int(static_cast<int64_t>(value)) : Value();
  }
  if (!number.is_missing()) return number;
  return bound[0].is_missing() ? Value::Int(0) : bound[0];
}

Result ToFloat(Interpreter& /*interpreter*/, const Value& self, const Arguments& arguments) {
  VITRINE_ASSIGN_OR_RETURN(const std::vector<Value> bound, Bind(arguments, {"default"}));
  if (self.is_undefined()) return EvaluationError({self.error()});
  Value number;
  if (self.is_number()) number = Value::Float(self.as_double());
  if (self.is_string()) number = ReadFloat(self.view());
  if (!number.is_missing()) return number;
  return bound[0].is_missing() ? Value::Float(0) : bound[0];
}

Result Abs(Interpreter& /*interpreter*/, const Value& self, const Arguments& arguments) {
  VITRINE_RETURN_IF_ERROR(Bind(arguments, {}).status());
  if (self.is_number() && self.as_double() >= 0 && !self.is(Value::Kind::kBool)) return self;
  return Sign(
      self.is(Value::Kind::kBool) && self.as_bool() ? Operator::kPositive : Operator::kNegative,
      self);
}

// Half to even on the decimal digits, as Python's round does.
double RoundTo(double value, int64_t digits) {
  if (!std::isfinite(value) || digits > 300) return value;
  if (digits < 0) {
    const double unit = std::pow(10.0, static_cast<double>(std::min<int64_t>(-digits, 300)));
    return std::nearbyint(value / unit) * unit;
  }
  // Printing rounds the exact value of the double correctly.
  char buffer[700];
  const auto [end, error] = std::to_chars(buffer, buffer + sizeof(buffer), value,
                                          std::chars_format::fixed, static_cast<int>(digits));
  double rounded = value;
  std::from_chars(buffer, end, rounded);
  return rounded;
}

Result Round(Interpreter& /*interpreter*/, const Value& self, const Arguments& arguments) {
  VITRINE_ASSIGN_OR_RETURN(const std::vector<Value> bound,
                           Bind(arguments, {"precision", "method"}));
  if (self.is_undefined()) return EvaluationError({self.error()});
  if (!self.is_number()) return EvaluationError({"type ", self.type_name(), " cannot be rounded"});
  VITRINE_ASSIGN_OR_RETURN(const int64_t precision, IntOr(bound[0], 0));
  const std::string_view method =
      bound[1].is_string() ? bound[1].view() : std::string_view("common");
  if (method == "common") {
    if (!self.is_integer()) return Value::Float(RoundTo(self.as_double(), precision));
    if (precision >= 0) return Value::Int(self.as_int());
    return Value::Int(static_cast<int64_t>(RoundTo(self.as_double(), precision)));
  }
  if (method != "ceil" && method != "floor") {
    return EvaluationError({"method must be common, ceil or floor"});
  }
  const double unit = std::pow(10.0, static_cast<double>(precision));
  const double scaled = self.as_double() * unit;
  return Value::Float((method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / unit);
}

}  // namespace

BuiltinTable TextFilters() {
  static constexpr NamedBuiltin kTable[] = {
      {"abs", Abs},
      {"capitalize", MapText<Capitalize>},
      {"center", Center},
      {"e", Escape},
      {"escape", Escape},
      {"float", ToFloat},
      {"forceescape", ForceEscape},
      {"format", Format},
      {"indent", Indent},
      {"int", ToInt},
      {"lower", MapText<ToLower>},
      {"replace", Replace},
      {"round", Round},
      {"safe", Safe},
      {"string", ToStringFilter},
      {"title", MapText<TitleWords>},
      {"tojson", ToJson},
      {"trim", Trim},
      {"truncate", Truncate},
      {"upper", MapText<ToUpper>},
      {"urlencode", UrlEncode},
      {"wordcount", WordCount},
  };
  return kTable;
}

}  // namespace vitrine::jinja
