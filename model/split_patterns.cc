#include "model/split_patterns.h"

#include "model/piece_scanners.h"

namespace vitrine {
namespace {

constexpr SplitPattern kPatterns[] = {
    {R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)", ScanGpt2,
     true},
    {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
     R"(|\s*[\r\n]+|\s+(?!\S)|\s+)",
     ScanLlama3, true},
    {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
     R"(|\s*[\r\n]+|\s+(?!\S)|\s+)",
     ScanQwen2, true},
    {R"(\p{N})", ScanSingleNumbers},
    {R"(\p{N}+)", ScanNumbers},
    {"[0-9][0-9][0-9]", ScanThreeDigits},
};

}  // namespace

const SplitPattern* FindSplitPattern(std::string_view regex) {
  for (const SplitPattern& pattern : kPatterns) {
    if (pattern.regex == regex) return &pattern;
  }
  return nullptr;
}

}  // namespace vitrine
