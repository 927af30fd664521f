// Any bytes as tokenizer.json: a tokenizer that encodes and decodes what it is given, or refused.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <iterator>
#include <random>
#include <string>
#include <string_view>

#include "model/tokenizer_json.h"

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

namespace {

constexpr std::string_view kModels[] = {
    R"({"type":"BPE","unk_token":"<unk>","byte_fallback":true,"fuse_unk":true,"ignore_merges":false,)"
    R"("vocab":{"<unk>":0,"<0x41>":1,"▁":2,"a":3,"b":4,"ab":5,"▁a":6,"Ġ":7},)"
    R"("merges":["a b",["▁","a"]]})",
    R"({"type":"Unigram","unk_id":0,"byte_fallback":false,)"
    R"("vocab":[["<unk>",0.0],["▁",-1.5],["a",-2],["ab",-2.25],["▁a",-3e0]]})",
};

// Values that members of a file have; a mutation puts one where another value stands.
constexpr std::string_view kValues[] = {
    "null",
    "true",
    "[]",
    "{}",
    "-1",
    "2e9",
    R"("")",
    R"({"type":"ByteLevel","add_prefix_space":true,"use_regex":true,"trim_offsets":true})",
    R"({"type":"Metaspace","replacement":"▁","prepend_scheme":"first","split":true})",
    R"({"type":"Split","pattern":{"Regex":"\\s+(?!\\S)|\\s+"},"behavior":"Isolated","invert":false})",
    R"({"type":"Split","pattern":{"String":" "},"behavior":"MergedWithPrevious","invert":false})",
    R"({"type":"Digits","individual_digits":true})",
    R"({"type":"Replace","pattern":{"String":" "},"content":"▁"})",
    R"({"type":"Replace","pattern":{"Regex":" {2,}"},"content":"▁"})",
    R"({"type":"Prepend","prepend":"▁"})",
    R"({"type":"Strip","content":" ","start":1,"stop":0})",
    R"({"type":"NFKC"})",
    R"({"type":"Sequence","normalizers":[{"type":"NFC"},{"type":"Lowercase"}]})",
    R"({"type":"Sequence","decoders":[{"type":"ByteFallback"},{"type":"Fuse"}]})",
    R"({"type":"Sequence","pretokenizers":[{"type":"Punctuation"},{"type":"ByteLevel"}]})",
    R"({"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"<s>","type_id":0}},)"
    R"({"Sequence":{"id":"A","type_id":0}}],"special_tokens":{"<s>":{"id":"<s>","ids":[9]}}})",
    R"([{"id":9,"content":"<s>","special":true,"lstrip":true,"rstrip":true,"normalized":true}])",
};

template <size_t kCount>
std::string Pick(const std::string_view (&values)[kCount], std::minstd_rand& random) {
  return std::string(values[random() % kCount]);
}

std::string RandomFile(std::minstd_rand& random) {
  const auto value = [&] { return Pick(kValues, random); };
  return R"({"added_tokens":)" + (random() % 2 == 0 ? "[]" : value()) + R"(,"normalizer":)" +
         value() + R"(,"pre_tokenizer":)" + value() + R"(,"post_processor":)" + value() +
         R"(,"decoder":)" + value() + R"(,"model":)" + Pick(kModels, random) + "}";
}

// What every tokenizer must take: each text with what is added around it.
constexpr std::string_view kTexts[] = {"", "a", " ab  ab\n", "<s>ab <0x41>",
                                       "\u00BD \uFF21e\u0301\U0001F999 12345 it's"};

void CheckTokenizer(const vitrine::Tokenizer& tokenizer) {
  for (const std::string_view text : kTexts) {
    for (const bool parse_special : {false, true}) {
      const auto encoding = tokenizer.Encode(text, {.parse_special = parse_special});
      if (!encoding.ok() || encoding->ids.size() != encoding->byte_offsets.size()) std::abort();
      const auto is_token = [&](vitrine::TokenId id) {
        return id >= 0 && id < tokenizer.vocabulary();
      };
      if (!std::all_of(encoding->ids.begin(), encoding->ids.end(), is_token)) std::abort();
      tokenizer.Decode(encoding->ids);
    }
  }
}

}  // namespace

// Begins with whole files, and changes bytes or puts one value in the place of another.
extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size,
                                          unsigned int seed) {
  std::minstd_rand random(seed);
  if (size < 16 || random() % 4 == 0) {
    return RandomFile(random).copy(reinterpret_cast<char*>(data), max_size);
  }
  if (random() % 2 == 0) return LLVMFuzzerMutate(data, size, max_size);
  std::string text(reinterpret_cast<const char*>(data), size);
  const size_t colon = text.find(':', random() % size);
  if (colon == std::string::npos) return LLVMFuzzerMutate(data, size, max_size);
  const size_t end = std::min(text.find_first_of(",}", colon), size);
  text.replace(colon + 1, end - colon - 1, Pick(kValues, random));
  return text.copy(reinterpret_cast<char*>(data), max_size);
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto tokenizer = vitrine::ParseTokenizerJson(text, "tokenizer.json", {});
  if (tokenizer.ok()) CheckTokenizer(**tokenizer);
  return 0;
}
