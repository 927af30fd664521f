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

// As Llama 3, but:
size_t ScanQwen2(const CategorizedText& text, size_t begin);      // \p{N}
size_t ScanMiniCpm5(const CategorizedText& text, size_t begin);   // \p{N}+
size_t ScanSeedCoder(const CategorizedText& text, size_t begin);  // \p{N}, and no [\r\n]*
size_t ScanUfakzeka(const CategorizedText& text, size_t begin);   // \p{N}, and no contractions
// \p{N}, [\p{L}\p{M}]+ for \p{L}+, and  ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*
size_t ScanQwen35(const CategorizedText& text, size_t begin);

// GPT-4o (o200k), with U for [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}], W for [\p{Ll}\p{Lm}\p{Lo}\p{M}] and
// C for the contractions of Llama 3:
// [^\r\n\p{L}\p{N}]?U*W+C?|[^\r\n\p{L}\p{N}]?U+W*C?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|
// \s*[\r\n]+|\s+(?!\S)|\s+
size_t ScanGpt4o(const CategorizedText& text, size_t begin);
// Tekken (Mistral): as GPT-4o without C, and \p{N}.
size_t ScanTekken(const CategorizedText& text, size_t begin);

// DeepSeek V3, the last of its stages:
// [!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+|
//  ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
size_t ScanDeepSeekV3(const CategorizedText& text, size_t begin);

// The stages of DeepSeek's older models: [\r\n]; \s?LETTERS+, \s?\p{L}+; \s?PUNCTUATION+,
// \s?\p{P}+; \s+$; HAN+. LETTERS are those of scripts with case, PUNCTUATION is that of ASCII and
// its wide forms, U+2018 to U+201F and U+3000 to U+3002. HAN is, as published, U+4E00 to U+9FA5,
// U+0800 to U+4E00 and U+AC00 to U+D7FF.
size_t ScanLineBreaks(const CategorizedText& text, size_t begin);
size_t ScanCasedLetters(const CategorizedText& text, size_t begin);
size_t ScanSpacedLetters(const CategorizedText& text, size_t begin);
size_t ScanAsciiPunctuation(const CategorizedText& text, size_t begin);
size_t ScanSpacedPunctuation(const CategorizedText& text, size_t begin);
size_t ScanTrailingSpace(const CategorizedText& text, size_t begin);
size_t ScanHan(const CategorizedText& text, size_t begin);
// [U+4E00-U+9FA5 U+3040-U+309F U+30A0-U+30FF]+ of DeepSeek V3.
size_t ScanHanAndKana(const CategorizedText& text, size_t begin);

// BLOOM:  ?[^(\s|.,!?\u2026\u3002\uFF0C\u3001\u0964\u06D4\u060C)]+
size_t ScanBloom(const CategorizedText& text, size_t begin);

// In front of every U+2581: each one begins a piece.
size_t ScanSpaceMarks(const CategorizedText& text, size_t begin);

// Spaces, with what is before each of them.
size_t ScanThroughSpaces(const CategorizedText& text, size_t begin);

// [^\n]+|[\n]+
size_t ScanLineFeeds(const CategorizedText& text, size_t begin);

// \p{N}{1,3}
size_t ScanUpToThreeNumbers(const CategorizedText& text, size_t begin);

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
