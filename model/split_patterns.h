// The regular expressions that tokenizer.json files split text by, each with the scanner that does
// the same in linear time. A pattern that is not in the table is not supported: there is no engine
// for it.
#pragma once

#include <string_view>

#include "model/pre_tokenizer.h"

namespace vitrine {

struct SplitPattern {
  std::string_view regex;
  PieceScanner scan;
  // Every character of every text is part of a match: there are no gaps to keep or to remove.
  bool is_total = false;
};

// Null when the pattern is not known.
const SplitPattern* FindSplitPattern(std::string_view regex);

}  // namespace vitrine
