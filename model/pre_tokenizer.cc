#include "model/pre_tokenizer.h"

#include "kernels/check.h"
#include "model/piece_scanners.h"

namespace vitrine {
namespace {

constexpr PieceScanner kGpt2[] = {ScanGpt2};
constexpr PieceScanner kDigitsThenGpt2[] = {ScanSingleNumbers, ScanGpt2};
constexpr PieceScanner kDefault[] = {ScanPunctuation, ScanGpt2, ScanNumbers, ScanThreeDigits};
constexpr PieceScanner kLlama3[] = {ScanLlama3};

constexpr PreTokenizer kRules[] = {
    {.name = "default", .stages = kDefault},
    {.name = "gpt-2", .stages = kGpt2},
    {.name = "smollm", .stages = kDigitsThenGpt2},
    {.name = "starcoder", .stages = kDigitsThenGpt2},
    {.name = "refact", .stages = kDigitsThenGpt2},
    {.name = "command-r", .stages = kDigitsThenGpt2},
    {.name = "llama-bpe", .stages = kLlama3, .whole_words = true, .add_bos_by_default = true},
};

}  // namespace

std::span<const PreTokenizer> PreTokenizers() { return kRules; }

const PreTokenizer* FindPreTokenizer(std::string_view name) {
  for (const PreTokenizer& rule : kRules) {
    if (rule.name == name) return &rule;
  }
  return nullptr;
}

PreTokenIterator::PreTokenIterator(std::span<const PieceScanner> stages, std::string_view text)
    : stages_(stages), text_(text) {
  VITRINE_CHECK_LE(stages_.size(), kMaxPreTokenizerStages);
  ends_.fill(0);
  ends_[0] = text.size();
}

std::optional<std::string_view> PreTokenIterator::Next() {
  if (position_ == text_.size()) return std::nullopt;
  const size_t begin = position_;
  for (size_t stage = 0; stage < stages_.size(); ++stage) {
    size_t& end = ends_[stage + 1];
    if (end == begin) end = stages_[stage](text_.Prefix(ends_[stage]), begin);
  }
  position_ = ends_[stages_.size()];
  return text_.bytes().substr(begin, position_ - begin);
}

}  // namespace vitrine
