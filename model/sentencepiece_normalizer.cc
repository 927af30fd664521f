#include "model/sentencepiece_normalizer.h"

#include <utf8proc.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "model/categorized_text.h"
#include "model/prefix_trie.h"

namespace vitrine {
namespace {

constexpr std::string_view kSpaceMark = "\xE2\x96\x81";  // U+2581

// Fields of a unit of the double array.
bool HasLeaf(uint32_t unit) { return (unit >> 8 & 1) != 0; }
uint32_t Value(uint32_t unit) { return unit & 0x7FFFFFFF; }
uint32_t Label(uint32_t unit) { return unit & 0x800000FF; }
uint32_t Offset(uint32_t unit) { return unit >> 10 << (unit >> 6 & 8); }

}  // namespace

absl::StatusOr<CharacterMap> CharacterMap::Parse(std::string bytes) {
  CharacterMap map;
  if (bytes.empty()) return map;
  uint32_t trie_bytes = 0;
  if (bytes.size() >= sizeof(trie_bytes)) std::memcpy(&trie_bytes, bytes.data(), 4);
  const bool fits = bytes.size() > sizeof(trie_bytes) && trie_bytes % 4 == 0 && trie_bytes > 0 &&
                    trie_bytes < bytes.size() - sizeof(trie_bytes);
  if (!fits) {
    return absl::InvalidArgumentError("precompiled_charsmap: the size of its trie does not fit");
  }
  map.num_units_ = trie_bytes / 4;
  map.bytes_ = std::move(bytes);
  return map;
}

uint32_t CharacterMap::Unit(size_t index) const {
  uint32_t unit = 0;
  std::memcpy(&unit, bytes_.data() + 4 + index * 4, sizeof(unit));
  return unit;
}

CharacterMap::Match CharacterMap::Find(std::string_view text, bool longest) const {
  Match match;
  if (empty()) return match;
  const std::string_view replacements = std::string_view(bytes_).substr(4 + num_units_ * 4);
  size_t node = Offset(Unit(0));
  for (size_t i = 0; i < text.size(); ++i) {
    node ^= static_cast<uint8_t>(text[i]);
    if (node >= num_units_ || Label(Unit(node)) != static_cast<uint8_t>(text[i])) break;
    const uint32_t unit = Unit(node);
    node ^= Offset(unit);
    if (!HasLeaf(unit)) continue;
    if (node >= num_units_ || Value(Unit(node)) >= replacements.size()) break;
    const std::string_view rest = replacements.substr(Value(Unit(node)));
    match = {.length = i + 1, .replacement = rest.substr(0, rest.find('\0'))};
    if (!longest) break;
  }
  return match;
}

namespace {

// What a text begins with, and what that becomes.
class Rewriter {
 public:
  Rewriter(CharacterMap map, std::span<const std::string_view> kept) : map_(std::move(map)) {
    PrefixTrie::Entries entries;
    for (const std::string_view text : kept) {
      if (!text.empty()) entries.emplace_back(text, 0);
    }
    kept_ = PrefixTrie(std::move(entries));
  }

  CharacterMap::Match Find(std::string_view text) const {
    size_t length = 0;
    kept_.ForEachPrefix(text, [&](size_t longer, int32_t) { length = longer; });
    if (length == 0) {
      const CharacterMap::Match match = map_.FindLongest(text);
      if (match.length > 0) return match;
      length = DecodeUtf8(text, 0).length;
    }
    return {.length = length, .replacement = text.substr(0, length)};
  }

 private:
  CharacterMap map_;
  PrefixTrie kept_;
};

}  // namespace

NormalizerStep SentencePieceNormalizer(CharacterMap map, const SpaceRules& rules,
                                       std::span<const std::string_view> kept) {
  const auto shared = std::make_shared<const Rewriter>(std::move(map), kept);
  return [shared, rules](AlignedText& text, bool is_start) {
    const std::string_view space = rules.escape_whitespaces ? kSpaceMark : " ";
    const std::string_view source = text.bytes;
    AlignedText result;
    result.Reserve(source.size() + source.size() / 4);
    bool after_space = rules.remove_extra_whitespaces;
    const bool has_prefix =
        rules.add_dummy_prefix && (is_start || rules.prefix_where == PrependWhere::kEverywhere);
    bool needs_prefix = has_prefix;
    for (size_t i = 0; i < source.size();) {
      const CharacterMap::Match match = shared->Find(source.substr(i));
      const uint32_t place = text.sources[i];
      i += match.length;
      const bool is_cut = rules.remove_extra_whitespaces && match.replacement == " ";
      if (needs_prefix && !is_cut) {
        // Also in front of characters of which the table leaves nothing.
        result.Append(space, place);
        needs_prefix = false;
      }
      for (const char byte : match.replacement) {
        if (after_space && byte == ' ') continue;
        result.Append(byte == ' ' ? space : std::string_view(&byte, 1), place);
        after_space = rules.remove_extra_whitespaces && byte == ' ';
      }
    }
    while (rules.remove_extra_whitespaces && result.bytes.ends_with(space)) {
      result.bytes.resize(result.bytes.size() - space.size());
      result.sources.resize(result.bytes.size());
    }
    text = std::move(result);
  };
}

NormalizerStep PrecompiledNormalizer(CharacterMap map) {
  const auto shared = std::make_shared<const CharacterMap>(std::move(map));
  return [shared](AlignedText& text, bool /*is_start*/) {
    constexpr size_t kMaxGraphemeBytes = 5;
    const std::string_view source = text.bytes;
    AlignedText result;
    result.Reserve(source.size());
    const auto append = [&](size_t begin, size_t end) {
      const CharacterMap::Match match = shared->FindShortest(source.substr(begin, end - begin));
      if (match.length == 0) return false;
      result.Append(match.replacement, text.sources[begin]);
      return true;
    };
    for (size_t begin = 0; begin < source.size();) {
      utf8proc_int32_t state = 0;
      Utf8Character last = DecodeUtf8(source, begin);
      size_t end = begin + last.length;
      while (end < source.size()) {
        const Utf8Character next = DecodeUtf8(source, end);
        if (utf8proc_grapheme_break_stateful(static_cast<utf8proc_int32_t>(last.code_point),
                                             static_cast<utf8proc_int32_t>(next.code_point),
                                             &state)) {
          break;
        }
        last = next;
        end += next.length;
      }
      if (end - begin > kMaxGraphemeBytes || !append(begin, end)) {
        for (size_t i = begin; i < end;) {
          const size_t next = i + DecodeUtf8(source, i).length;
          if (!append(i, next)) result.AppendSame(text, i, next);
          i = next;
        }
      }
      begin = end;
    }
    text = std::move(result);
  };
}

}  // namespace vitrine
