// Characters of UTF-8 text as Python's str sees them. The text is well-formed everywhere here.
// Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace vitrine::jinja {

// The code point at byte `offset`, which moves behind it. `offset` is the start of a character.
uint32_t NextCodePoint(std::string_view text, size_t& offset);
void AppendCodePoint(std::string& text, uint32_t code);
size_t CountCodePoints(std::string_view text);
// Byte offset of code point number `index`; the size of the text when it has no more than that.
size_t OffsetOfCodePoint(std::string_view text, size_t index);

bool IsSpace(uint32_t code);          // str.isspace
bool IsLetter(uint32_t code);         // str.isalpha
bool IsDecimal(uint32_t code);        // str.isdecimal
bool IsNumeric(uint32_t code);        // str.isnumeric, nearly: general category N*
bool IsUpper(uint32_t code);          // Category Lu.
bool IsLower(uint32_t code);          // Category Ll.
bool IsTitle(uint32_t code);          // Category Lt.
bool IsWordCharacter(uint32_t code);  // \w of Python's re.

// Full mappings of SpecialCasing.txt without its conditional ones but the final sigma.
std::string ToUpper(std::string_view text);
std::string ToLower(std::string_view text);
std::string ToTitle(std::string_view text);     // str.title
std::string Capitalize(std::string_view text);  // str.capitalize
std::string SwapCase(std::string_view text);

// Bounds of `text` without the white space, or the characters of `characters`, at its ends.
struct Bounds {
  size_t begin;
  size_t end;
};
enum class Ends { kBoth, kLeft, kRight };
Bounds StripSpace(std::string_view text, Ends ends);
Bounds StripCharacters(std::string_view text, std::string_view characters, Ends ends);

}  // namespace vitrine::jinja
