#include "model/detokenizer.h"

#include <cstdint>
#include <cstring>

namespace vitrine {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

enum class Sequence { kComplete, kIncomplete, kIllFormed };

struct Classified {
  Sequence kind;
  size_t length;  // Of the character, of the tail held back, or of the maximal ill-formed part.
};

uint8_t ByteAt(std::string_view text, size_t i) { return static_cast<uint8_t>(text[i]); }

// The first two of the three bytes that a surrogate would take.
bool IsCutSurrogate(std::string_view text) {
  return text.size() == 2 && ByteAt(text, 0) == 0xED && ByteAt(text, 1) >= 0xA0 &&
         ByteAt(text, 1) <= 0xBF;
}

// Classifies the sequence at the start of `text`, which is not empty (Unicode 15, table 3-7).
Classified Classify(std::string_view text) {
  const uint8_t lead = ByteAt(text, 0);
  if (lead < 0x80) return {Sequence::kComplete, 1};
  if (lead < 0xC2 || lead > 0xF4) return {Sequence::kIllFormed, 1};
  const size_t length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  if (IsCutSurrogate(text)) return {Sequence::kIncomplete, 2};
  // Only the second byte has a narrower range: no overlong forms, no surrogates, nothing above
  // U+10FFFF.
  uint8_t low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  uint8_t high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  for (size_t i = 1; i < length; ++i) {
    if (i == text.size()) return {Sequence::kIncomplete, i};
    if (ByteAt(text, i) < low || ByteAt(text, i) > high) return {Sequence::kIllFormed, i};
    low = 0x80;
    high = 0xBF;
  }
  return {Sequence::kComplete, length};
}

// Number of bytes at the start of `text` that are ASCII, in steps of eight.
size_t AsciiPrefix(std::string_view text) {
  size_t i = 0;
  for (; i + 8 <= text.size(); i += 8) {
    uint64_t word;
    std::memcpy(&word, text.data() + i, sizeof(word));
    if ((word & 0x8080808080808080u) != 0) break;
  }
  return i;
}

}  // namespace

std::string Utf8Stream::Append(std::string_view bytes) {
  std::string joined;
  if (!held_.empty()) {
    joined = held_;
    joined += bytes;
    bytes = joined;
    held_.clear();
  }
  std::string text;
  while (!bytes.empty()) {
    const Classified next = Classify(bytes);
    if (next.kind == Sequence::kIncomplete) {
      held_ = bytes;
      break;
    }
    text += next.kind == Sequence::kComplete ? bytes.substr(0, next.length) : kReplacement;
    bytes.remove_prefix(next.length);
  }
  return text;
}

std::string Utf8Stream::Flush() {
  std::string text;
  if (!held_.empty()) text += kReplacement;
  if (IsCutSurrogate(held_)) text += kReplacement;
  held_.clear();
  return text;
}

size_t FindInvalidUtf8(std::string_view text) {
  size_t i = 0;
  while (true) {
    i += AsciiPrefix(text.substr(i));
    if (i == text.size()) return std::string_view::npos;
    const Classified next = Classify(text.substr(i));
    if (next.kind != Sequence::kComplete) return i;
    i += next.length;
  }
}

}  // namespace vitrine
