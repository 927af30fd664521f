// SentencePiece tokenizers on vocabularies small enough to follow by hand. On published ones
// tokenizer_differential.py compares them with the library.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "model/bpe_model.h"
#include "model/byte_token.h"
#include "model/sentencepiece_tokenizer.h"
#include "model/tokenizer_files.h"
#include "model/unigram_model.h"

namespace vitrine {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr char kMark[] = "\u2581";

std::string Varint(uint64_t value) {
  std::string bytes;
  for (; value >= 0x80; value >>= 7) bytes += static_cast<char>(value | 0x80);
  return bytes + static_cast<char>(value);
}
std::string VarintField(int number, uint64_t value) {
  return Varint(static_cast<uint64_t>(number) << 3) + Varint(value);
}
std::string BytesField(int number, const std::string& bytes) {
  return Varint(static_cast<uint64_t>(number) << 3 | 2) + Varint(bytes.size()) + bytes;
}

constexpr uint64_t kUnigram = 1;
constexpr uint64_t kBpe = 2;

// A tokenizer.model in the making.
struct TestModel {
  explicit TestModel(uint64_t type = kBpe) : trainer(VarintField(3, type)) {}

  std::string pieces;
  TokenId size = 0;
  std::string trainer;
  std::string normalizer = VarintField(4, 0);

  TokenId Add(const std::string& text, float score, TokenType type = TokenType::kNormal) {
    std::string score_bytes(4, '\0');
    std::memcpy(score_bytes.data(), &score, 4);
    pieces += BytesField(1, BytesField(1, text) + "\x15" + score_bytes +
                                VarintField(3, static_cast<uint64_t>(type)));
    return size++;
  }
  // Tokens 0 to 2.
  void AddSpecials() {
    Add("<unk>", 0, TokenType::kUnknown);
    Add("<s>", 0, TokenType::kControl);
    Add("</s>", 0, TokenType::kControl);
  }
  void AddBytes() {
    for (int byte = 0; byte < 256; ++byte) {
      Add(ByteTokenText(static_cast<uint8_t>(byte)), 0.0f, TokenType::kByte);
    }
  }
  std::string Bytes() const { return pieces + BytesField(2, trainer) + BytesField(3, normalizer); }
  absl::StatusOr<std::unique_ptr<Tokenizer>> TryParse() const {
    return ParseSentencePieceModel(Bytes(), "tokenizer.model", {});
  }
  std::unique_ptr<Tokenizer> Parse() const {
    auto tokenizer = TryParse();
    if (!tokenizer.ok()) throw std::runtime_error(tokenizer.status().ToString());
    return *std::move(tokenizer);
  }
};

std::vector<TokenId> Ids(const Tokenizer& tokenizer, std::string_view text,
                         const EncodeOptions& options = {}) {
  auto encoding = tokenizer.Encode(text, options);
  if (!encoding.ok()) throw std::runtime_error(encoding.status().ToString());
  return encoding->ids;
}

class ScoredBpeTest : public ::testing::Test {
 protected:
  ScoredBpeTest() {
    model_.AddSpecials();
    mark_ = model_.Add(kMark, -10);
    a_ = model_.Add("a", -11);
    b_ = model_.Add("b", -12);
    bc_ = model_.Add("bc", -2);  // "c" is no piece by itself.
    ab_ = model_.Add("ab", -3);
    mark_a_ = model_.Add(std::string(kMark) + "a", -4);
  }

  TestModel model_;
  TokenId mark_, a_, b_, bc_, ab_, mark_a_;
};

TEST_F(ScoredBpeTest, MergesByScore) {
  const auto tokenizer = model_.Parse();
  EXPECT_EQ(tokenizer->kind(), "sentencepiece/bpe");
  EXPECT_EQ(tokenizer->bos_id(), 1);
  EXPECT_THAT(tokenizer->eos_ids(), ElementsAre(2));
  const EncodeOptions plain{.add_bos = false};
  EXPECT_THAT(Ids(*tokenizer, "ab", plain), ElementsAre(mark_, ab_));
  EXPECT_THAT(Ids(*tokenizer, "abc", plain), ElementsAre(mark_a_, bc_));
  EXPECT_THAT(Ids(*tokenizer, "a a", plain), ElementsAre(mark_a_, mark_a_));
  EXPECT_THAT(Ids(*tokenizer, "a"), ElementsAre(1, mark_a_));
  EXPECT_THAT(Ids(*tokenizer, "", plain), IsEmpty());
}

TEST_F(ScoredBpeTest, WhatHasNoPieceIsUnknownOrBytes) {
  const EncodeOptions plain{.add_bos = false};
  // A character that only occurs inside a piece is as unknown as any other; two are one token.
  EXPECT_THAT(Ids(*model_.Parse(), "acz", plain), ElementsAre(mark_a_, 0));
  const TokenId first_byte = model_.size;
  model_.AddBytes();
  const auto tokenizer = model_.Parse();
  EXPECT_THAT(Ids(*tokenizer, "ac\u00E9", plain),
              ElementsAre(mark_a_, first_byte + 'c', first_byte + 0xC3, first_byte + 0xA9));
  EXPECT_EQ(tokenizer->TokenBytes(first_byte + 0xC3), "\xC3");
}

TEST_F(ScoredBpeTest, TheSpaceInFrontComesAndGoes) {
  const auto tokenizer = model_.Parse();
  for (const char* text : {"a ab", " a", "  a  ", ""}) {
    EXPECT_EQ(tokenizer->Decode(Ids(*tokenizer, text, {.add_bos = false})), text);
  }
  // What follows other text keeps its space: an answer is the bytes of its tokens.
  EXPECT_EQ(tokenizer->TokenBytes(mark_a_), " a");
  EXPECT_EQ(tokenizer->Decode(std::vector<TokenId>{1, mark_a_, mark_a_}), "<s>a a");
}

TEST_F(ScoredBpeTest, OffsetsAreThoseOfTheText) {
  const auto encoding = model_.Parse()->Encode("a abc", {});
  ASSERT_TRUE(encoding.ok());
  EXPECT_THAT(encoding->ids, ElementsAre(1, mark_a_, mark_a_, bc_));
  EXPECT_THAT(encoding->byte_offsets, ElementsAre(0, 0, 1, 3));
}

TEST_F(ScoredBpeTest, ControlTokensAreParsedOnlyWhereAllowed) {
  model_.Add("<", -20);
  model_.Add("/", -20);
  model_.Add("s>", -20);
  model_.Add("</", -20);
  const auto tokenizer = model_.Parse();
  for (const TokenId id : Ids(*tokenizer, "a</s>", {.add_bos = false})) EXPECT_NE(id, 2);
  EXPECT_THAT(Ids(*tokenizer, "a</s>a", {.parse_special = true, .add_bos = false}),
              ElementsAre(mark_a_, 2, a_));
}

TEST_F(ScoredBpeTest, UserDefinedTokensAreFoundInTheNormalisedText) {
  const TokenId two = model_.Add(std::string(kMark) + kMark, 0, TokenType::kUserDefined);
  const auto tokenizer = model_.Parse();
  EXPECT_THAT(Ids(*tokenizer, " a", {.add_bos = false}), ElementsAre(two, a_));
  EXPECT_EQ(tokenizer->TokenBytes(two), "  ");
}

TEST_F(ScoredBpeTest, ExtraSpacesGoWhereTheModelSaysSo) {
  model_.normalizer = VarintField(4, 1);
  const auto tokenizer = model_.Parse();
  EXPECT_THAT(Ids(*tokenizer, "   a   a  ", {.add_bos = false}), ElementsAre(mark_a_, mark_a_));
  EXPECT_THAT(Ids(*tokenizer, "   ", {.add_bos = false}), IsEmpty());
  model_.normalizer = VarintField(3, 0) + VarintField(4, 0);
  EXPECT_THAT(Ids(*model_.Parse(), "ab", {.add_bos = false}), ElementsAre(ab_));
}

TEST_F(ScoredBpeTest, BrokenModelsAreRefused) {
  const auto message = [&](const std::string& bytes) {
    return std::string(ParseSentencePieceModel(bytes, "tokenizer.model", {}).status().message());
  };
  EXPECT_THAT(message(""), HasSubstr("the vocabulary is empty"));
  EXPECT_THAT(message("not a model"), HasSubstr("a field is malformed"));
  EXPECT_THAT(message(BytesField(1, VarintField(3, 9))), HasSubstr("token 0 has the type 9"));
  const std::string whole = model_.Bytes();
  for (size_t size = 0; size < whole.size(); ++size) {
    // Cut between fields of the file it is a smaller model, else it is refused: never read beyond.
    const auto ignored = ParseSentencePieceModel(whole.substr(0, size), "cut", {});
  }
  model_.Add("x", std::numeric_limits<float>::quiet_NaN());
  EXPECT_THAT(message(model_.Bytes()), HasSubstr("score of token 9"));
  TestModel words(3);
  words.Add("a", 0);
  EXPECT_EQ(words.TryParse().status().code(), absl::StatusCode::kUnimplemented);
  TestModel map;
  map.Add("a", 0);
  map.normalizer = BytesField(2, "\xFF\xFF\xFF\x7Fx");
  EXPECT_THAT(message(map.Bytes()), HasSubstr("precompiled_charsmap"));
}

// Cutting text in front of U+2581 must not show: against the same merges over the whole text.
TEST(BpeModelTest, CutTextEqualsWholeText) {
  std::mt19937 random(5);
  for (int round = 0; round < 300; ++round) {
    std::vector<std::string> texts = {"a", "b", kMark, "\u00E9"};
    for (int i = 0; i < 12; ++i) {
      texts.push_back(texts[random() % texts.size()] + texts[random() % texts.size()]);
    }
    std::vector<ScoredPiece> pieces;
    for (const std::string& text : texts) {
      pieces.push_back({text, static_cast<TokenId>(pieces.size()), -double(random() % 10)});
    }
    ByteIds none;
    none.fill(-1);
    const auto model = *BpeModel::CreateFromScores(pieces, none, {});
    std::string text;
    for (size_t i = random() % 30; i > 0; --i) text += texts[random() % 4];
    SubwordModel::Workspace workspace;
    std::vector<PlacedToken> tokens;
    model->Encode(text, 0, workspace, tokens);
    // The definition: the best pair, the leftmost of equal ones, until there is none.
    std::vector<std::string> symbols;
    for (size_t i = 0; i < text.size();) {
      const size_t length = text[i] == 'a' || text[i] == 'b' ? 1 : text[i] == '\xC3' ? 2 : 3;
      symbols.push_back(text.substr(i, length));
      i += length;
    }
    while (true) {
      size_t best = symbols.size();
      double best_score = 0;
      for (size_t i = 0; i + 1 < symbols.size(); ++i) {
        const auto found = std::ranges::find(texts, symbols[i] + symbols[i + 1]);
        if (found == texts.end()) continue;
        const double score = pieces[static_cast<size_t>(found - texts.begin())].score;
        if (best < symbols.size() && score <= best_score) continue;
        best = i;
        best_score = score;
      }
      if (best == symbols.size()) break;
      symbols[best] += symbols[best + 1];
      symbols.erase(symbols.begin() + static_cast<ptrdiff_t>(best) + 1);
    }
    std::vector<std::string> encoded;
    for (const PlacedToken& token : tokens) encoded.emplace_back(texts[size_t(token.id)]);
    ASSERT_EQ(encoded, symbols) << text;
  }
}

TEST(UnigramModelTest, TakesTheLikeliestSegmentation) {
  TestModel model(kUnigram);
  model.AddSpecials();
  const TokenId mark = model.Add(kMark, -3);
  const TokenId a = model.Add("a", -3);
  const TokenId b = model.Add("b", -3);
  const TokenId ab = model.Add("ab", -5);
  const TokenId mark_aba = model.Add(std::string(kMark) + "aba", -9.5f);
  const auto tokenizer = model.Parse();
  EXPECT_EQ(tokenizer->kind(), "sentencepiece/unigram");
  const EncodeOptions plain{.add_bos = false};
  EXPECT_THAT(Ids(*tokenizer, "ab", plain), ElementsAre(mark, ab));
  EXPECT_THAT(Ids(*tokenizer, "aba", plain), ElementsAre(mark_aba));
  EXPECT_THAT(Ids(*tokenizer, "ba", plain), ElementsAre(mark, b, a));
  EXPECT_THAT(Ids(*tokenizer, "azzb", plain), ElementsAre(mark, a, 0, b));
}

TEST(UnigramModelTest, UserDefinedTokensAreVeryLikelyPieces) {
  TestModel model(kUnigram);
  model.AddSpecials();
  const TokenId mark = model.Add(kMark, -3);
  const TokenId a = model.Add("a", -3);
  const TokenId four = model.Add(std::string(kMark) + kMark + kMark + kMark, -0.25f);
  const TokenId two = model.Add(std::string(kMark) + kMark, -50, TokenType::kUserDefined);
  const TokenId ab = model.Add("ab", 0, TokenType::kUserDefined);
  const auto tokenizer = model.Parse();
  const EncodeOptions plain{.add_bos = false};
  EXPECT_THAT(Ids(*tokenizer, " a", plain), ElementsAre(two, a));
  // The first of equally likely ways: not the leftmost match.
  EXPECT_THAT(Ids(*tokenizer, "  a", plain), ElementsAre(mark, two, a));
  EXPECT_THAT(Ids(*tokenizer, "   a", plain), ElementsAre(two, two, a));
  EXPECT_THAT(Ids(*tokenizer, "aab", plain), ElementsAre(mark, a, ab));
  EXPECT_THAT(Ids(*tokenizer, "ab ab", plain), ElementsAre(mark, ab, mark, ab));
  EXPECT_NE(four, two);
}

TEST(SentencePieceTest, UserDefinedTokensPassTheNormaliser) {
  std::vector<uint32_t> units(256, 0);
  units[0] = 1u << 10;  // Children of the root lie at 1 ^ byte.
  const uint32_t node = 1 ^ 'U';
  units[node] = 2u << 10 | 1u << 8 | 'U';  // "U" becomes "u".
  units[node ^ 2] = 0x80000000u;
  const uint32_t control = 1 ^ 0x1D;
  units[control] = 2u << 10 | 1u << 8 | 0x1D;  // U+001D becomes nothing.
  units[control ^ 2] = 0x80000000u | 1;
  std::string map(4, '\0');
  const auto size = static_cast<uint32_t>(units.size() * 4);
  std::memcpy(map.data(), &size, 4);
  map.append(reinterpret_cast<const char*>(units.data()), size);
  map += std::string("u\0", 2);
  for (const uint64_t type : {kUnigram, kBpe}) {
    TestModel model(type);
    model.normalizer = BytesField(2, map) + VarintField(3, 0) + VarintField(4, 0);
    model.AddSpecials();
    const TokenId u = model.Add("u", -3);
    const TokenId symbol = model.Add("[U]", 0, TokenType::kUserDefined);
    EXPECT_THAT(Ids(*model.Parse(), "U[U]u", {.add_bos = false}), ElementsAre(u, symbol, u));
    // A space goes in front of a text of which nothing else is left.
    model.normalizer = BytesField(2, map) + VarintField(4, 0);
    const TokenId mark = model.Add(kMark, -4);
    EXPECT_THAT(Ids(*model.Parse(), "\x1D", {.add_bos = false}), ElementsAre(mark));
  }
}

TEST(UnigramModelTest, EqualsTheBestOfAllSegmentations) {
  std::mt19937 random(9);
  ByteIds none;
  none.fill(-1);
  for (int round = 0; round < 300; ++round) {
    std::vector<std::string> texts = {"a", "b"};
    std::vector<ScoredPiece> pieces;
    for (int i = 0; i < 6; ++i) {
      std::string text;
      for (size_t k = 2 + random() % 3; k > 0; --k) text += "ab"[random() % 2];
      texts.push_back(text);
    }
    for (size_t i = 0; i < texts.size(); ++i) {
      const double score = -double(random() % 1000) / 64;
      const bool is_new = std::find(texts.begin(), texts.begin() + static_cast<ptrdiff_t>(i),
                                    texts[i]) == texts.begin() + static_cast<ptrdiff_t>(i);
      if (is_new) pieces.push_back({texts[i], static_cast<TokenId>(i), score});
    }
    const auto model = *UnigramModel::Create(pieces, none, {});
    std::string text;
    for (size_t i = 1 + random() % 12; i > 0; --i) text += "ab"[random() % 2];
    std::vector<double> best(text.size() + 1, -1e9);
    best[0] = 0;
    for (size_t end = 1; end <= text.size(); ++end) {
      for (const ScoredPiece& piece : pieces) {
        if (!std::string_view(text).substr(0, end).ends_with(piece.text)) continue;
        best[end] = std::max(best[end], best[end - piece.text.size()] + piece.score);
      }
    }
    SubwordModel::Workspace workspace;
    std::vector<PlacedToken> tokens;
    model->Encode(text, 0, workspace, tokens);
    double total = 0;
    std::string joined;
    for (const PlacedToken& token : tokens) {
      EXPECT_EQ(token.offset, joined.size());
      joined += texts[size_t(token.id)];
      total += std::ranges::find(pieces, token.id, &ScoredPiece::id)->score;
    }
    EXPECT_EQ(joined, text);
    EXPECT_EQ(total, best.back()) << text;  // Sums of few multiples of 1/64 are exact.
  }
}

// A table with one entry, "x" to "yz ", in the layout of Darts: the root is unit 0.
TEST(CharacterMapTest, ReplacesWhatTheTrieHolds) {
  std::vector<uint32_t> units(256, 0);
  const auto offset = [](uint32_t value) { return value << 10; };
  units[0] = offset(1);  // Children of the root lie at 1 ^ byte.
  const uint32_t node = 1 ^ 'x';
  units[node] = offset(2) | 1u << 8 | 'x';  // Has a leaf, at node ^ 2.
  units[node ^ 2] = 0x80000000u | 4;        // The replacement at byte 4.
  std::string bytes(4, '\0');
  const auto size = static_cast<uint32_t>(units.size() * 4);
  std::memcpy(bytes.data(), &size, 4);
  bytes.append(reinterpret_cast<const char*>(units.data()), size);
  bytes += std::string("abc\0yz \0", 8);
  const auto map = CharacterMap::Parse(bytes);
  ASSERT_TRUE(map.ok()) << map.status();
  EXPECT_EQ(map->FindLongest("xx").length, 1u);
  EXPECT_EQ(map->FindLongest("xx").replacement, "yz ");
  EXPECT_EQ(map->FindLongest("y").length, 0u);

  AlignedText text;
  text.Append("x", 0);
  text.Append("  a", 1);
  SentencePieceNormalizer(*map, {})(text, true);
  EXPECT_EQ(text.bytes, std::string(kMark) + "yz" + kMark + "a");
  EXPECT_EQ(text.sources.size(), text.bytes.size());
  for (const size_t cut : {3, 4, 5, 1027, 1028}) {
    EXPECT_FALSE(CharacterMap::Parse(bytes.substr(0, cut)).ok()) << cut;
  }
}

// tokenizer_config.json beside a tokenizer.model.
TEST(SentencePieceTest, AFolderSaysWhetherTheBeginTokenIsPutInFront) {
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / ("sentencepiece." + std::to_string(getpid()));
  std::filesystem::create_directories(folder);
  TestModel model;
  model.AddSpecials();
  const TokenId a = model.Add("\u2581a", 0);
  std::ofstream(folder / "tokenizer.model", std::ios::binary) << model.Bytes();
  const auto read = [&](const std::string& config) {
    std::ofstream(folder / "tokenizer_config.json") << config;
    return ReadTokenizerFolder(folder, {});
  };
  EXPECT_THAT(Ids(**read("{}"), "a"), ElementsAre(1, a));
  EXPECT_THAT(Ids(**read(R"({"add_bos_token": true})"), "a"), ElementsAre(1, a));
  EXPECT_THAT(Ids(**read(R"({"add_bos_token": false})"), "a"), ElementsAre(a));
  EXPECT_THAT(std::string(read(R"({"add_eos_token": true})").status().message()),
              HasSubstr("add_eos_token is not supported"));
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace vitrine
