#include "model/jinja/formatting.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <string>
#include <utility>

#include "model/jinja/characters.h"
#include "model/jinja/operators.h"
#include "model/jinja/printing.h"
#include "model/status.h"

namespace vitrine::jinja {
namespace {

constexpr int kMaxWidth = 10'000;
constexpr int kMaxPrecision = 100;

// [[fill]align][sign][#][0][width][,][.precision][type], and what % has of it.
struct FormatSpec {
  std::string fill = " ";
  char align = 0;  // '<', '>', '^' or '='; 0: as the type wants.
  char sign = 0;   // '+' or ' '.
  bool alternate = false;
  bool grouped = false;
  int width = 0;
  int precision = -1;
  char type = 0;
};

// Digits at `offset`, at most `limit`; -1: none. false: too large.
bool ReadNumber(std::string_view text, size_t& offset, int limit, int& number) {
  const size_t begin = offset;
  while (offset < text.size() && text[offset] >= '0' && text[offset] <= '9') ++offset;
  if (begin == offset) {
    number = -1;
    return true;
  }
  const auto [end, error] = std::from_chars(text.data() + begin, text.data() + offset, number);
  return error == std::errc() && number <= limit;
}

absl::StatusOr<FormatSpec> ParseSpec(std::string_view text) {
  constexpr std::string_view kAligns = "<>^=";
  FormatSpec spec;
  size_t i = 0;
  size_t after_fill = 0;
  if (!text.empty()) NextCodePoint(text, after_fill);
  if (after_fill < text.size() && kAligns.find(text[after_fill]) != std::string_view::npos) {
    spec.fill = text.substr(0, after_fill);
    spec.align = text[after_fill];
    i = after_fill + 1;
  } else if (!text.empty() && kAligns.find(text[0]) != std::string_view::npos) {
    spec.align = text[i++];
  }
  const auto takes = [&](char c) { return i < text.size() && text[i] == c ? (++i, true) : false; };
  if (takes('+')) spec.sign = '+';
  if (takes(' ')) spec.sign = ' ';
  takes('-');
  spec.alternate = takes('#');
  if (takes('0') && spec.align == 0) {
    spec.fill = "0";
    spec.align = '=';
  }
  bool is_valid = ReadNumber(text, i, kMaxWidth, spec.width);
  spec.width = std::max(spec.width, 0);
  spec.grouped = takes(',');
  if (takes('.')) is_valid = is_valid && ReadNumber(text, i, kMaxPrecision, spec.precision);
  if (i < text.size()) spec.type = text[i++];
  if (!is_valid || i != text.size()) return EvaluationError({"Invalid format specifier"});
  return spec;
}

// Pads to the width; `sign_length` bytes in front stay there with '='.
void AppendPadded(Text& out, const Text& text, size_t sign_length, const FormatSpec& spec,
                  char default_align, Source fill_source) {
  const size_t length = CountCodePoints(text.view());
  const auto width = static_cast<size_t>(spec.width);
  const size_t padding = width > length ? width - length : 0;
  const char align = spec.align == 0 ? default_align : spec.align;
  const size_t left = align == '<' || align == '=' ? 0 : (align == '>' ? padding : padding / 2);
  const auto pad = [&](size_t count) {
    for (size_t i = 0; i < count; ++i) out.Append(spec.fill, fill_source);
  };
  if (align == '=') {
    out.Append(text, 0, sign_length);
    pad(padding);
    out.Append(text, sign_length, text.size());
    return;
  }
  pad(left);
  out.Append(text);
  pad(padding - left);
}

std::string GroupThousands(std::string digits) {
  const size_t whole = std::min(digits.find('.'), digits.size());
  for (size_t i = whole; i > 3; i -= 3) digits.insert(i - 3, ",");
  return digits;
}

// The digits of |value| in a base.
std::string IntDigits(int64_t value, int base, bool uppercase) {
  const uint64_t magnitude =
      value < 0 ? uint64_t{0} - static_cast<uint64_t>(value) : static_cast<uint64_t>(value);
  std::array<char, 66> buffer;
  const auto [end, error] =
      std::to_chars(buffer.data(), buffer.data() + buffer.size(), magnitude, base);
  std::string digits(buffer.data(), end);
  return uppercase ? ToUpper(digits) : digits;
}

// 1e+06 and 1.5 as C's %e, %f, %g print them.
std::string FloatDigits(double magnitude, const FormatSpec& spec, char type) {
  if (std::isnan(magnitude)) return "nan";
  if (std::isinf(magnitude)) return "inf";
  const char format[] = {'%', '.', '*', type, 0};
  std::string digits(512, '\0');
  const int precision = spec.precision < 0 ? 6 : spec.precision;
  const int length = std::snprintf(digits.data(), digits.size(), format, precision, magnitude);
  digits.resize(static_cast<size_t>(std::clamp(length, 0, 511)));
  return digits;
}

absl::StatusOr<std::string> NumberDigits(const Value& value, const FormatSpec& spec) {
  const auto float_digits = [&](char type) {
    return FloatDigits(std::fabs(value.as_double()), spec, type);
  };
  switch (spec.type) {
    case 'd':
    case 'i':
    case 'u':
    case 0:
      if (value.is_integer()) return IntDigits(value.as_int(), 10, false);
      if (spec.type != 0) break;
      if (spec.precision >= 0) return float_digits('g');
      return FloatText(std::fabs(value.as_double()));
    case 'x':
    case 'X':
    case 'o':
    case 'b': {
      if (!value.is_integer()) break;
      const int base = spec.type == 'o' ? 8 : (spec.type == 'b' ? 2 : 16);
      const std::string prefix = spec.alternate ? std::string("0") + spec.type : "";
      return prefix + IntDigits(value.as_int(), base, spec.type == 'X');
    }
    case 'e':
    case 'E':
    case 'f':
    case 'F':
    case 'g':
    case 'G':
      return float_digits(spec.type);
    case '%':
      return FloatDigits(std::fabs(value.as_double()) * 100, spec, 'f') + "%";
    default:
      break;
  }
  return EvaluationError({"Unknown format code for object of type '", value.type_name(), "'"});
}

absl::Status AppendNumber(Text& out, const Value& value, const FormatSpec& spec) {
  VITRINE_ASSIGN_OR_RETURN(std::string digits, NumberDigits(value, spec));
  if (spec.grouped) digits = GroupThousands(std::move(digits));
  const bool is_negative =
      value.is_integer() ? value.as_int() < 0 : std::signbit(value.as_double());
  std::string sign = is_negative ? "-" : (spec.sign != 0 ? std::string(1, spec.sign) : "");
  const size_t sign_length = sign.size();
  AppendPadded(out, Text(sign + digits, kTemplate), sign_length, spec, '>', kTemplate);
  return absl::OkStatus();
}

void AppendString(Text& out, const Text& text, const FormatSpec& spec, char default_align) {
  const size_t end = spec.precision < 0
                         ? text.size()
                         : OffsetOfCodePoint(text.view(), static_cast<size_t>(spec.precision));
  AppendPadded(out, text.Substr(0, end), 0, spec, default_align, kTemplate);
}

// One conversion of %: its arguments come from a tuple, a dictionary or are a single value.
class PercentFormatter {
 public:
  PercentFormatter(const Value& format, const Value& arguments, Budget& budget)
      : format_(format.text()), arguments_(arguments), budget_(budget) {}

  absl::StatusOr<Value> Run() {
    const std::string_view text = format_.view();
    size_t begin = 0;
    for (size_t i = text.find('%'); i != std::string_view::npos; i = text.find('%', begin)) {
      out_.Append(format_, begin, i);
      begin = i + 1;
      VITRINE_RETURN_IF_ERROR(Convert(text, begin));
      VITRINE_RETURN_IF_ERROR(budget_.Allocate(out_.size() - paid_));
      paid_ = out_.size();
    }
    out_.Append(format_, begin, text.size());
    VITRINE_RETURN_IF_ERROR(budget_.Allocate(out_.size() - paid_));
    const bool is_single = !arguments_.is(Value::Kind::kTuple);
    const size_t given = is_single ? 1 : arguments_.list().items.size();
    const bool may_stay = arguments_.is(Value::Kind::kDict) || arguments_.is(Value::Kind::kList);
    if (next_ < given && !(is_single && may_stay) && !uses_names_) {
      return EvaluationError({"not all arguments converted during string formatting"});
    }
    return Value::String(std::move(out_));
  }

 private:
  absl::StatusOr<Value> NextArgument() {
    const bool is_tuple = arguments_.is(Value::Kind::kTuple);
    const size_t given = is_tuple ? arguments_.list().items.size() : 1;
    if (next_ >= given) return EvaluationError({"not enough arguments for format string"});
    return is_tuple ? arguments_.list().items[next_++] : (++next_, arguments_);
  }

  absl::StatusOr<Value> NamedArgument(std::string_view text, size_t& i) {
    const size_t end = text.find(')', i);
    if (end == std::string_view::npos) return EvaluationError({"incomplete format key"});
    if (!arguments_.is(Value::Kind::kDict)) {
      return EvaluationError({"format requires a mapping"});
    }
    const Value* const found = arguments_.dict().Find(text.substr(i + 1, end - i - 1));
    if (found == nullptr) return EvaluationError({"format names a key that does not exist"});
    uses_names_ = true;
    i = end + 1;
    return *found;
  }

  absl::Status Convert(std::string_view text, size_t& i) {
    FormatSpec spec;
    spec.align = '>';
    Value value;
    if (i < text.size() && text[i] == '(') {
      VITRINE_ASSIGN_OR_RETURN(value, NamedArgument(text, i));
    }
    for (; i < text.size() && std::string_view("-+ #0").find(text[i]) != std::string_view::npos;
         ++i) {
      if (text[i] == '-') spec.align = '<';
      if (text[i] == '+' || text[i] == ' ') spec.sign = text[i];
      if (text[i] == '#') spec.alternate = true;
      if (text[i] == '0' && spec.align != '<') {
        spec.fill = "0";
        spec.align = '=';
      }
    }
    bool is_valid = ReadNumber(text, i, kMaxWidth, spec.width);
    spec.width = std::max(spec.width, 0);
    if (i < text.size() && text[i] == '.') {
      ++i;
      is_valid = is_valid && ReadNumber(text, i, kMaxPrecision, spec.precision);
      spec.precision = std::max(spec.precision, 0);
    }
    if (!is_valid || i >= text.size()) return EvaluationError({"incomplete format"});
    spec.type = text[i++];
    if (spec.type == '%') {
      out_.Append("%", format_.source());
      return absl::OkStatus();
    }
    if (value.is_missing()) {
      VITRINE_ASSIGN_OR_RETURN(value, NextArgument());
    }
    return AppendConverted(value, spec);
  }

  absl::Status AppendConverted(const Value& value, FormatSpec spec) {
    if (spec.type == 's' || spec.type == 'r' || spec.type == 'a') {
      if (spec.fill == "0") spec.fill = " ";
      if (spec.align == '=') spec.align = '>';
      Text text;
      if (spec.type == 's') {
        VITRINE_ASSIGN_OR_RETURN(text, Str(value, budget_));
      } else {
        VITRINE_ASSIGN_OR_RETURN(std::string bytes, Repr(value, budget_));
        text = Text(std::move(bytes), kData);
      }
      AppendString(out_, text, spec, '>');
      return absl::OkStatus();
    }
    if (!value.is_number()) {
      return EvaluationError({"%", std::string(1, spec.type), " format: a number is required, not ",
                              value.type_name()});
    }
    const bool truncates = std::string_view("diu").find(spec.type) != std::string_view::npos;
    if (truncates && value.is(Value::Kind::kFloat)) {
      if (!(std::fabs(value.as_double()) < 9e18)) {
        return EvaluationError({"an integer is outside of 64 bits"});
      }
      return AppendNumber(out_, Value::Int(static_cast<int64_t>(value.as_double())), spec);
    }
    return AppendNumber(out_, value, spec);
  }

  const Text& format_;
  const Value& arguments_;
  Budget& budget_;
  Text out_;
  size_t paid_ = 0;
  size_t next_ = 0;
  bool uses_names_ = false;
};

class BraceFormatter {
 public:
  BraceFormatter(const Value& format, const Arguments& arguments, Budget& budget)
      : format_(format.text()), arguments_(arguments), budget_(budget) {}

  absl::StatusOr<Value> Run() {
    const std::string_view text = format_.view();
    size_t begin = 0;
    for (size_t i = text.find_first_of("{}"); i != std::string_view::npos;
         i = text.find_first_of("{}", begin)) {
      out_.Append(format_, begin, i);
      if (i + 1 < text.size() && text[i + 1] == text[i]) {
        out_.Append(format_, i, i + 1);
        begin = i + 2;
        continue;
      }
      const size_t end = text.find('}', i);
      if (text[i] == '}' || end == std::string_view::npos) {
        return EvaluationError(
            {"Single '", std::string(1, text[i]), "' encountered in format string"});
      }
      VITRINE_RETURN_IF_ERROR(AppendField(text.substr(i + 1, end - i - 1)));
      begin = end + 1;
      VITRINE_RETURN_IF_ERROR(budget_.Allocate(out_.size() - paid_));
      paid_ = out_.size();
    }
    out_.Append(format_, begin, text.size());
    VITRINE_RETURN_IF_ERROR(budget_.Allocate(out_.size() - paid_));
    return Value::String(std::move(out_));
  }

 private:
  // FIELD[!CONVERSION][:SPEC]
  absl::Status AppendField(std::string_view field) {
    if (field.find('{') != std::string_view::npos) {
      return EvaluationError({"nested fields in a format string are not supported"});
    }
    std::string_view spec_text;
    if (const size_t colon = field.find(':'); colon != std::string_view::npos) {
      spec_text = field.substr(colon + 1);
      field = field.substr(0, colon);
    }
    char conversion = 0;
    if (const size_t mark = field.find('!'); mark != std::string_view::npos) {
      conversion = mark + 2 == field.size() ? field[mark + 1] : '?';
      field = field.substr(0, mark);
    }
    VITRINE_ASSIGN_OR_RETURN(const Value value, Lookup(field));
    VITRINE_ASSIGN_OR_RETURN(const FormatSpec spec, ParseSpec(spec_text));
    if (value.is_number() && conversion == 0 && spec.type != 's' &&
        (!value.is(Value::Kind::kBool) || spec.type != 0)) {
      return AppendNumber(out_, value, spec);
    }
    if (spec.type != 0 && spec.type != 's') {
      return EvaluationError({"Unknown format code for object of type '", value.type_name(), "'"});
    }
    Text text;
    if (conversion == 'r') {
      VITRINE_ASSIGN_OR_RETURN(std::string bytes, Repr(value, budget_));
      text = Text(std::move(bytes), kData);
    } else if (conversion == 0 || conversion == 's') {
      VITRINE_ASSIGN_OR_RETURN(text, Str(value, budget_));
    } else {
      return EvaluationError({"Unknown conversion specifier in a format string"});
    }
    AppendString(out_, text, spec, '<');
    return absl::OkStatus();
  }

  // NAME or NUMBER, then .KEY and [KEY].
  absl::StatusOr<Value> Lookup(std::string_view field) {
    const size_t end = std::min(field.find_first_of(".["), field.size());
    VITRINE_ASSIGN_OR_RETURN(Value value, Argument(field.substr(0, end)));
    for (size_t i = end; i < field.size();) {
      const bool is_item = field[i] == '[';
      const size_t close =
          std::min(is_item ? field.find(']', i) : field.find_first_of(".[", i + 1), field.size());
      const std::string_view name = field.substr(i + 1, close - i - 1);
      int index = -1;
      size_t digits = 0;
      const bool is_index = ReadNumber(name, digits, 1 << 30, index) && digits == name.size();
      VITRINE_ASSIGN_OR_RETURN(
          value,
          Item(value, is_index && index >= 0 ? Value::Int(index) : Value::Literal(name), budget_));
      i = close + (is_item ? 1 : 0);
    }
    return value;
  }

  absl::StatusOr<Value> Argument(std::string_view name) {
    int index = -1;
    size_t digits = 0;
    const bool is_index =
        !name.empty() && ReadNumber(name, digits, 1 << 20, index) && digits == name.size();
    if (name.empty()) index = next_++;
    is_numbered_ = is_numbered_ || is_index;
    if (is_numbered_ && next_ > 0) {
      return EvaluationError({"a format string mixes numbered fields with others"});
    }
    if (is_index || name.empty()) {
      if (static_cast<size_t>(index) < arguments_.positional.size()) {
        return arguments_.positional[static_cast<size_t>(index)];
      }
      return EvaluationError({"Replacement index out of range for positional args"});
    }
    for (const auto& [key, value] : arguments_.named) {
      if (key == name) return value;
    }
    return EvaluationError({"a format string names an argument that is not given"});
  }

  const Text& format_;
  const Arguments& arguments_;
  Budget& budget_;
  Text out_;
  size_t paid_ = 0;
  int next_ = 0;
  bool is_numbered_ = false;
};

}  // namespace

absl::StatusOr<Value> PercentFormat(const Value& format, const Value& arguments, Budget& budget) {
  return PercentFormatter(format, arguments, budget).Run();
}

absl::StatusOr<Value> BraceFormat(const Value& format, const Arguments& arguments, Budget& budget) {
  return BraceFormatter(format, arguments, budget).Run();
}

}  // namespace vitrine::jinja
