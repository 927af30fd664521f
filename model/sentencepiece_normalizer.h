// The normaliser of SentencePiece (Kudo and Richardson, 2018): a table of character sequences and
// their replacements, and rules about spaces.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "model/normalizer.h"

namespace vitrine {

// The table precompiled_charsmap: a double-array trie in the layout of the Darts library, and the
// replacements it points to. Const and thread-safe.
class CharacterMap {
 public:
  // INVALID_ARGUMENT when the sizes do not fit. Everything else is checked on use: an entry that
  // points outside the table matches nothing. Empty bytes are an empty table.
  static absl::StatusOr<CharacterMap> Parse(std::string bytes);

  // What the longest sequence that `text` begins with is replaced by; length 0: there is none.
  struct Match {
    size_t length = 0;
    std::string_view replacement;
  };
  Match FindLongest(std::string_view text) const { return Find(text, true); }
  Match FindShortest(std::string_view text) const { return Find(text, false); }

  bool empty() const { return bytes_.empty(); }

 private:
  Match Find(std::string_view text, bool longest) const;
  uint32_t Unit(size_t index) const;

  std::string bytes_;
  size_t num_units_ = 0;
};

struct SpaceRules {
  bool add_dummy_prefix = true;          // A space in front of the text.
  bool remove_extra_whitespaces = true;  // At both ends, and of runs all but one.
  bool escape_whitespaces = true;        // Spaces become U+2581.
  // Where the space in front goes: in front of the whole text only, or of every part of it that
  // follows an added token, too.
  PrependWhere prefix_where = PrependWhere::kEverywhere;
};

// Texts of `kept` stay as they are, wherever one begins: the longest, before the table is asked.
NormalizerStep SentencePieceNormalizer(CharacterMap map, const SpaceRules& rules,
                                       std::span<const std::string_view> kept = {});

// The same table as the package tokenizers applies it: grapheme by grapheme, to those of less than
// six bytes as a whole, else to each character; of several sequences the shortest counts.
NormalizerStep PrecompiledNormalizer(CharacterMap map);

}  // namespace vitrine
