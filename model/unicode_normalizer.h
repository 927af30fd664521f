// The normalisation forms of Unicode, and lower case, as steps of a tokenizer's normaliser. The
// tables are those of the library utf8proc.
#pragma once

#include "model/normalizer.h"

namespace vitrine {

enum class NormalizationForm { kNfc, kNfd, kNfkc, kNfkd };

// Unicode standard annex 15. O(n log n) where n combining marks follow each other.
NormalizerStep Normalize(NormalizationForm form);

// Each character by itself, in full: U+0130 becomes two characters, a final sigma is like others.
NormalizerStep Lowercase();

// Drops marks that take no space of their own (category Mn).
NormalizerStep StripAccents();

}  // namespace vitrine
