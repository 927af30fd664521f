// Streaming text against the rules of its header: on recorded token streams, on the token streams
// that have broken other servers (each case names the report), and on random bytes cut at random
// places against a table of every legal prefix.
#include "model/detokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <set>

#include "model/categorized_text.h"
#include "model/tokenizer.h"
#include "tests/model/golden_files.h"

namespace vitrine {
namespace {

TEST(Utf8StreamTest, ReleasesWhatTheReferenceReleases) {
  const auto file = GgufFile::Open(RealModelPath());
  ASSERT_TRUE(file.ok()) << file.status();
  const auto tokenizer = CreateTokenizer(**file);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  for (const nlohmann::json& entry : ReadJsonLines("tokenizer/streaming.jsonl")) {
    Utf8Stream stream;
    std::string text;
    for (size_t i = 0; i < entry["ids"].size(); ++i) {
      text += stream.Append((*tokenizer)->TokenBytes(entry["ids"][i]));
      EXPECT_EQ(text, FromBase64(entry["steps_b64"][i])) << entry["id"] << " token " << i;
      EXPECT_EQ(stream.held_bytes(), entry["held_bytes"][i]) << entry["id"] << " token " << i;
    }
    EXPECT_EQ(text + stream.Flush(), FromBase64(entry["final_b64"])) << entry["id"];
  }
}

TEST(Utf8StreamTest, SurvivesTheStreamsThatBrokeOthers) {
  for (const nlohmann::json& entry : ReadJsonLines("tokenizer/utf8-cases.jsonl")) {
    Utf8Stream stream;
    for (const nlohmann::json& step : entry["steps"]) {
      EXPECT_EQ(stream.Append(FromHex(step["bytes"])), step["text"].get<std::string>())
          << entry["id"];
      EXPECT_EQ(stream.held_bytes(), FromHex(step["held"]).size()) << entry["id"];
    }
    EXPECT_EQ(stream.Flush(), entry["final"].get<std::string>()) << entry["id"];
  }
}

// All characters and all their proper prefixes.
struct LegalSequences {
  std::set<std::string> characters;
  std::set<std::string> prefixes;

  LegalSequences() {
    for (char32_t c = 0; c < kCodePoints; ++c) {
      if (c >= 0xD800 && c <= 0xDFFF) continue;
      std::string bytes;
      AppendUtf8(c, bytes);
      for (size_t i = 1; i < bytes.size(); ++i) prefixes.insert(bytes.substr(0, i));
      characters.insert(std::move(bytes));
    }
  }

  // `bytes` with U+FFFD for each maximal ill-formed part.
  std::string Repair(std::string_view bytes, size_t* first_bad) const {
    std::string text;
    *first_bad = std::string_view::npos;
    for (size_t i = 0; i < bytes.size();) {
      size_t length = 1;
      while (prefixes.contains(std::string(bytes.substr(i, length))) && i + length < bytes.size() &&
             IsLegal(bytes.substr(i, length + 1))) {
        ++length;
      }
      const std::string part(bytes.substr(i, length));
      const bool is_character = characters.contains(part);
      if (!is_character && *first_bad == std::string_view::npos) *first_bad = i;
      text += is_character ? part : "\xEF\xBF\xBD";
      i += length;
    }
    return text;
  }

  bool IsLegal(std::string_view bytes) const {
    return prefixes.contains(std::string(bytes)) || characters.contains(std::string(bytes));
  }
};

TEST(Utf8StreamTest, AnyBytesCutAnywhereGiveTheSameText) {
  const LegalSequences legal;
  std::mt19937 random(5);
  // Bytes at the edges of the ranges that UTF-8 is made of.
  const std::string edges =
      "a\x7F\x80\x8F\x90\x9F\xA0\xBF\xC0\xC1\xC2\xDF\xE0\xE1\xED\xEE\xEF\xF0\xF1\xF3\xF4\xF5\xFF";
  for (int round = 0; round < 20000; ++round) {
    std::string bytes(random() % 12, ' ');
    for (char& byte : bytes) byte = edges[random() % edges.size()];
    size_t first_bad;
    const std::string expected = legal.Repair(bytes, &first_bad);
    ASSERT_EQ(FindInvalidUtf8(bytes), first_bad) << testing::PrintToString(bytes);

    Utf8Stream stream;
    std::string text;
    for (size_t i = 0; i < bytes.size();) {
      const size_t length = 1 + random() % 4;
      text += stream.Append(std::string_view(bytes).substr(i, length));
      ASSERT_EQ(FindInvalidUtf8(text), std::string_view::npos);
      ASSERT_LE(stream.held_bytes(), 3u);
      i += length;
    }
    text += stream.Flush();
    ASSERT_EQ(text, expected) << testing::PrintToString(bytes);
    ASSERT_EQ(stream.Flush(), "");
  }
}

TEST(FindInvalidUtf8Test, SeesEveryPlaceOfALongText) {
  for (size_t length = 0; length < 40; ++length) {
    const std::string text(length, 'x');
    EXPECT_EQ(FindInvalidUtf8(text), std::string_view::npos);
    for (size_t i = 0; i < length; ++i) {
      std::string broken = text;
      broken[i] = '\xFF';
      EXPECT_EQ(FindInvalidUtf8(broken), i);
    }
  }
}

TEST(FindInvalidUtf8Test, AcceptsEveryCharacter) {
  std::string text;
  for (char32_t c = 0; c < kCodePoints; ++c) {
    if (c < 0xD800 || c > 0xDFFF) AppendUtf8(c, text);
  }
  EXPECT_EQ(FindInvalidUtf8(text), std::string_view::npos);
}

}  // namespace
}  // namespace vitrine
