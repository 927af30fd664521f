#include "model/pre_tokenizer.h"

#include "kernels/check.h"
#include "model/piece_scanners.h"

namespace vitrine {
namespace {

constexpr PieceScanner kGpt2[] = {ScanGpt2};
constexpr PieceScanner kDigitsThenGpt2[] = {ScanSingleNumbers, ScanGpt2};
constexpr PieceScanner kDefault[] = {ScanPunctuation, ScanGpt2, ScanNumbers, ScanThreeDigits};
constexpr PieceScanner kFalcon[] = {ScanPunctuationRuns, ScanGpt2, ScanThreeDigits};
constexpr PieceScanner kLlama3[] = {ScanLlama3};
constexpr PieceScanner kQwen2[] = {ScanQwen2};
constexpr PieceScanner kQwen35[] = {ScanQwen35};
constexpr PieceScanner kMiniCpm5[] = {ScanUpToThreeNumbers, ScanMiniCpm5};
constexpr PieceScanner kSeedCoder[] = {ScanSeedCoder};
constexpr PieceScanner kUfakzeka[] = {ScanUfakzeka};
constexpr PieceScanner kLaguna[] = {ScanLineFeeds, ScanQwen2};
constexpr PieceScanner kGpt4o[] = {ScanGpt4o};
constexpr PieceScanner kTekken[] = {ScanTekken};
constexpr PieceScanner kBloom[] = {ScanBloom};
constexpr PieceScanner kViking[] = {ScanBloom, ScanSingleNumbers};
constexpr PieceScanner kDeepSeekLlm[] = {ScanLineBreaks,    ScanCasedLetters, ScanAsciiPunctuation,
                                         ScanTrailingSpace, ScanHan,          ScanNumbers};
constexpr PieceScanner kDeepSeekCoder[] = {ScanLineBreaks, ScanSpacedLetters, ScanSpacedPunctuation,
                                           ScanHan, ScanSingleNumbers};
constexpr PieceScanner kDeepSeekV3[] = {ScanUpToThreeNumbers, ScanHanAndKana, ScanDeepSeekV3};

constexpr PreTokenizer kRules[] = {
    {.name = "default", .stages = kDefault},
    {.name = "gpt-2", .stages = kGpt2},
    {.name = "phi-2", .stages = kGpt2},
    {.name = "mpt", .stages = kGpt2},
    {.name = "olmo", .stages = kGpt2},
    {.name = "jais", .stages = kGpt2},
    {.name = "trillion", .stages = kGpt2},
    {.name = "gigachat", .stages = kGpt2},
    {.name = "mellum", .stages = kGpt2},
    {.name = "a.x-4.0", .stages = kGpt2},
    {.name = "exaone4", .stages = kGpt2},
    {.name = "granite-docling", .stages = kGpt2},
    {.name = "smollm", .stages = kDigitsThenGpt2},
    {.name = "starcoder", .stages = kDigitsThenGpt2},
    {.name = "refact", .stages = kDigitsThenGpt2},
    {.name = "command-r", .stages = kDigitsThenGpt2},
    {.name = "codeshell", .stages = kDigitsThenGpt2},
    {.name = "exaone", .stages = kDigitsThenGpt2},
    {.name = "minerva-7b", .stages = kDigitsThenGpt2},
    {.name = "mellum2", .stages = kDigitsThenGpt2},
    {.name = "falcon", .stages = kFalcon},
    {.name = "llama-bpe", .stages = kLlama3, .whole_words = true, .add_bos_by_default = true},
    {.name = "llama3", .stages = kLlama3, .whole_words = true, .add_bos_by_default = true},
    {.name = "llama-v3", .stages = kLlama3, .whole_words = true, .add_bos_by_default = true},
    {.name = "falcon3", .stages = kLlama3, .whole_words = true, .add_bos_by_default = true},
    {.name = "falcon-h1", .stages = kLlama3, .whole_words = true, .add_bos_by_default = true},
    {.name = "pixtral", .stages = kLlama3, .whole_words = true, .add_bos_by_default = true},
    {.name = "midm-2.0", .stages = kLlama3, .whole_words = true, .add_bos_by_default = true},
    {.name = "lfm2", .stages = kLlama3, .whole_words = true, .add_bos_by_default = true},
    {.name = "glm4", .stages = kLlama3, .whole_words = true},
    {.name = "glm5", .stages = kLlama3, .whole_words = true},
    {.name = "dbrx", .stages = kLlama3},
    {.name = "smaug-bpe", .stages = kLlama3},
    {.name = "chatglm-bpe", .stages = kLlama3},
    {.name = "qwen2", .stages = kQwen2},
    {.name = "stablelm2", .stages = kQwen2},
    {.name = "megrez", .stages = kQwen2},
    {.name = "hunyuan", .stages = kQwen2},
    {.name = "deepseek-r1-qwen", .stages = kQwen2},
    {.name = "kormo", .stages = kQwen2},
    {.name = "grok-2", .stages = kQwen2},
    {.name = "solar-open", .stages = kQwen2},
    {.name = "bailingmoe", .stages = kQwen2},
    {.name = "bailingmoe2", .stages = kQwen2},
    {.name = "llada-moe", .stages = kQwen2},
    {.name = "qwen35", .stages = kQwen35},
    {.name = "minicpm5", .stages = kMiniCpm5, .whole_words = true},
    {.name = "seed-coder", .stages = kSeedCoder},
    {.name = "ufakzeka", .stages = kUfakzeka},
    {.name = "laguna", .stages = kLaguna},
    {.name = "gpt-4o", .stages = kGpt4o},
    {.name = "llama4", .stages = kGpt4o},
    {.name = "kanana2", .stages = kGpt4o},
    {.name = "minimax-m2", .stages = kGpt4o},
    {.name = "tekken", .stages = kTekken, .whole_words = true, .add_bos_by_default = true},
    {.name = "bloom", .stages = kBloom},
    {.name = "poro-chat", .stages = kBloom},
    {.name = "gpt3-finnish", .stages = kBloom},
    {.name = "viking", .stages = kViking},
    {.name = "deepseek-llm", .stages = kDeepSeekLlm},
    {.name = "deepseek-coder", .stages = kDeepSeekCoder},
    {.name = "deepseek-v3", .stages = kDeepSeekV3},
    {.name = "hunyuan-dense", .stages = kDeepSeekV3},
    {.name = "joyai-llm", .stages = kDeepSeekV3},
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
