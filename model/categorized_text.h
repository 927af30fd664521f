// UTF-8 text seen as a sequence of characters with Unicode categories.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "model/unicode_tables.h"

namespace vitrine {

// A character and the bytes it takes.
struct Utf8Character {
  char32_t code_point = 0;
  size_t length = 0;
};

// Decodes the character at byte `i` of well-formed UTF-8; `i` is below text.size().
Utf8Character DecodeUtf8(std::string_view text, size_t i);

// Appends the UTF-8 form of `code_point`, which is a Unicode scalar value.
void AppendUtf8(char32_t code_point, std::string& out);

// A view of well-formed UTF-8; as cheap to copy as a string_view.
class CategorizedText {
 public:
  explicit CategorizedText(std::string_view text) : text_(text), categories_(GeneralCategories()) {}

  // The same text cut off at byte `size`.
  CategorizedText Prefix(size_t size) const { return {text_.substr(0, size), categories_}; }

  size_t size() const { return text_.size(); }
  std::string_view bytes() const { return text_; }
  char operator[](size_t i) const { return text_[i]; }

  Utf8Character At(size_t i) const { return DecodeUtf8(text_, i); }

  // Whether a character of `set` begins at byte `i`; false at the end of the text.
  bool Is(size_t i, CategorySet set) const {
    return i < size() && (Category(At(i).code_point) & set) != 0;
  }
  bool IsByte(size_t i, char byte) const { return i < size() && text_[i] == byte; }

  // The end of the character that begins at byte `i`.
  size_t Next(size_t i) const { return i + At(i).length; }

  // The end of the run of at most `limit` characters of `set` that begins at byte `i`.
  size_t SkipRun(size_t i, CategorySet set, size_t limit = SIZE_MAX) const;

 private:
  CategorizedText(std::string_view text, const GeneralCategory* categories)
      : text_(text), categories_(categories) {}

  CategorySet Category(char32_t code_point) const { return SetOf(categories_[code_point]); }

  std::string_view text_;
  const GeneralCategory* categories_;  // [kCodePoints]
};

}  // namespace vitrine
