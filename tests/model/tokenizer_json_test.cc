// tokenizer.json on vocabularies small enough to follow by hand, and on the tokenizer of the golden
// models against what the Python package tokenizers made of their texts.
#include "model/tokenizer_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "model/byte_alphabet.h"
#include "model/byte_token.h"
#include "model/tokenizer_files.h"
#include "tests/model/golden_files.h"

namespace vitrine {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Json = nlohmann::json;

constexpr char kSpace[] = "\xC4\xA0";  // The stand-in for the space in the byte alphabet.

// A byte-level tokenizer: bytes are the tokens 0 to 255, then what the tests add.
Json ByteLevelFile() {
  Json vocab = Json::object();
  for (int byte = 0; byte < 256; ++byte) {
    vocab[EncodeByteAlphabet(static_cast<uint8_t>(byte))] = byte;
  }
  vocab["ab"] = 256;
  vocab[std::string(kSpace) + "ab"] = 257;
  vocab["abab"] = 258;
  Json level = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", true}};
  return {{"added_tokens", Json::array()},
          {"normalizer", nullptr},
          {"pre_tokenizer", level},
          {"post_processor", nullptr},
          {"decoder", level},
          {"model",
           {{"type", "BPE"},
            {"vocab", vocab},
            {"merges", {"a b", std::string(kSpace) + " ab", "ab ab"}}}}};
}

Json AddedTokenJson(TokenId id, const std::string& content, bool special) {
  return {{"id", id},        {"content", content},  {"single_word", false}, {"lstrip", false},
          {"rstrip", false}, {"normalized", false}, {"special", special}};
}

absl::StatusOr<std::unique_ptr<Tokenizer>> TryParse(const Json& file,
                                                    const SpecialTokens& special = {}) {
  return ParseTokenizerJson(file.dump(), "tokenizer.json", special);
}

std::unique_ptr<Tokenizer> MustParse(const Json& file, const SpecialTokens& special = {}) {
  auto tokenizer = TryParse(file, special);
  if (!tokenizer.ok()) throw std::runtime_error(tokenizer.status().ToString());
  return *std::move(tokenizer);
}

std::vector<TokenId> Ids(const Tokenizer& tokenizer, std::string_view text,
                         const EncodeOptions& options = {}) {
  auto encoding = tokenizer.Encode(text, options);
  if (!encoding.ok()) throw std::runtime_error(encoding.status().ToString());
  return encoding->ids;
}

TEST(TokenizerJsonTest, MergesAsStringsAndAsPairs) {
  Json file = ByteLevelFile();
  EXPECT_THAT(Ids(*MustParse(file), "abab ab"), ElementsAre(258, 257));
  file["model"]["merges"] = Json::array(
      {Json::array({"a", "b"}), Json::array({kSpace, "ab"}), Json::array({"ab", "ab"})});
  const auto tokenizer = MustParse(file);
  EXPECT_THAT(Ids(*tokenizer, "abab ab"), ElementsAre(258, 257));
  EXPECT_EQ(tokenizer->TokenBytes(257), " ab");
  EXPECT_EQ(tokenizer->vocabulary(), 259);
}

TEST(TokenizerJsonTest, IgnoredMergesTakeWholeWords) {
  Json file = ByteLevelFile();
  file["model"]["vocab"]["word"] = 259;
  EXPECT_THAT(Ids(*MustParse(file), "word"), ElementsAre('w', 'o', 'r', 'd'));
  file["model"]["ignore_merges"] = true;
  EXPECT_THAT(Ids(*MustParse(file), "word"), ElementsAre(259));
}

TEST(TokenizerJsonTest, AddedTokensTakeWhiteSpaceAlongAsTheirFlagsSay) {
  Json file = ByteLevelFile();
  Json token = AddedTokenJson(259, "<x>", false);
  file["added_tokens"] = {token};
  EXPECT_THAT(Ids(*MustParse(file), "a <x> b"), ElementsAre('a', ' ', 259, ' ', 'b'));
  file["added_tokens"][0]["lstrip"] = true;
  EXPECT_THAT(Ids(*MustParse(file), "a \t<x> b"), ElementsAre('a', 259, ' ', 'b'));
  file["added_tokens"][0]["rstrip"] = true;
  const auto tokenizer = MustParse(file);
  EXPECT_THAT(Ids(*tokenizer, "a <x> \n<x>b"), ElementsAre('a', 259, 259, 'b'));
  EXPECT_EQ(tokenizer->TokenBytes(259), "<x>");
  EXPECT_FALSE(tokenizer->IsControl(259));
}

TEST(TokenizerJsonTest, SingleWordsStandAlone) {
  Json file = ByteLevelFile();
  file["added_tokens"] = {AddedTokenJson(259, "ab", false)};
  file["added_tokens"][0]["single_word"] = true;
  file["model"]["vocab"].erase("ab");
  file["model"]["vocab"].erase("abab");
  file["model"]["vocab"].erase(std::string(kSpace) + "ab");
  file["model"]["merges"] = Json::array();
  const auto tokenizer = MustParse(file);
  EXPECT_THAT(Ids(*tokenizer, "ab,ab"), ElementsAre(259, ',', 259));
  EXPECT_THAT(Ids(*tokenizer, "xab"), ElementsAre('x', 'a', 'b'));
  EXPECT_THAT(Ids(*tokenizer, "ab_"), ElementsAre('a', 'b', '_'));
  EXPECT_THAT(Ids(*tokenizer, "ab\xCC\x81"), ElementsAre('a', 'b', 0xCC, 0x81));
}

TEST(TokenizerJsonTest, ControlTokensAreParsedOnlyWhereAllowed) {
  Json file = ByteLevelFile();
  file["added_tokens"] = {AddedTokenJson(259, "<s>", true), AddedTokenJson(260, "<t>", false)};
  const auto tokenizer = MustParse(file);
  EXPECT_TRUE(tokenizer->IsControl(259));
  EXPECT_THAT(Ids(*tokenizer, "<s><t>"), ElementsAre('<', 's', '>', 260));
  EXPECT_THAT(Ids(*tokenizer, "<s><t>", {.parse_special = true}), ElementsAre(259, 260));
  // A user's text between two pieces of a template, then one that runs into a template's token.
  const std::vector<ByteRange> inner = {{3, 6}};
  EXPECT_THAT(Ids(*tokenizer, "<s><s><s>", {.parse_special = true, .plain_ranges = inner}),
              ElementsAre(259, '<', 's', '>', 259));
  const std::vector<ByteRange> overlapping = {{1, 2}};
  EXPECT_THAT(Ids(*tokenizer, "<s><t>", {.parse_special = true, .plain_ranges = overlapping}),
              ElementsAre('<', 's', '>', 260));
}

TEST(TokenizerJsonTest, PlainRangesFollowTheNormalisedText) {
  Json file = ByteLevelFile();
  file["normalizer"] = {{"type", "Replace"}, {"pattern", {{"String", "a"}}}, {"content", "bbb"}};
  file["added_tokens"] = {AddedTokenJson(259, "<s>", true)};
  file["added_tokens"][0]["normalized"] = true;
  const auto tokenizer = MustParse(file);
  const std::vector<ByteRange> plain = {{4, 7}};
  const EncodeOptions options{.parse_special = true, .plain_ranges = plain};
  EXPECT_THAT(Ids(*tokenizer, "a<s><s>", options), ElementsAre('b', 'b', 'b', 259, '<', 's', '>'));
}

TEST(TokenizerJsonTest, TheTemplateStandsAroundTheText) {
  Json file = ByteLevelFile();
  file["added_tokens"] = {AddedTokenJson(259, "<s>", true), AddedTokenJson(260, "</s>", true)};
  const Json sequence = {{"Sequence", {{"id", "A"}, {"type_id", 0}}}};
  const auto special = [](const char* id) {
    return Json{{"SpecialToken", {{"id", id}, {"type_id", 0}}}};
  };
  file["post_processor"] = {{"type", "Sequence"},
                            {"processors",
                             {{{"type", "ByteLevel"}},
                              {{"type", "TemplateProcessing"},
                               {"single", {special("<s>"), sequence, special("</s>")}},
                               {"special_tokens",
                                {{"<s>", {{"id", "<s>"}, {"ids", {259}}}},
                                 {"</s>", {{"id", "</s>"}, {"ids", {260}}}}}}}}}};
  const auto tokenizer = MustParse(file);
  EXPECT_EQ(tokenizer->bos_id(), 259);
  EXPECT_THAT(Ids(*tokenizer, "x"), ElementsAre(259, 'x', 260));
  EXPECT_THAT(Ids(*tokenizer, "<s>x", {.parse_special = true}), ElementsAre(259, 'x', 260));
  EXPECT_THAT(Ids(*tokenizer, "x", {.add_bos = false}), ElementsAre('x'));
  EXPECT_THAT(Ids(*tokenizer, ""), ElementsAre(259, 260));
}

TEST(TokenizerJsonTest, SpecialTokensOfOtherFiles) {
  Json file = ByteLevelFile();
  file["added_tokens"] = {AddedTokenJson(259, "<s>", true), AddedTokenJson(260, "</s>", true)};
  const auto by_text = MustParse(file, {.bos_text = "<s>", .bos_id = 3, .eos_text = "</s>"});
  EXPECT_EQ(by_text->bos_id(), 259);
  EXPECT_THAT(by_text->eos_ids(), ElementsAre(260));
  const auto by_id = MustParse(file, {.bos_text = "<none>", .bos_id = 3, .eos_ids = {4, 5}});
  EXPECT_EQ(by_id->bos_id(), 3);
  EXPECT_THAT(by_id->eos_ids(), ElementsAre(4, 5));
  EXPECT_THAT(Ids(*by_id, "x"), ElementsAre('x'));
  EXPECT_FALSE(TryParse(file, {.eos_ids = {261}}).ok());
}

TEST(TokenizerJsonTest, IdsThatNoTextHasAreTokensThatNothingGives) {
  Json file = ByteLevelFile();
  file["added_tokens"] = {AddedTokenJson(270, "<x>", false)};
  const auto tokenizer = MustParse(file);
  EXPECT_EQ(tokenizer->vocabulary(), 271);
  EXPECT_EQ(tokenizer->TokenBytes(265), "");
}

TEST(TokenizerJsonTest, AByteLevelPrefixSpace) {
  Json file = ByteLevelFile();
  file["pre_tokenizer"]["add_prefix_space"] = true;
  const auto tokenizer = MustParse(file);
  const auto encoding = tokenizer->Encode("ab ab", {});
  ASSERT_TRUE(encoding.ok());
  EXPECT_THAT(encoding->ids, ElementsAre(257, 257));
  EXPECT_THAT(encoding->byte_offsets, ElementsAre(0, 2));
  EXPECT_THAT(Ids(*tokenizer, " ab"), ElementsAre(257));
  EXPECT_THAT(Ids(*tokenizer, ""), IsEmpty());
}

TEST(TokenizerJsonTest, NormalisersKeepOffsets) {
  Json file = ByteLevelFile();
  file["normalizer"] = {
      {"type", "Sequence"},
      {"normalizers",
       {{{"type", "Strip"}, {"strip_left", true}, {"strip_right", true}},
        {{"type", "Replace"}, {"pattern", {{"Regex", " {2,}"}}}, {"content", " "}},
        {{"type", "Replace"}, {"pattern", {{"String", "XY"}}}, {"content", "ab"}},
        {{"type", "Prepend"}, {"prepend", "ab"}}}}};
  const auto encoding = MustParse(file)->Encode("\t XY    XY\n", {});
  ASSERT_TRUE(encoding.ok());
  EXPECT_THAT(encoding->ids, ElementsAre(258, 257));
  EXPECT_THAT(encoding->byte_offsets, ElementsAre(2, 4));
}

// The files of Llama 2, Mistral and Gemma: characters, spaces as U+2581, bytes for the rest.
Json CharacterFile() {
  Json vocab = {{"<unk>", 0}, {"\u2581", 1}, {"a", 2}, {"b", 3}, {"\u2581a", 4}, {"ab", 5}};
  for (int byte = 0; byte < 256; ++byte) {
    vocab[ByteTokenText(static_cast<uint8_t>(byte))] = 10 + byte;
  }
  return {{"added_tokens", {AddedTokenJson(0, "<unk>", true), AddedTokenJson(6, "<s>", true)}},
          {"normalizer",
           {{"type", "Sequence"},
            {"normalizers",
             {{{"type", "Prepend"}, {"prepend", "\u2581"}},
              {{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", "\u2581"}}}}}},
          {"pre_tokenizer", nullptr},
          {"decoder",
           {{"type", "Sequence"},
            {"decoders",
             {{{"type", "Replace"}, {"pattern", {{"String", "\u2581"}}}, {"content", " "}},
              {{"type", "ByteFallback"}},
              {{"type", "Fuse"}},
              {{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}}}}}},
          {"model",
           {{"type", "BPE"},
            {"unk_token", "<unk>"},
            {"fuse_unk", true},
            {"byte_fallback", true},
            {"vocab", vocab},
            {"merges", {"a b", "\u2581 a"}}}}};
}

TEST(TokenizerJsonTest, CharactersWithBytesForTheRest) {
  const auto tokenizer = MustParse(CharacterFile());
  EXPECT_EQ(tokenizer->kind(), "bpe/characters");
  EXPECT_THAT(Ids(*tokenizer, "a ab a"), ElementsAre(4, 1, 5, 4));
  EXPECT_THAT(Ids(*tokenizer, "\u00E9"), ElementsAre(1, 10 + 0xC3, 10 + 0xA9));
  EXPECT_EQ(tokenizer->Decode(Ids(*tokenizer, " a\u00E9")), " a\u00E9");
  // The prefix stands in front of every part between added tokens.
  EXPECT_THAT(Ids(*tokenizer, "a<s>a", {.parse_special = true}), ElementsAre(4, 6, 4));
  Json unknown = CharacterFile();
  unknown["model"]["byte_fallback"] = false;
  EXPECT_THAT(Ids(*MustParse(unknown), "xyza"), ElementsAre(1, 0, 2));
  unknown["model"]["fuse_unk"] = false;
  EXPECT_THAT(Ids(*MustParse(unknown), "xya"), ElementsAre(1, 0, 0, 2));
}

TEST(TokenizerJsonTest, MetaspacePrependsAsItsSchemeSays) {
  Json file = CharacterFile();
  file["normalizer"] = nullptr;
  const auto ids = [&](const char* scheme, bool split) {
    file["pre_tokenizer"] = {{"type", "Metaspace"},
                             {"replacement", "\u2581"},
                             {"prepend_scheme", scheme},
                             {"split", split}};
    return Ids(*MustParse(file), "a<s>a  a", {.parse_special = true});
  };
  EXPECT_THAT(ids("always", true), ElementsAre(4, 6, 4, 1, 4));
  EXPECT_THAT(ids("first", false), ElementsAre(4, 6, 2, 1, 4));
  EXPECT_THAT(ids("never", true), ElementsAre(2, 6, 2, 1, 4));
}

TEST(TokenizerJsonTest, UnigramsTakeTheLikeliestPieces) {
  Json file = CharacterFile();
  file["normalizer"] = nullptr;
  file["pre_tokenizer"] = {
      {"type", "Sequence"},
      {"pretokenizers",
       {{{"type", "WhitespaceSplit"}}, {{"type", "Metaspace"}, {"replacement", "\u2581"}}}}};
  file["decoder"] = {{"type", "Metaspace"}, {"replacement", "\u2581"}};
  file["added_tokens"] = {AddedTokenJson(0, "<unk>", true)};
  const auto piece = [](const char* text, double score) { return Json::array({text, score}); };
  file["model"] = {
      {"type", "Unigram"},
      {"unk_id", 0},
      {"vocab", Json::array({piece("<unk>", 0), piece("\u2581", -2), piece("a", -3), piece("b", -3),
                             piece("ab", -5.5), piece("\u2581ab", -8)})}};
  const auto tokenizer = MustParse(file);
  EXPECT_EQ(tokenizer->kind(), "unigram");
  EXPECT_THAT(Ids(*tokenizer, "ab\t ba"), ElementsAre(1, 4, 1, 3, 2));
  EXPECT_THAT(Ids(*tokenizer, "xyb"), ElementsAre(1, 0, 3));
  EXPECT_EQ(tokenizer->Decode(Ids(*tokenizer, "ab ba")), "ab ba");
}

// Unicode standard annex 15, and the spellings that reliability demands.
TEST(TokenizerJsonTest, FormsOfUnicode) {
  const auto normalized = [](const Json& normalizer, std::string_view text) {
    Json file = ByteLevelFile();
    file["normalizer"] = normalizer;
    const auto tokenizer = MustParse(file);
    const auto encoding = tokenizer->Encode(text, {});
    if (!encoding.ok()) throw std::runtime_error(encoding.status().ToString());
    for (const uint32_t offset : encoding->byte_offsets) EXPECT_LE(offset, text.size());
    return tokenizer->Decode(encoding->ids);
  };
  const Json nfc = {{"type", "NFC"}}, nfd = {{"type", "NFD"}}, nfkc = {{"type", "NFKC"}};
  EXPECT_EQ(normalized(nfc, "Kanto\u0304 l\u00FC\u030Cshi"), "Kant\u014D l\u01DAshi");
  EXPECT_EQ(normalized(nfd, "Kant\u014D l\u01DAshi"), "Kanto\u0304 lu\u0308\u030Cshi");
  EXPECT_EQ(normalized(nfc, "a\u0301\u0323"), "\u1EA1\u0301");
  EXPECT_EQ(normalized(nfc, "\u1112\u1161\u11AB\u1100\u1173"), "\uD55C\uADF8");
  EXPECT_EQ(normalized(nfd, "\uD55C"), "\u1112\u1161\u11AB");
  EXPECT_EQ(normalized(nfkc, "4 \u00BD \uFB01 \uFF21"), "4 1\u20442 fi A");
  EXPECT_EQ(normalized({{"type", "Lowercase"}}, "\u0130STANBUL \u00C9"), "i\u0307stanbul \u00E9");
  EXPECT_EQ(normalized({{"type", "StripAccents"}}, "e\u0301a"), "ea");
  // Marks that all move: quadratic in the library's own sort.
  std::string marks = "a";
  for (int i = 0; i < 100000; ++i) marks += "\u0301\u0323";
  EXPECT_EQ(normalized(nfc, marks).substr(0, 5), "\u1EA1\u0323");
}

TEST(TokenizerJsonTest, WhatIsBrokenIsRefusedByName) {
  const auto message = [](const std::function<void(Json&)>& change) {
    Json file = ByteLevelFile();
    change(file);
    const absl::Status status = TryParse(file).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    return std::string(status.message());
  };
  EXPECT_THAT(message([](Json& f) { f["model"]["merges"].push_back("abcd"); }),
              HasSubstr("model.merges[3] is \"abcd\", not two texts"));
  EXPECT_THAT(message([](Json& f) { f["model"]["merges"].push_back("qq zz"); }),
              HasSubstr("merge 3"));
  EXPECT_THAT(message([](Json& f) { f["model"]["merges"].push_back(7); }),
              HasSubstr("model.merges[3] is an integer"));
  EXPECT_THAT(message([](Json& f) { f["model"]["merges"].push_back({"a", "b", "c"}); }),
              HasSubstr("not a pair"));
  EXPECT_THAT(message([](Json& f) { f["model"]["vocab"]["zz"] = -1; }), HasSubstr("id -1"));
  EXPECT_THAT(message([](Json& f) { f["model"]["vocab"]["zz"] = int64_t{1} << 40; }),
              HasSubstr("id 1099511627776"));
  EXPECT_THAT(message([](Json& f) { f["model"]["vocab"]["zz"] = 65; }),
              HasSubstr("the id 65 to \"A\" and to \"zz\""));
  EXPECT_THAT(message([](Json& f) { f["model"]["vocab"]["zz"] = "1"; }), HasSubstr("a string"));
  EXPECT_THAT(message([](Json& f) { f["added_tokens"] = {AddedTokenJson(65, "<x>", true)}; }),
              HasSubstr("the id 65"));
  EXPECT_THAT(message([](Json& f) { f["added_tokens"] = {AddedTokenJson(300, "ab", true)}; }),
              HasSubstr("the id 300 and model.vocab the id 256"));
  EXPECT_THAT(message([](Json& f) { f.erase("model"); }), HasSubstr("model is missing"));
  EXPECT_THAT(message([](Json& f) {
                f["model"]["vocab"] = Json::object();
                f["model"]["merges"] = Json::array();
              }),
              HasSubstr("model.vocab is empty"));
  EXPECT_THAT(message([](Json& f) { f["model"]["unk_token"] = "<none>"; }),
              HasSubstr("unk_token is \"<none>\""));
}

TEST(TokenizerJsonTest, WhatIsNotSupportedIsRefusedByName) {
  const auto message = [](const std::function<void(Json&)>& change) {
    Json file = ByteLevelFile();
    change(file);
    const absl::Status status = TryParse(file).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented) << status;
    return std::string(status.message());
  };
  EXPECT_THAT(message([](Json& f) { f["model"]["type"] = "Nosuch"; }), HasSubstr("\"Nosuch\""));
  EXPECT_THAT(message([](Json& f) { f["pre_tokenizer"] = {{"type", "Nosuch"}}; }),
              HasSubstr("pre_tokenizer: type is \"Nosuch\""));
  EXPECT_THAT(message([](Json& f) {
                f["pre_tokenizer"] = {{"type", "Split"},
                                      {"pattern", {{"Regex", "(a+)+$"}}},
                                      {"behavior", "Isolated"},
                                      {"invert", false}};
              }),
              HasSubstr("\"(a+)+$\""));
  EXPECT_THAT(message([](Json& f) { f["normalizer"] = {{"type", "BertNormalizer"}}; }),
              HasSubstr("normalizer: type is \"BertNormalizer\""));
  EXPECT_THAT(message([](Json& f) { f["decoder"] = {{"type", "WordPiece"}}; }),
              HasSubstr("decoder: type is \"WordPiece\""));
  EXPECT_THAT(message([](Json& f) { f["post_processor"] = {{"type", "BertProcessing"}}; }),
              HasSubstr("post_processor: type is \"BertProcessing\""));
  EXPECT_THAT(message([](Json& f) { f["model"]["dropout"] = 0.1; }), HasSubstr("dropout"));
  EXPECT_THAT(message([](Json& f) { f["model"]["end_of_word_suffix"] = "</w>"; }),
              HasSubstr("end_of_word_suffix"));
}

std::vector<int64_t> ReadInputIds(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  uint64_t header_bytes = 0;
  file.read(reinterpret_cast<char*>(&header_bytes), sizeof(header_bytes));
  std::string header(header_bytes, ' ');
  file.read(header.data(), static_cast<std::streamsize>(header_bytes));
  const Json offsets = Json::parse(header)["input_ids"]["data_offsets"];
  std::vector<int64_t> ids((offsets[1].get<size_t>() - offsets[0].get<size_t>()) / 8);
  file.seekg(offsets[0].get<std::streamoff>(), std::ios::cur);
  file.read(reinterpret_cast<char*>(ids.data()), static_cast<std::streamsize>(ids.size() * 8));
  if (!file) throw std::runtime_error("cannot read " + path);
  return ids;
}

TEST(GoldenTokenizerTest, GivesTheInputsOfTheGoldenModels) {
  const std::string data = VITRINE_TEST_DATA;
  const auto tokenizer = ReadTokenizerFolder(data + "/tokenizer/golden-models", {});
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_EQ((*tokenizer)->bos_id(), 1);
  EXPECT_THAT((*tokenizer)->eos_ids(), ElementsAre(2));
  for (const char* model : {"llama-bf16", "llama-yarn-f32", "phi3-f32"}) {
    const std::string folder = data + "/models/" + model;
    std::ifstream file(folder + "/expected.json");
    const std::string text = Json::parse(file)["text"];
    const std::vector<int64_t> ids = ReadInputIds(folder + "/expected.safetensors");
    std::vector<TokenId> encoded = Ids(**tokenizer, text);
    ASSERT_GE(encoded.size(), ids.size());
    encoded.resize(ids.size());
    EXPECT_EQ(encoded, std::vector<TokenId>(ids.begin(), ids.end())) << model;
  }
}

}  // namespace
}  // namespace vitrine
