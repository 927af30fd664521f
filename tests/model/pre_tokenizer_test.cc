// The hand-written scanners against the patterns they stand for, run by PCRE2 on random text.
#define PCRE2_CODE_UNIT_WIDTH 8
#include "model/pre_tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pcre2.h>

#include <algorithm>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "model/categorized_text.h"
#include "model/split_patterns.h"

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

constexpr char kQwen2[] =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|)"
    R"(\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr char kQwen35[] = R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}|)"
                           R"( ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr char kMiniCpm5[] =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}+| ?[^\s\p{L}\p{N}]+[\r\n]*|)"
    R"(\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr char kSeedCoder[] =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|)"
    R"(\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr char kUfakzeka[] =
    R"([^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr char kBailing[] =
    R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|)"
    R"(\s*[\r\n]|\s+(?!\S)|\s+)";
constexpr char kGpt4o[] =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)"
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"(\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr char kTekken[] =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|)"
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|)"
    R"(\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr char kDeepSeekV3[] =
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+|)"
    R"( ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr char kHan[] = "[\u4E00-\u9FA5\u0800-\u4E00\uAC00-\uD7FF]+";
constexpr char kCasedLetters[] =
    "\\s?[A-Za-z\u00B5\u00C0-\u00D6\u00D8-\u00F6\u00F8-\u01BA\u01BC-\u01BF\u01C4-\u0293\u0295-"
    "\u02AF\u0370-\u0373\u0376\u0377\u037B-\u037D\u037F\u0386\u0388-\u038A\u038C\u038E-\u03A1"
    "\u03A3-\u03F5\u03F7-\u0481\u048A-\u052F\u0531-\u0556\u10A0-\u10C5\u13A0-\u13F5\u13F8-\u13FD"
    "\u1C90-\u1CBA\u1CBD-\u1CBF\u1D00-\u1D2B\u1D6B-\u1D77\u1D79-\u1D9A\u1E00-\u1F15\u1F18-\u1F1D"
    "\u1F20-\u1F45\u1F48-\u1F4D\u1F50-\u1F57\u1F59\u1F5B\u1F5D\u1F5F-\u1F7D\u1F80-\u1FB4\u1FB6-"
    "\u1FBC\u1FBE\u1FC2-\u1FC4\u1FC6-\u1FCC\u1FD0-\u1FD3\u1FD6-\u1FDB\u1FE0-\u1FEC\u1FF2-\u1FF4"
    "\u1FF6-\u1FFC\u2102\u2107\u210A-\u2113\u2115\u2119-\u211D\u2124\u2126\u2128\u212A-\u212D"
    "\u212F-\u2134\u2139\u213C-\u213F\u2145-\u2149\u214E\u2183\u2184\u2C00-\u2C7B\u2C7E-\u2CE4"
    "\u2CEB-\u2CEE\u2CF2\u2CF3\uA640-\uA66D\uA680-\uA69B\uA722-\uA76F\uA771-\uA787\uA78B-\uA78E"
    "\uAB70-\uABBF\uFB00-\uFB06\uFB13-\uFB17\uFF21-\uFF3A\uFF41-\uFF5A\U00010400-\U0001044F"
    "\U000104B0-\U000104D3\U000104D8-\U000104FB\U00010C80-\U00010CB2\U00010CC0-\U00010CF2"
    "\U000118A0-\U000118DF\U0001E900-\U0001E943]+";
constexpr char kAsciiPunctuation[] =
    "\\s?[!-/:-~\uFF01-\uFF0F\uFF1A-\uFF5E\u2018-\u201F\u3000-\u3002]+";
constexpr char kBloom[] = " ?[^(\\s|.,!?\u2026\u3002\uFF0C\u3001\u0964\u06D4\u060C)]+";

// The patterns as tokenizer.json files and llama.cpp publish them, stage by stage. Names that mean
// the same rule stand together.
const std::map<std::string, std::vector<std::string>>& Patterns() {
  struct Group {
    std::vector<std::string> names;
    std::vector<std::string> stages;
  };
  static const auto* const patterns = new std::map<std::string, std::vector<std::string>>([] {
    const std::vector<Group> groups = {
        {{"gpt-2", "phi-2", "mpt", "olmo", "jais", "trillion", "gigachat", "mellum", "a.x-4.0",
          "exaone4", "granite-docling"},
         {kGpt2}},
        {{"smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b",
          "mellum2"},
         {R"(\p{N})", kGpt2}},
        {{"default"}, {R"([\p{P}\$\+<=>\^~\|]+)", kGpt2, R"(\p{N}+)", "[0-9][0-9][0-9]"}},
        {{"falcon"}, {R"([\p{P}\$\+<=>\^~\|`]+)", kGpt2, "[0-9][0-9][0-9]"}},
        {{"llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2",
          "glm4", "glm5", "dbrx", "smaug-bpe", "chatglm-bpe"},
         {kLlama3}},
        {{"qwen2", "stablelm2", "megrez", "hunyuan", "deepseek-r1-qwen", "kormo", "grok-2",
          "solar-open"},
         {kQwen2}},
        {{"bailingmoe", "bailingmoe2", "llada-moe"}, {kBailing}},
        {{"qwen35"}, {kQwen35}},
        {{"minicpm5"}, {R"(\p{N}{1,3})", kMiniCpm5}},
        {{"seed-coder"}, {kSeedCoder}},
        {{"ufakzeka"}, {kUfakzeka}},
        {{"laguna"}, {R"([^\n]+|[\n]+)", kQwen2}},
        {{"gpt-4o", "llama4", "kanana2", "minimax-m2"}, {kGpt4o}},
        {{"tekken"}, {kTekken}},
        {{"bloom", "poro-chat", "gpt3-finnish"}, {kBloom}},
        {{"viking"}, {kBloom, R"(\p{N})"}},
        {{"deepseek-llm"},
         {"[\r\n]", kCasedLetters, kAsciiPunctuation, R"(\s+$)", kHan, R"(\p{N}+)"}},
        {{"deepseek-coder"}, {"[\r\n]", R"(\s?\p{L}+)", R"(\s?\p{P}+)", kHan, R"(\p{N})"}},
        {{"deepseek-v3", "hunyuan-dense", "joyai-llm"},
         {R"(\p{N}{1,3})", "[\u4E00-\u9FA5\u3040-\u309F\u30A0-\u30FF]+", kDeepSeekV3}},
    };
    std::map<std::string, std::vector<std::string>> by_name;
    for (const Group& group : groups) {
      for (const std::string& name : group.names) by_name[name] = group.stages;
    }
    return by_name;
  }());
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
  for (int round = 0; round < 5000; ++round) {
    const std::string text = random.Next();
    ASSERT_EQ(Split(GetParam(), text), SplitByPatterns(stages, text))
        << testing::PrintToString(text);
  }
}

// One name of each rule: those with the same patterns have the same stages, which is tested below.
std::vector<std::string> RuleNames() {
  std::vector<std::string> names;
  std::vector<std::vector<std::string>> seen;
  for (const auto& [name, patterns] : Patterns()) {
    if (std::ranges::find(seen, patterns) != seen.end()) continue;
    seen.push_back(patterns);
    names.push_back(name);
  }
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

TEST(PreTokenizerTest, NamesOfOneRuleHaveItsStages) {
  for (const auto& [name, patterns] : Patterns()) {
    const auto first = std::ranges::find_if(
        Patterns(), [&](const auto& entry) { return entry.second == patterns; });
    const PreTokenizer* rule = FindPreTokenizer(name);
    ASSERT_NE(rule, nullptr) << name;
    EXPECT_TRUE(std::ranges::equal(rule->stages, FindPreTokenizer(first->first)->stages)) << name;
  }
}

// The same scanners by the patterns that tokenizer.json names.
TEST(PreTokenizerTest, PatternsOfFilesHaveTheScannersOfTheRules) {
  for (const char* name : {"gpt-2", "llama-bpe", "qwen2", "qwen35", "bailingmoe", "gpt-4o",
                           "tekken", "seed-coder", "ufakzeka", "bloom", "deepseek-llm",
                           "deepseek-coder", "deepseek-v3", "minicpm5", "laguna"}) {
    const PreTokenizer& rule = *FindPreTokenizer(name);
    const std::vector<std::string>& patterns = Patterns().at(name);
    ASSERT_EQ(rule.stages.size(), patterns.size());
    for (size_t i = 0; i < patterns.size(); ++i) {
      const SplitPattern* known = FindSplitPattern(patterns[i]);
      ASSERT_NE(known, nullptr) << patterns[i];
      EXPECT_EQ(known->scan, rule.stages[i]) << patterns[i];
    }
  }
  EXPECT_EQ(FindSplitPattern("(a+)+$"), nullptr);
}

TEST(PreTokenizerTest, LaterStagesSeeNothingOutsideTheirPiece) {
  EXPECT_THAT(Split("gpt-2", "a  5"), ElementsAre("a", " ", " 5"));
  EXPECT_THAT(Split("smollm", "a  5"), ElementsAre("a", "  ", "5"));
}

TEST(PreTokenizerTest, AnUnknownRuleIsNull) { EXPECT_EQ(FindPreTokenizer("nosuch"), nullptr); }

}  // namespace
}  // namespace vitrine
