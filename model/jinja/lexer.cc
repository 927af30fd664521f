#include "model/jinja/lexer.h"

#include <algorithm>
#include <array>
#include <utility>

#include "model/jinja/characters.h"
#include "model/jinja/errors.h"
#include "model/status.h"

namespace vitrine::jinja {
namespace {

// Longer ones first.
constexpr std::array<std::string_view, 26> kOperators = {
    "//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[",
    "]",  "(",  ")",  "{",  "}",  ">",  "<", "=", ".", ":", "|", ",", ";"};

// Line ends become \n, and one at the end of the template is dropped.
std::string NormalizeLines(std::string_view source) {
  std::string text;
  text.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      text += source[i];
      continue;
    }
    text += '\n';
    if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
  }
  if (text.ends_with('\n')) text.pop_back();
  return text;
}

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

class Lexer {
 public:
  explicit Lexer(std::string_view source) : text_(NormalizeLines(source)) {}

  absl::StatusOr<std::vector<Token>> Run() {
    while (at_ < text_.size()) VITRINE_RETURN_IF_ERROR(NextPart());
    Add(TokenType::kEnd, "");
    return std::move(tokens_);
  }

 private:
  std::string_view rest() const { return std::string_view(text_).substr(at_); }

  void Add(TokenType type, std::string_view text) {
    tokens_.push_back({type, line_, std::string(text)});
  }

  // Moves on, counting lines.
  void Skip(size_t count) {
    for (; count > 0 && at_ < text_.size(); --count) line_ += text_[at_++] == '\n' ? 1 : 0;
  }
  void SkipSpace() {
    while (at_ < text_.size()) {
      size_t next = at_;
      if (!IsSpace(NextCodePoint(text_, next))) return;
      Skip(next - at_);
    }
  }
  bool Take(std::string_view expected) {
    if (!rest().starts_with(expected)) return false;
    Skip(expected.size());
    return true;
  }

  // Prints text_[at_, end), which a tag follows, without what the tag strips from it.
  void AddText(size_t end, char sign, bool strips_line) {
    std::string_view text = std::string_view(text_).substr(at_, end - at_);
    if (sign == '-') {
      text = text.substr(0, StripSpace(text, Ends::kRight).end);
    } else if (sign != '+' && strips_line) {
      const size_t line_start = text.rfind('\n') + 1;  // npos + 1 is 0.
      const bool is_blank = StripSpace(text.substr(line_start), Ends::kRight).end == 0;
      if ((line_start > 0 || at_line_start_) && is_blank) text = text.substr(0, line_start);
    }
    if (!text.empty()) Add(TokenType::kText, text);
    Skip(end - at_);
  }

  // The + or - behind a tag's opening at `at`; 0: none.
  char SignAt(size_t at) const {
    const char c = at < text_.size() ? text_[at] : '\0';
    return c == '-' || c == '+' ? c : '\0';
  }

  absl::Status NextPart() {
    size_t tag = at_;
    const auto opens = [&](size_t i) {
      return text_[i] == '{' && i + 1 < text_.size() &&
             (text_[i + 1] == '{' || text_[i + 1] == '%' || text_[i + 1] == '#');
    };
    while (tag < text_.size() && !opens(tag)) ++tag;
    if (tag == text_.size()) {
      Add(TokenType::kText, rest());
      Skip(rest().size());
      return absl::OkStatus();
    }
    const char kind = text_[tag + 1];
    const char sign = SignAt(tag + 2);
    AddText(tag, sign, kind != '{');
    const size_t opening = sign == '\0' ? 2 : 3;
    if (kind == '#') return SkipComment(opening);
    if (kind == '%') {
      VITRINE_ASSIGN_OR_RETURN(const bool is_raw, TakeRaw());
      if (is_raw) return absl::OkStatus();
    }
    Add(kind == '%' ? TokenType::kBlockBegin : TokenType::kVariableBegin, "");
    Skip(opening);
    return LexTag(kind == '%');
  }

  // Ends a block or comment with `close` ("%}"), and takes what it strips behind it.
  bool TakeBlockEnd(std::string_view close) {
    const std::string minus = Concat({"-", close});
    if (Take(minus)) {
      SkipSpace();
    } else if (!Take(Concat({"+", close}))) {
      if (!Take(close)) return false;
      Take("\n");
    }
    at_line_start_ = text_[at_ - 1] == '\n';
    return true;
  }

  absl::Status SkipComment(size_t opening) {
    const int line = line_;
    Skip(opening);
    const size_t end = text_.find("#}", at_);
    if (end == std::string::npos) return SyntaxError(line, {"Missing end of comment tag"});
    // A sign before #} is part of it, unless it is the opening's.
    const bool has_sign = end > at_ && SignAt(end - 1) != '\0';
    Skip(end - at_ - (has_sign ? 1 : 0));
    TakeBlockEnd("#}");
    return absl::OkStatus();
  }

  // {% NAME %}, with signs: how many bytes it has at `at`, or 0.
  size_t MatchRawTag(size_t at, std::string_view name) const {
    const std::string_view text = std::string_view(text_).substr(at);
    if (!text.starts_with("{%")) return 0;
    size_t i = SignAt(at + 2) == '\0' ? 2 : 3;
    i += StripSpace(text.substr(i), Ends::kLeft).begin;
    if (!text.substr(i).starts_with(name)) return 0;
    i += name.size();
    i += StripSpace(text.substr(i), Ends::kLeft).begin;
    const std::string_view close = text.substr(i);
    return close.starts_with("%}") || close.starts_with("-%}") ||
                   (close.starts_with("+%}") && name == "endraw")
               ? i
               : 0;
  }

  absl::StatusOr<bool> TakeRaw() {
    const size_t begin_tag = MatchRawTag(at_, "raw");
    if (begin_tag == 0) return false;
    const int line = line_;
    Skip(begin_tag);
    at_line_start_ = false;
    if (Take("-%}")) {
      SkipSpace();
      at_line_start_ = text_[at_ - 1] == '\n';
    } else {
      Take("%}");
    }
    for (size_t end = text_.find("{%", at_); end != std::string::npos;
         end = text_.find("{%", end + 1)) {
      const size_t end_tag = MatchRawTag(end, "endraw");
      if (end_tag == 0) continue;
      AddText(end, SignAt(end + 2), true);
      Skip(end_tag);
      TakeBlockEnd("%}");
      return true;
    }
    return SyntaxError(line, {"Missing end of raw directive"});
  }

  absl::Status LexTag(bool is_block) {
    std::string open_brackets;
    const int line = line_;
    while (true) {
      SkipSpace();
      if (at_ == text_.size()) {
        return SyntaxError(line, {"unexpected end of template inside a tag"});
      }
      if (open_brackets.empty() && TakeTagEnd(is_block)) return absl::OkStatus();
      VITRINE_RETURN_IF_ERROR(LexToken(open_brackets));
    }
  }

  bool TakeTagEnd(bool is_block) {
    const int line = line_;
    if (is_block) {
      if (!TakeBlockEnd("%}")) return false;
    } else if (Take("-}}")) {
      SkipSpace();
      at_line_start_ = text_[at_ - 1] == '\n';
    } else {
      if (!Take("}}")) return false;
      at_line_start_ = false;
    }
    tokens_.push_back({is_block ? TokenType::kBlockEnd : TokenType::kVariableEnd, line, {}});
    return true;
  }

  absl::Status LexToken(std::string& open_brackets) {
    const char c = text_[at_];
    if (IsDigit(c)) return LexNumber();
    if (c == '"' || c == '\'') return LexString();
    size_t end = at_;
    while (end < text_.size()) {
      size_t next = end;
      if (!IsWordCharacter(NextCodePoint(text_, next))) break;
      end = next;
    }
    if (end > at_) {
      Add(TokenType::kName, std::string_view(text_).substr(at_, end - at_));
      Skip(end - at_);
      return absl::OkStatus();
    }
    for (const std::string_view op : kOperators) {
      if (!rest().starts_with(op)) continue;
      VITRINE_RETURN_IF_ERROR(Balance(op, open_brackets));
      Add(TokenType::kOperator, op);
      Skip(op.size());
      return absl::OkStatus();
    }
    return SyntaxError(line_, {"unexpected char in an expression"});
  }

  absl::Status Balance(std::string_view op, std::string& open_brackets) const {
    constexpr std::string_view kOpening = "([{";
    constexpr std::string_view kClosing = ")]}";
    if (kOpening.find(op) != std::string_view::npos) {
      open_brackets += kClosing[kOpening.find(op)];
    } else if (kClosing.find(op) != std::string_view::npos) {
      if (open_brackets.empty()) return SyntaxError(line_, {"unexpected '", op, "'"});
      if (open_brackets.back() != op[0]) {
        return SyntaxError(line_, {"unexpected '", op, "', expected '",
                                   std::string(1, open_brackets.back()), "'"});
      }
      open_brackets.pop_back();
    }
    return absl::OkStatus();
  }

  absl::Status LexNumber() {
    const std::string_view text = rest();
    const auto digits_from = [&](size_t i) {
      while (i < text.size() && (IsDigit(text[i]) ||
                                 (text[i] == '_' && i + 1 < text.size() && IsDigit(text[i + 1])))) {
        ++i;
      }
      return i;
    };
    size_t end = digits_from(0);
    bool is_float = false;
    if (end + 1 < text.size() && text[end] == '.' && IsDigit(text[end + 1])) {
      end = digits_from(end + 1);
      is_float = true;
    }
    if (end < text.size() && (text[end] == 'e' || text[end] == 'E')) {
      const bool has_sign = end + 1 < text.size() && (text[end + 1] == '+' || text[end + 1] == '-');
      const size_t power = end + (has_sign ? 2 : 1);
      if (power < text.size() && IsDigit(text[power])) {
        end = digits_from(power);
        is_float = true;
      }
    }
    if (!is_float && text[0] == '0' && text.size() > 1 && !IsDigit(text[1]) && text[1] != '_') {
      const size_t base_end = text.find_first_not_of("0123456789abcdefABCDEF_", 2);
      if (std::string_view("xXoObB").find(text[1]) != std::string_view::npos) {
        end = std::min(base_end, text.size());
      }
    }
    std::string number(text.substr(0, end));
    std::erase(number, '_');
    Add(is_float ? TokenType::kFloat : TokenType::kInteger, number);
    Skip(end);
    return absl::OkStatus();
  }

  absl::Status LexString() {
    const int line = line_;
    const char quote = text_[at_];
    size_t end = at_ + 1;
    while (end < text_.size() && text_[end] != quote) end += text_[end] == '\\' ? 2 : 1;
    if (end >= text_.size()) return SyntaxError(line, {"a string is not closed"});
    std::string value;
    for (size_t i = at_ + 1; i < end;) {
      if (text_[i] == '\\') {
        VITRINE_RETURN_IF_ERROR(AppendEscape(value, ++i, end));
      } else {
        value += text_[i++];
      }
    }
    Add(TokenType::kString, value);
    Skip(end + 1 - at_);
    return absl::OkStatus();
  }

  // `i` is behind the backslash, and moves behind the escape. As Python's unicode-escape.
  absl::Status AppendEscape(std::string& out, size_t& i, size_t end) const {
    constexpr std::string_view kNames = "\\'\"abfnrtv";
    constexpr std::string_view kValues = "\\'\"\a\b\f\n\r\t\v";
    const char c = text_[i];
    if (c == '\n') {
      ++i;
      return absl::OkStatus();
    }
    if (const size_t name = kNames.find(c); name != std::string_view::npos) {
      out += kValues[name];
      ++i;
      return absl::OkStatus();
    }
    const bool is_octal = c >= '0' && c <= '7';
    const size_t digits = c == 'x' ? 2 : (c == 'u' ? 4 : (c == 'U' ? 8 : (is_octal ? 3 : 0)));
    if (digits == 0) {
      if (c == 'N') return MissingFeature(line_, {"the escape \\N in a string"});
      out += '\\';
      return absl::OkStatus();
    }
    const uint32_t base = is_octal ? 8 : 16;
    size_t at = is_octal ? i : i + 1;
    const size_t stop = std::min(end, at + digits);
    uint32_t code = 0;
    size_t read = 0;
    for (; at < stop; ++at, ++read) {
      const std::string_view digit_set = "0123456789abcdef";
      const char lower =
          text_[at] >= 'A' && text_[at] <= 'F' ? static_cast<char>(text_[at] + 32) : text_[at];
      const size_t digit = digit_set.substr(0, base).find(lower);
      if (digit == std::string_view::npos) break;
      code = code * base + static_cast<uint32_t>(digit);
    }
    const bool is_surrogate = code >= 0xd800 && code < 0xe000;
    if ((!is_octal && read != digits) || code > 0x10ffff || is_surrogate) {
      return SyntaxError(line_, {"a string holds a bad escape"});
    }
    AppendCodePoint(out, code);
    i = at;
    return absl::OkStatus();
  }

  const std::string text_;
  size_t at_ = 0;
  int line_ = 1;
  bool at_line_start_ = true;
  std::vector<Token> tokens_;
};

}  // namespace

absl::StatusOr<std::vector<Token>> Tokenize(std::string_view source) { return Lexer(source).Run(); }

}  // namespace vitrine::jinja
