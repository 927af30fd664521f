#include "model/unicode_normalizer.h"

#include <utf8proc.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kernels/check.h"
#include "model/categorized_text.h"

namespace vitrine {
namespace {

using CodePoints = std::vector<utf8proc_int32_t>;

int CombiningClass(utf8proc_int32_t c) { return utf8proc_get_property(c)->combining_class; }

// Longer than any decomposition, the longest of which has 18 characters.
constexpr size_t kMaxParts = 32;

// Fills `parts` with the full decomposition of a character and returns its length.
size_t Decompose(char32_t c, int options, utf8proc_int32_t (&parts)[kMaxParts]) {
  int last_boundary = 0;
  const utf8proc_ssize_t count = utf8proc_decompose_char(
      static_cast<utf8proc_int32_t>(c), parts, kMaxParts,
      static_cast<utf8proc_option_t>(options & ~UTF8PROC_COMPOSE), &last_boundary);
  VITRINE_CHECK(count >= 0 && count <= static_cast<utf8proc_ssize_t>(kMaxParts));
  return static_cast<size_t>(count);
}

// Whether text can be cut in front of this character: nothing before it changes with it. Hangul
// vowels and final consonants compose with what is before them, as do the characters that are the
// second of a pair in the library's table.
bool IsBoundary(char32_t c, int options) {
  if (c < 0x300) return true;
  utf8proc_int32_t parts[kMaxParts];
  if (Decompose(c, options, parts) == 0) return false;
  if (parts[0] >= 0x1160 && parts[0] <= 0x11FF) return false;
  const utf8proc_property_t* property = utf8proc_get_property(parts[0]);
  const bool is_second = property->comb_index != UINT16_MAX && property->comb_index >= 0x8000;
  return property->combining_class == 0 && !is_second;
}

// The form of `text`, decomposed and, where `options` say so, composed again.
void NormalizePart(std::string_view text, int options, CodePoints& work, std::string& result) {
  work.clear();
  for (size_t i = 0; i < text.size();) {
    const Utf8Character next = DecodeUtf8(text, i);
    utf8proc_int32_t parts[kMaxParts];
    work.insert(work.end(), parts, parts + Decompose(next.code_point, options, parts));
    i += next.length;
  }
  // Canonical order. The library's own sort is quadratic in a run of marks.
  for (auto begin = work.begin(); begin != work.end();) {
    if (CombiningClass(*begin) == 0) {
      ++begin;
      continue;
    }
    const auto end =
        std::find_if(begin, work.end(), [](utf8proc_int32_t c) { return CombiningClass(c) == 0; });
    std::stable_sort(begin, end, [](utf8proc_int32_t a, utf8proc_int32_t b) {
      return CombiningClass(a) < CombiningClass(b);
    });
    begin = end;
  }
  if ((options & UTF8PROC_COMPOSE) != 0) {
    const utf8proc_ssize_t count = utf8proc_normalize_utf32(
        work.data(), static_cast<utf8proc_ssize_t>(work.size()),
        static_cast<utf8proc_option_t>(UTF8PROC_COMPOSE | UTF8PROC_STABLE));
    VITRINE_CHECK(count >= 0);
    work.resize(static_cast<size_t>(count));
  }
  for (const utf8proc_int32_t c : work) AppendUtf8(static_cast<char32_t>(c), result);
}

// Rewrites the characters of a text one by one; `change` appends what one becomes.
template <class Change>
void ChangeCharacters(AlignedText& text, Change change) {
  AlignedText result;
  result.Reserve(text.bytes.size());
  std::string changed;
  for (size_t i = 0; i < text.bytes.size();) {
    const Utf8Character next = DecodeUtf8(text.bytes, i);
    changed.clear();
    change(next.code_point, changed);
    result.Append(changed, text.sources[i]);
    i += next.length;
  }
  text = std::move(result);
}

bool IsAscii(std::string_view text) {
  return std::ranges::all_of(text, [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

}  // namespace

NormalizerStep Normalize(NormalizationForm form) {
  const bool is_compatible = form == NormalizationForm::kNfkc || form == NormalizationForm::kNfkd;
  const bool is_composed = form == NormalizationForm::kNfc || form == NormalizationForm::kNfkc;
  const int options = UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | (is_compatible ? UTF8PROC_COMPAT : 0) |
                      (is_composed ? UTF8PROC_COMPOSE : 0);
  return [options](AlignedText& text, bool /*is_start*/) {
    if (IsAscii(text.bytes)) return;
    const std::string_view source = text.bytes;
    AlignedText result;
    result.Reserve(source.size());
    CodePoints work;
    std::string changed;
    for (size_t begin = 0; begin < source.size();) {
      size_t end = begin;
      do {
        end += DecodeUtf8(source, end).length;
      } while (end < source.size() && !IsBoundary(DecodeUtf8(source, end).code_point, options));
      changed.clear();
      NormalizePart(source.substr(begin, end - begin), options, work, changed);
      if (changed == source.substr(begin, end - begin)) {
        result.AppendSame(text, begin, end);
      } else {
        result.Append(changed, text.sources[begin]);
      }
      begin = end;
    }
    text = std::move(result);
  };
}

NormalizerStep Lowercase() {
  return [](AlignedText& text, bool /*is_start*/) {
    ChangeCharacters(text, [](char32_t c, std::string& out) {
      if (c == 0x130) {
        out += "i\u0307";
      } else {
        AppendUtf8(static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))), out);
      }
    });
  };
}

NormalizerStep StripAccents() {
  return [](AlignedText& text, bool /*is_start*/) {
    const CategorizedText characters(text.bytes);
    AlignedText result;
    for (size_t i = 0; i < text.bytes.size(); i = characters.Next(i)) {
      if (!characters.Is(i, SetOf(GeneralCategory::kMn))) {
        result.AppendSame(text, i, characters.Next(i));
      }
    }
    text = std::move(result);
  };
}

}  // namespace vitrine
