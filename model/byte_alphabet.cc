#include "model/byte_alphabet.h"

#include <array>

#include "model/categorized_text.h"

namespace vitrine {
namespace {

constexpr char32_t kFirstExtra = 0x100;
constexpr char32_t kEnd = kFirstExtra + 68;

constexpr bool StandsForItself(unsigned byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

struct Alphabet {
  std::array<char32_t, 256> character{};  // Of each byte.
  std::array<int16_t, kEnd> byte{};       // Of each character; -1: none.
};

constexpr Alphabet MakeAlphabet() {
  Alphabet alphabet;
  alphabet.byte.fill(-1);
  char32_t extra = kFirstExtra;
  for (unsigned byte = 0; byte < 256; ++byte) {
    const char32_t character = StandsForItself(byte) ? byte : extra++;
    alphabet.character[byte] = character;
    alphabet.byte[character] = static_cast<int16_t>(byte);
  }
  return alphabet;
}

constexpr Alphabet kAlphabet = MakeAlphabet();

}  // namespace

std::optional<std::string> DecodeByteAlphabet(std::string_view text) {
  std::string bytes;
  for (size_t i = 0; i < text.size();) {
    const Utf8Character next = DecodeUtf8(text, i);
    if (next.code_point >= kEnd || kAlphabet.byte[next.code_point] < 0) return std::nullopt;
    bytes.push_back(static_cast<char>(kAlphabet.byte[next.code_point]));
    i += next.length;
  }
  return bytes;
}

std::string EncodeByteAlphabet(uint8_t byte) {
  std::string text;
  AppendUtf8(kAlphabet.character[byte], text);
  return text;
}

}  // namespace vitrine
