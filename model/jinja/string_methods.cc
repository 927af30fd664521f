// Methods of strings, as Python's str has them.
#include <algorithm>
#include <optional>
#include <utility>

#include "model/jinja/builtin_tables.h"
#include "model/jinja/characters.h"
#include "model/jinja/errors.h"
#include "model/jinja/formatting.h"
#include "model/jinja/interpreter.h"
#include "model/jinja/operators.h"
#include "model/status.h"

namespace vitrine::jinja {
namespace {

using Result = absl::StatusOr<Value>;

absl::Status NeedsString(const Value& value) {
  if (value.is_string()) return absl::OkStatus();
  return EvaluationError({"expected a string, not ", value.type_name()});
}

// Methods without arguments that map the whole string.
template <std::string (*map)(std::string_view)>
Result MapCase(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  VITRINE_RETURN_IF_ERROR(Bind(arguments, {}).status());
  VITRINE_RETURN_IF_ERROR(interpreter.budget().Allocate(2 * self.view().size()));
  return Value::String(self.text().Derive(map(self.view())));
}

// Methods that ask whether all characters, of which there must be one, have a property.
template <bool (*holds)(uint32_t)>
Result AllAre(Interpreter& interpreter, const Value& self, const Arguments& /*arguments*/) {
  const std::string_view text = self.view();
  interpreter.budget().Charge(static_cast<int64_t>(text.size() / 64));
  for (size_t i = 0; i < text.size();) {
    if (!holds(NextCodePoint(text, i))) return Value::Bool(false);
  }
  return Value::Bool(!text.empty());
}

bool IsLetterOrNumber(uint32_t code) { return IsLetter(code) || IsNumeric(code); }
// str.isdigit also takes superscripts and circled digits; those are all numeric and none a letter.
bool IsDigit(uint32_t code) {
  return IsDecimal(code) || code == 0xb2 || code == 0xb3 || code == 0xb9 ||
         (code >= 0x2070 && code <= 0x2089 && IsNumeric(code)) ||
         (code >= 0x2460 && code <= 0x2468);
}

Result IsAsciiMethod(Interpreter& /*interpreter*/, const Value& self, const Arguments& /*args*/) {
  return Value::Bool(self.string().is_ascii);
}

Result IsIdentifier(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  size_t first = 0;
  if (self.view().empty() || IsNumeric(NextCodePoint(self.view(), first))) {
    return Value::Bool(false);
  }
  return AllAre<IsWordCharacter>(interpreter, self, arguments);
}

// At least one cased character, and none of the other case.
template <bool (*wanted)(uint32_t), bool (*other)(uint32_t)>
Result CaseIs(Interpreter& interpreter, const Value& self, const Arguments& /*arguments*/) {
  interpreter.budget().Charge(static_cast<int64_t>(self.view().size() / 64));
  bool found = false;
  for (size_t i = 0; i < self.view().size();) {
    const uint32_t code = NextCodePoint(self.view(), i);
    if (other(code) || IsTitle(code)) return Value::Bool(false);
    found = found || wanted(code);
  }
  return Value::Bool(found);
}

Result IsTitleMethod(Interpreter& interpreter, const Value& self, const Arguments& /*arguments*/) {
  interpreter.budget().Charge(static_cast<int64_t>(self.view().size() / 64));
  bool in_word = false;
  bool found = false;
  for (size_t i = 0; i < self.view().size();) {
    const uint32_t code = NextCodePoint(self.view(), i);
    const bool opens = IsUpper(code) || IsTitle(code);
    if (opens ? in_word : IsLower(code) && !in_word) return Value::Bool(false);
    in_word = opens || IsLower(code);
    found = found || in_word;
  }
  return Value::Bool(found);
}

template <Ends ends>
Result Strip(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  VITRINE_ASSIGN_OR_RETURN(const std::vector<Value> bound, Bind(arguments, {"chars"}));
  Bounds bounds = {};
  if (bound[0].is_missing() || bound[0].is_none()) {
    bounds = StripSpace(self.view(), ends);
  } else {
    VITRINE_RETURN_IF_ERROR(NeedsString(bound[0]));
    VITRINE_RETURN_IF_ERROR(interpreter.budget().Allocate(8 * bound[0].view().size()));
    bounds = StripCharacters(self.view(), bound[0].view(), ends);
  }
  VITRINE_RETURN_IF_ERROR(interpreter.budget().Allocate(bounds.end - bounds.begin));
  return Value::String(self.text().Substr(bounds.begin, bounds.end));
}

// What `count` pieces of a text cost.
absl::Status PayForPieces(const Text& text, size_t count, Interpreter& interpreter) {
  constexpr size_t kPieceBytes = sizeof(Bounds) + sizeof(Value) + sizeof(StringNode);
  return interpreter.budget().Allocate(text.size() + count * kPieceBytes);
}

Value ListOf(const Text& text, const std::vector<Bounds>& pieces) {
  std::vector<Value> items;
  for (const Bounds& piece : pieces) {
    items.push_back(Value::String(text.Substr(piece.begin, piece.end)));
  }
  return Value::List(std::move(items));
}

size_t CountWords(std::string_view text) {
  size_t words = 0;
  bool in_word = false;
  for (size_t i = 0; i < text.size();) {
    const bool is_space = IsSpace(NextCodePoint(text, i));
    words += !is_space && !in_word ? 1 : 0;
    in_word = !is_space;
  }
  return words;
}

size_t CountMatches(std::string_view text, std::string_view wanted) {
  size_t matches = 0;
  for (size_t at = text.find(wanted); at != std::string_view::npos;
       at = text.find(wanted, at + wanted.size())) {
    ++matches;
  }
  return matches;
}

std::vector<Bounds> SplitAtSpace(std::string_view text, int64_t limit) {
  std::vector<Bounds> pieces;
  size_t at = StripSpace(text, Ends::kLeft).begin;
  while (at < text.size()) {
    if (limit >= 0 && static_cast<int64_t>(pieces.size()) == limit) {
      pieces.push_back({at, text.size()});
      break;
    }
    size_t end = at;
    for (size_t next = end; end < text.size(); end = next) {
      if (IsSpace(NextCodePoint(text, next))) break;
    }
    pieces.push_back({at, end});
    at = end + StripSpace(text.substr(end), Ends::kLeft).begin;
  }
  return pieces;
}

std::vector<Bounds> RightSplitAtSpace(std::string_view text, int64_t limit) {
  std::vector<Bounds> pieces = SplitAtSpace(text, -1);
  if (limit < 0 || static_cast<int64_t>(pieces.size()) <= limit) return pieces;
  const size_t merged = pieces.size() - static_cast<size_t>(limit);
  // The rest keeps the space in front of it.
  const Bounds rest = {0, pieces[merged - 1].end};
  pieces.erase(pieces.begin(), pieces.begin() + static_cast<ptrdiff_t>(merged));
  pieces.insert(pieces.begin(), rest);
  return pieces;
}

std::vector<Bounds> SplitAt(std::string_view text, std::string_view separator, int64_t limit) {
  std::vector<Bounds> pieces;
  size_t begin = 0;
  while (limit < 0 || static_cast<int64_t>(pieces.size()) < limit) {
    const size_t end = text.find(separator, begin);
    if (end == std::string_view::npos) break;
    pieces.push_back({begin, end});
    begin = end + separator.size();
  }
  pieces.push_back({begin, text.size()});
  return pieces;
}

std::vector<Bounds> RightSplitAt(std::string_view text, std::string_view separator, int64_t limit) {
  std::vector<Bounds> pieces;
  size_t end = text.size();
  while (limit < 0 || static_cast<int64_t>(pieces.size()) < limit) {
    const size_t begin = end < separator.size() ? std::string_view::npos
                                                : text.rfind(separator, end - separator.size());
    if (begin == std::string_view::npos) break;
    pieces.push_back({begin + separator.size(), end});
    end = begin;
  }
  pieces.push_back({0, end});
  std::reverse(pieces.begin(), pieces.end());
  return pieces;
}

template <bool from_right>
Result Split(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  VITRINE_ASSIGN_OR_RETURN(const std::vector<Value> bound, Bind(arguments, {"sep", "maxsplit"}));
  VITRINE_ASSIGN_OR_RETURN(const int64_t limit, IntOr(bound[1], -1));
  if (bound[0].is_missing() || bound[0].is_none()) {
    VITRINE_RETURN_IF_ERROR(PayForPieces(self.text(), CountWords(self.view()), interpreter));
    return ListOf(self.text(), from_right ? RightSplitAtSpace(self.view(), limit)
                                          : SplitAtSpace(self.view(), limit));
  }
  VITRINE_RETURN_IF_ERROR(NeedsString(bound[0]));
  const std::string_view separator = bound[0].view();
  if (separator.empty()) return EvaluationError({"empty separator"});
  VITRINE_RETURN_IF_ERROR(
      PayForPieces(self.text(), CountMatches(self.view(), separator) + 1, interpreter));
  return ListOf(self.text(), from_right ? RightSplitAt(self.view(), separator, limit)
                                        : SplitAt(self.view(), separator, limit));
}

Result SplitLinesMethod(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  VITRINE_ASSIGN_OR_RETURN(const std::vector<Value> bound, Bind(arguments, {"keepends"}));
  VITRINE_ASSIGN_OR_RETURN(std::vector<Text> lines,
                           SplitLines(self.text(), Truth(bound[0]), interpreter));
  std::vector<Value> items;
  for (Text& line : lines) items.push_back(Value::String(std::move(line)));
  return MakeList(std::move(items), interpreter.budget());
}

template <bool from_right>
Result Partition(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  VITRINE_ASSIGN_OR_RETURN(const std::vector<Value> bound, Bind(arguments, {"sep"}, 1));
  VITRINE_RETURN_IF_ERROR(NeedsString(bound[0]));
  const std::string_view separator = bound[0].view();
  if (separator.empty()) return EvaluationError({"empty separator"});
  VITRINE_RETURN_IF_ERROR(interpreter.budget().Allocate(self.view().size()));
  const size_t at = from_right ? self.view().rfind(separator) : self.view().find(separator);
  std::vector<Value> parts(3, Value::Literal(""));
  if (at == std::string_view::npos) {
    parts[from_right ? 2 : 0] = self;
  } else {
    const size_t end = at + separator.size();
    parts[0] = Value::String(self.text().Substr(0, at));
    parts[1] = Value::String(self.text().Substr(at, end));
    parts[2] = Value::String(self.text().Substr(end, self.view().size()));
  }
  return Value::Tuple(std::move(parts));
}

template <bool at_end>
Result StartsOrEndsWith(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  VITRINE_ASSIGN_OR_RETURN(const std::vector<Value> bound,
                           Bind(arguments, {"prefix", "start", "end"}, 1));
  std::vector<Value> candidates = {bound[0]};
  if (bound[0].is(Value::Kind::kTuple)) candidates = bound[0].list().items;
  Value text = self;
  if (!bound[1].is_missing()) {
    const Value end = bound[2].is_missing() ? Value::None() : bound[2];
    VITRINE_ASSIGN_OR_RETURN(text, Slice(self, bound[1], end, Value::None(), interpreter.budget()));
  }
  for (const Value& candidate : candidates) {
    VITRINE_RETURN_IF_ERROR(NeedsString(candidate));
    const bool matches = at_end ? text.view().ends_with(candidate.view())
                                : text.view().starts_with(candidate.view());
    if (matches) return Value::Bool(true);
  }
  return Value::Bool(false);
}

template <bool at_end>
Result RemoveEnd(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  VITRINE_ASSIGN_OR_RETURN(const std::vector<Value> bound, Bind(arguments, {"affix"}, 1));
  VITRINE_RETURN_IF_ERROR(NeedsString(bound[0]));
  VITRINE_RETURN_IF_ERROR(interpreter.budget().Allocate(self.view().size()));
  const size_t size = self.view().size();
  const size_t affix = bound[0].view().size();
  if (at_end && self.view().ends_with(bound[0].view())) {
    return Value::String(self.text().Substr(0, size - affix));
  }
  if (!at_end && self.view().starts_with(bound[0].view())) {
    return Value::String(self.text().Substr(affix, size));
  }
  return self;
}

// Index in code points of the first or last match; -1: none.
template <bool from_right>
absl::StatusOr<int64_t> FindText(Interpreter& interpreter, const Value& self,
                                 const Arguments& arguments) {
  VITRINE_ASSIGN_OR_RETURN(const std::vector<Value> bound,
                           Bind(arguments, {"sub", "start", "end"}, 1));
  VITRINE_RETURN_IF_ERROR(NeedsString(bound[0]));
  interpreter.budget().Charge(static_cast<int64_t>(self.view().size() / 64));
  Value text = self;
  int64_t skipped = 0;
  if (!bound[1].is_missing()) {
    VITRINE_ASSIGN_OR_RETURN(const int64_t start, IntOr(bound[1], 0));
    VITRINE_ASSIGN_OR_RETURN(const int64_t size, Length(self));
    skipped = std::clamp<int64_t>(start < 0 ? start + size : start, 0, size);
    const Value end = bound[2].is_missing() ? Value::None() : bound[2];
    VITRINE_ASSIGN_OR_RETURN(
        text, Slice(self, Value::Int(start), end, Value::None(), interpreter.budget()));
  }
  const size_t at =
      from_right ? text.view().rfind(bound[0].view()) : text.view().find(bound[0].view());
  if (at == std::string_view::npos) return -1;
  return skipped + static_cast<int64_t>(CountCodePoints(text.view().substr(0, at)));
}

template <bool from_right>
Result Find(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  VITRINE_ASSIGN_OR_RETURN(const int64_t index, FindText<from_right>(interpreter, self, arguments));
  return Value::Int(index);
}

template <bool from_right>
Result Index(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  VITRINE_ASSIGN_OR_RETURN(const int64_t index, FindText<from_right>(interpreter, self, arguments));
  if (index < 0) return EvaluationError({"substring not found"});
  return Value::Int(index);
}

Result Count(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  VITRINE_ASSIGN_OR_RETURN(const std::vector<Value> bound, Bind(arguments, {"sub"}, 1));
  VITRINE_RETURN_IF_ERROR(NeedsString(bound[0]));
  interpreter.budget().Charge(static_cast<int64_t>(self.view().size() / 64));
  if (bound[0].view().empty()) {
    return Value::Int(static_cast<int64_t>(CountCodePoints(self.view())) + 1);
  }
  return Value::Int(static_cast<int64_t>(CountMatches(self.view(), bound[0].view())));
}

Result Replace(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  VITRINE_ASSIGN_OR_RETURN(const std::vector<Value> bound,
                           Bind(arguments, {"old", "new", "count"}, 2));
  VITRINE_RETURN_IF_ERROR(NeedsString(bound[0]));
  VITRINE_RETURN_IF_ERROR(NeedsString(bound[1]));
  VITRINE_ASSIGN_OR_RETURN(const int64_t count, IntOr(bound[2], -1));
  return ReplaceText(self.text(), bound[0].text(), bound[1].text(), count, interpreter);
}

Result Join(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  VITRINE_ASSIGN_OR_RETURN(const std::vector<Value> bound, Bind(arguments, {"iterable"}, 1));
  VITRINE_ASSIGN_OR_RETURN(const std::vector<Value> items,
                           Elements(bound[0], interpreter.budget()));
  for (const Value& item : items) VITRINE_RETURN_IF_ERROR(NeedsString(item));
  return JoinTexts(self.text(), items, interpreter);
}

template <char align>
Result Pad(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  VITRINE_ASSIGN_OR_RETURN(const std::vector<Value> bound,
                           Bind(arguments, {"width", "fillchar"}, 1));
  VITRINE_ASSIGN_OR_RETURN(const int64_t width, IntOr(bound[0], 0));
  if (!bound[1].is_missing()) VITRINE_RETURN_IF_ERROR(NeedsString(bound[1]));
  const std::string_view fill = bound[1].is_missing() ? " " : bound[1].view();
  if (CountCodePoints(fill) != 1) {
    return EvaluationError({"The fill character must be exactly one character long"});
  }
  return PadText(self.text(), width, align, fill, interpreter);
}

Result ZeroFill(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  VITRINE_ASSIGN_OR_RETURN(const std::vector<Value> bound, Bind(arguments, {"width"}, 1));
  VITRINE_ASSIGN_OR_RETURN(const int64_t width, IntOr(bound[0], 0));
  const bool has_sign = self.view().starts_with('-') || self.view().starts_with('+');
  const size_t sign = has_sign ? 1 : 0;
  const Text digits = self.text().Substr(sign, self.view().size());
  VITRINE_ASSIGN_OR_RETURN(const Value padded, PadText(digits, width - static_cast<int64_t>(sign),
                                                       '>', "0", interpreter));
  Text text = self.text().Substr(0, sign);
  text.Append(padded.text());
  return Value::String(std::move(text));
}

Result Format(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  return BraceFormat(self, arguments, interpreter.budget());
}

}  // namespace

Result ReplaceText(const Text& text, const Text& old, const Text& replacement, int64_t count,
                   Interpreter& interpreter) {
  Text out;
  size_t begin = 0;
  size_t paid = 0;
  const auto insert = [&](size_t at, size_t end) {
    out.Append(text, begin, at);
    // Inside of data a literal must not become more than data: whoever wrote `old` there would
    // otherwise have written it.
    if (text.IsTemplate(at, end) && (end > at || text.source() == kTemplate)) {
      out.Append(replacement);
    } else {
      out.Append(replacement.view(), kData);
    }
    begin = end;
  };
  for (size_t from = 0; count != 0 && from <= text.size(); --count) {
    const size_t at = text.view().find(old.view(), from);
    if (at == std::string_view::npos) break;
    insert(at, at + old.size());
    VITRINE_RETURN_IF_ERROR(interpreter.budget().Allocate(out.size() - paid));
    paid = out.size();
    from = at + old.size();
    // An empty text stands before every character.
    if (old.empty() && from < text.size()) NextCodePoint(text.view(), from);
    if (old.empty() && at == text.size()) break;
  }
  out.Append(text, begin, text.size());
  VITRINE_RETURN_IF_ERROR(interpreter.budget().Allocate(out.size() - paid));
  return Value::String(std::move(out));
}

Result JoinTexts(const Text& separator, const std::vector<Value>& items, Interpreter& interpreter) {
  size_t bytes = 0;
  for (const Value& item : items) bytes += item.view().size() + separator.size();
  VITRINE_RETURN_IF_ERROR(interpreter.budget().Allocate(bytes));
  Text out;
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) out.Append(separator);
    out.Append(items[i].text());
  }
  return Value::String(std::move(out));
}

Result PadText(const Text& text, int64_t width, char align, std::string_view fill,
               Interpreter& interpreter) {
  const auto length = static_cast<int64_t>(CountCodePoints(text.view()));
  if (width <= length) return Value::String(text);
  const auto padding = static_cast<size_t>(width - length);
  VITRINE_RETURN_IF_ERROR(interpreter.budget().Allocate(padding));
  VITRINE_RETURN_IF_ERROR(interpreter.budget().Allocate(padding * fill.size() + text.size()));
  // CPython gives the odd one to the left when the width is odd.
  const size_t extra = padding & static_cast<size_t>(width) & 1;
  const size_t left = align == '<' ? 0 : (align == '>' ? padding : padding / 2 + extra);
  Text out;
  for (size_t i = 0; i < left; ++i) out.Append(fill, kData);
  out.Append(text);
  for (size_t i = left; i < padding; ++i) out.Append(fill, kData);
  return Value::String(std::move(out));
}

absl::StatusOr<std::vector<Text>> SplitLines(const Text& text, bool keep_ends,
                                             Interpreter& interpreter) {
  std::vector<Text> lines;
  const std::string_view bytes = text.view();
  VITRINE_RETURN_IF_ERROR(interpreter.budget().Allocate(bytes.size()));
  size_t begin = 0;
  for (size_t i = 0; i < bytes.size();) {
    const size_t end = i;
    const uint32_t code = NextCodePoint(bytes, i);
    const bool is_break = (code >= 0xa && code <= 0xd) || (code >= 0x1c && code <= 0x1e) ||
                          code == 0x85 || code == 0x2028 || code == 0x2029;
    if (!is_break) continue;
    if (code == '\r' && i < bytes.size() && bytes[i] == '\n') ++i;
    VITRINE_RETURN_IF_ERROR(interpreter.budget().Allocate(sizeof(Text) + sizeof(StringNode)));
    lines.push_back(text.Substr(begin, keep_ends ? i : end));
    begin = i;
  }
  if (begin < bytes.size()) lines.push_back(text.Substr(begin, bytes.size()));
  return lines;
}

absl::StatusOr<int64_t> IntOr(const Value& argument, int64_t absent) {
  if (argument.is_missing() || argument.is_none()) return absent;
  if (argument.is_integer()) return argument.as_int();
  if (argument.is_undefined()) return EvaluationError({argument.error()});
  return EvaluationError({"expected an integer, not ", argument.type_name()});
}

BuiltinTable StringMethods() {
  static constexpr NamedBuiltin kTable[] = {
      {"capitalize", MapCase<Capitalize>},
      {"casefold", MapCase<ToLower>},
      {"center", Pad<'^'>},
      {"count", Count},
      {"endswith", StartsOrEndsWith<true>},
      {"find", Find<false>},
      {"format", Format},
      {"index", Index<false>},
      {"isalnum", AllAre<IsLetterOrNumber>},
      {"isalpha", AllAre<IsLetter>},
      {"isascii", IsAsciiMethod},
      {"isdecimal", AllAre<IsDecimal>},
      {"isdigit", AllAre<IsDigit>},
      {"isidentifier", IsIdentifier},
      {"islower", CaseIs<IsLower, IsUpper>},
      {"isnumeric", AllAre<IsNumeric>},
      {"isspace", AllAre<IsSpace>},
      {"istitle", IsTitleMethod},
      {"isupper", CaseIs<IsUpper, IsLower>},
      {"join", Join},
      {"ljust", Pad<'<'>},
      {"lower", MapCase<ToLower>},
      {"lstrip", Strip<Ends::kLeft>},
      {"partition", Partition<false>},
      {"removeprefix", RemoveEnd<false>},
      {"removesuffix", RemoveEnd<true>},
      {"replace", Replace},
      {"rfind", Find<true>},
      {"rindex", Index<true>},
      {"rjust", Pad<'>'>},
      {"rpartition", Partition<true>},
      {"rsplit", Split<true>},
      {"rstrip", Strip<Ends::kRight>},
      {"split", Split<false>},
      {"splitlines", SplitLinesMethod},
      {"startswith", StartsOrEndsWith<false>},
      {"strip", Strip<Ends::kBoth>},
      {"swapcase", MapCase<SwapCase>},
      {"title", MapCase<ToTitle>},
      {"upper", MapCase<ToUpper>},
      {"zfill", ZeroFill},
  };
  return kTable;
}

}  // namespace vitrine::jinja
