// The hand-written scanners against the patterns they stand for, run by PCRE2 on random text.
#define PCRE2_CODE_UNIT_WIDTH 8
#include "model/pre_tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pcre2.h>

#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "model/categorized_text.h"

namespace vitrine {
namespace {

using ::testing::ElementsAre;

// Replaces \s and \S by the Unicode property: PCRE2's own \s has one character more (U+180E).
std::string WithUnicodeSpace(std::string pattern) {
  for (const auto& [from, to] :
       {std::pair{"\\s", "\\p{White_Space}"}, std::pair{"\\S", "\\P{White_Space}"}}) {
    for (size_t i = 0; (i = pattern.find(from, i)) != std::string::npos; i += strlen(to)) {
      pattern.replace(i, strlen(from), to);
    }
  }
  return pattern;
}

class Pattern {
 public:
  explicit Pattern(const std::string& text) {
    const std::string pattern = WithUnicodeSpace(text);
    int error = 0;
    PCRE2_SIZE offset = 0;
    code_ = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                          PCRE2_UTF | PCRE2_UCP | PCRE2_DOLLAR_ENDONLY, &error, &offset, nullptr);
    if (code_ == nullptr) throw std::runtime_error("bad pattern " + pattern);
    match_ = pcre2_match_data_create_from_pattern(code_, nullptr);
  }
  Pattern(const Pattern&) = delete;
  Pattern& operator=(const Pattern&) = delete;
  ~Pattern() {
    pcre2_match_data_free(match_);
    pcre2_code_free(code_);
  }

  // Matches and the gaps between them.
  std::vector<std::string> Split(const std::string& text) const {
    std::vector<std::string> pieces;
    size_t begin = 0;
    while (begin < text.size() && pcre2_match(code_, reinterpret_cast<PCRE2_SPTR>(text.data()),
                                              text.size(), begin, 0, match_, nullptr) > 0) {
      const PCRE2_SIZE* span = pcre2_get_ovector_pointer(match_);
      if (span[0] > begin) pieces.push_back(text.substr(begin, span[0] - begin));
      pieces.push_back(text.substr(span[0], span[1] - span[0]));
      begin = span[1];
    }
    if (begin < text.size()) pieces.push_back(text.substr(begin));
    return pieces;
  }

 private:
  pcre2_code* code_;
  pcre2_match_data* match_;
};

constexpr char kGpt2[] =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
constexpr char kLlama3[] =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|)"
    R"(\s*[\r\n]+|\s+(?!\S)|\s+)";

// The patterns as tokenizer.json files and llama.cpp publish them, stage by stage.
const std::map<std::string, std::vector<std::string>>& Patterns() {
  static const auto* const patterns = new std::map<std::string, std::vector<std::string>>{
      {"gpt-2", {kGpt2}},
      {"smollm", {R"(\p{N})", kGpt2}},
      {"starcoder", {R"(\p{N})", kGpt2}},
      {"refact", {R"(\p{N})", kGpt2}},
      {"command-r", {R"(\p{N})", kGpt2}},
      {"default", {R"([\p{P}\$\+<=>\^~\|]+)", kGpt2, R"(\p{N}+)", R"([0-9][0-9][0-9])"}},
      {"llama-bpe", {kLlama3}},
  };
  return *patterns;
}

std::vector<std::string> Split(const std::string& rule, const std::string& text) {
  std::vector<std::string> pieces;
  PreTokenIterator iterator(FindPreTokenizer(rule)->stages, text);
  while (const auto piece = iterator.Next()) pieces.emplace_back(*piece);
  return pieces;
}

std::vector<std::string> SplitByPatterns(const std::vector<std::unique_ptr<Pattern>>& stages,
                                         const std::string& text) {
  std::vector<std::string> pieces = {text};
  for (const auto& stage : stages) {
    std::vector<std::string> finer;
    for (const std::string& piece : pieces) {
      for (std::string& part : stage->Split(piece)) finer.push_back(std::move(part));
    }
    pieces = std::move(finer);
  }
  return pieces;
}

// Contractions, letters of all categories, numbers, punctuation, symbols, white space, controls.
constexpr std::string_view kPieces[] = {"'s",
                                        "'S",
                                        "'re",
                                        "'vE",
                                        "'LL",
                                        "'\xC5\xBF",
                                        "'",
                                        "a",
                                        "B",
                                        "word",
                                        "Word",
                                        "WORD",
                                        "\xC3\xA9",
                                        "e\xCC\x81",
                                        "\xCC\x81",
                                        "\xE4\xB8\xAD",
                                        "\xE3\x81\x8B",
                                        "\xED\x95\x9C",
                                        "\xC7\x85",
                                        "\xCA\xB0",
                                        "\xD7\x90",
                                        "0",
                                        "7",
                                        "12",
                                        "123",
                                        "4567",
                                        "\xD9\xA3",
                                        "\xE2\x85\xA7",
                                        "\xC2\xBD",
                                        "\xC2\xB2",
                                        ".",
                                        ",",
                                        "!?",
                                        "(",
                                        "/",
                                        "_",
                                        "$",
                                        "+",
                                        "`",
                                        "|",
                                        "\xE2\x80\x94",
                                        "\xE3\x80\x82",
                                        "\xE2\x82\xAC",
                                        "\xF0\x9F\x98\xB8",
                                        " ",
                                        " ",
                                        " ",
                                        "  ",
                                        "\n",
                                        "\r\n",
                                        "\t",
                                        "\xC2\xA0",
                                        "\xE3\x80\x80",
                                        "\xC2\x85",
                                        "\xE2\x80\xA8",
                                        "\xE1\xA0\x8E",
                                        "\xE2\x80\x8B",
                                        {"\0", 1},
                                        "\x1C",
                                        "\x7F"};

// Text that meets every alternative and every boundary of the patterns.
class RandomText {
 public:
  explicit RandomText(unsigned seed) : random_(seed) {}

  std::string Next() {
    std::string text;
    for (size_t i = random_() % 24; i > 0; --i) AppendPiece(text);
    return text;
  }

 private:
  void AppendPiece(std::string& text) {
    const size_t choice = random_() % (std::size(kPieces) + 4);
    if (choice < std::size(kPieces)) {
      text += kPieces[choice];
      return;
    }
    // Anything assigned in the Basic Multilingual Plane and beyond, of an age that both sides know.
    char32_t c = 0;
    do {
      c = random_() % 0x20000;
    } while ((c >= 0xD800 && c <= 0xDFFF) || !IsOldEnough(c));
    AppendUtf8(c, text);
  }

  // PCRE2 10.42 knows Unicode 14: its unassigned characters are left out.
  bool IsOldEnough(char32_t c) {
    std::string text;
    AppendUtf8(c, text);
    return unassigned_.Split(text + "a").size() == 1;
  }

  std::mt19937 random_;
  Pattern unassigned_{R"(\p{Cn})"};
};

class PreTokenizerRuleTest : public ::testing::TestWithParam<std::string> {};

TEST_P(PreTokenizerRuleTest, SplitsLikeItsPattern) {
  std::vector<std::unique_ptr<Pattern>> stages;
  for (const std::string& pattern : Patterns().at(GetParam())) {
    stages.push_back(std::make_unique<Pattern>(pattern));
  }
  RandomText random(17);
  for (int round = 0; round < 10000; ++round) {
    const std::string text = random.Next();
    ASSERT_EQ(Split(GetParam(), text), SplitByPatterns(stages, text))
        << testing::PrintToString(text);
  }
}

std::vector<std::string> RuleNames() {
  std::vector<std::string> names;
  for (const auto& [name, patterns] : Patterns()) names.push_back(name);
  return names;
}

INSTANTIATE_TEST_SUITE_P(AllRules, PreTokenizerRuleTest, ::testing::ValuesIn(RuleNames()),
                         [](const auto& rule) {
                           std::string name = rule.param;
                           std::erase_if(name, [](char c) { return !isalnum(c); });
                           return name;
                         });

TEST(PreTokenizerTest, EveryRuleIsTested) {
  for (const PreTokenizer& rule : PreTokenizers()) {
    EXPECT_TRUE(Patterns().contains(std::string(rule.name))) << rule.name;
  }
}

TEST(PreTokenizerTest, LaterStagesSeeNothingOutsideTheirPiece) {
  EXPECT_THAT(Split("gpt-2", "a  5"), ElementsAre("a", " ", " 5"));
  EXPECT_THAT(Split("smollm", "a  5"), ElementsAre("a", "  ", "5"));
}

TEST(PreTokenizerTest, AnUnknownRuleIsNull) { EXPECT_EQ(FindPreTokenizer("nosuch"), nullptr); }

}  // namespace
}  // namespace vitrine
