// What a tokenizer changes in a text before it looks for tokens: steps such as replacing spaces,
// composing characters or putting a space in front.
#pragma once

#include <functional>
#include <string>

#include "model/aligned_text.h"

namespace vitrine {

// Rewrites a text in place. `is_start`: the text is where the whole text begins, not what follows
// an added token. Time and memory linear in the text; const and thread-safe.
using NormalizerStep = std::function<void(AlignedText& text, bool is_start)>;

enum class PrependWhere { kEverywhere, kAtStart };

// Puts `prefix` in front of a text that is not empty.
NormalizerStep Prepend(std::string prefix);

// The same for texts that do not begin with it already.
NormalizerStep PrependUnlessThere(std::string prefix, PrependWhere where);

// Replaces every `from`, which is not empty, by `to`.
NormalizerStep Replace(std::string from, std::string to);

// Replaces every run of two spaces or more by `to`.
NormalizerStep ReplaceRunsOfSpaces(std::string to);

// Puts `mark` in front of every run of characters that are not white space, unless it begins with
// that, and drops the white space.
NormalizerStep MarkWords(std::string mark);

// Drops the white space at the left and the right end.
NormalizerStep Strip(bool left, bool right);

}  // namespace vitrine
