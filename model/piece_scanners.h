// The scanners behind the pre-tokenizers. Each comment gives the published pattern in the syntax of
// Perl; a scanner returns the end of its match at `begin`, or of the gap up to its next match.
#pragma once

#include <cstddef>

#include "model/categorized_text.h"

namespace vitrine {

// GPT-2: 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
size_t ScanGpt2(const CategorizedText& text, size_t begin);

// Llama 3 (cl100k with numbers of up to three digits):
// (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|
// \s*[\r\n]+|\s+(?!\S)|\s+
size_t ScanLlama3(const CategorizedText& text, size_t begin);

// Qwen 2: as Llama 3 with \p{N} in place of \p{N}{1,3}.
size_t ScanQwen2(const CategorizedText& text, size_t begin);

// \p{N}
size_t ScanSingleNumbers(const CategorizedText& text, size_t begin);

// \p{N}+
size_t ScanNumbers(const CategorizedText& text, size_t begin);

// [0-9][0-9][0-9]
size_t ScanThreeDigits(const CategorizedText& text, size_t begin);

// Punctuation for Rust's tokenizers: \p{P} and the ASCII characters that C calls punctuation.
size_t ScanPunctuationRuns(const CategorizedText& text, size_t begin);
size_t ScanSinglePunctuation(const CategorizedText& text, size_t begin);

// [\p{P}$+<=>^~|]+
size_t ScanPunctuation(const CategorizedText& text, size_t begin);

}  // namespace vitrine
