// Any bytes as text: the ids of what is UTF-8 decode to the same bytes, the rest is refused. The
// vocabulary has every byte, so that nothing is lost.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "model/detokenizer.h"
#include "model/gguf.h"
#include "model/tokenizer.h"
#include "tests/model/gguf_builder.h"

namespace {

// The printable stand-in of a byte in byte-level BPE vocabularies (Radford et al., 2019).
std::string StandIn(int byte) {
  const bool printable = (byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte <= 0xac) ||
                         (byte >= 0xae && byte <= 0xff);
  int code = byte;
  if (!printable) {
    code = 256;
    for (int other = 0; other < byte; ++other) {
      code +=
          !((other >= '!' && other <= '~') || (other >= 0xa1 && other <= 0xac) || other >= 0xae);
    }
  }
  if (code < 0x80) return {static_cast<char>(code)};
  return {static_cast<char>(0xc0 | (code >> 6)), static_cast<char>(0x80 | (code & 0x3f))};
}

void Require(const absl::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s\n", std::string(status.message()).c_str());
  std::abort();
}

std::unique_ptr<vitrine::Tokenizer> MakeTokenizer(const char* rule) {
  std::vector<std::string> tokens(256);
  for (int byte = 0; byte < 256; ++byte) tokens[static_cast<size_t>(byte)] = StandIn(byte);
  std::vector<int32_t> types(tokens.size(), 1);
  for (const char* merged : {"th", "the", "aa", "aaaa"}) {
    tokens.emplace_back(merged);
    types.push_back(1);
  }
  tokens.emplace_back("<|end|>");
  types.push_back(3);
  static auto* const kFiles = new std::vector<std::string>;
  kFiles->reserve(8);  // Parsed files point into these.
  vitrine::GgufBuilder builder = vitrine::TinyLlama();
  builder.tensors.clear();
  builder.SetString("tokenizer.ggml.pre", rule)
      .SetStrings("tokenizer.ggml.tokens", tokens)
      .SetInts("tokenizer.ggml.token_type", types)
      .SetStrings("tokenizer.ggml.merges", {"t h", "th e", "a a", "aa aa"})
      .SetUint("tokenizer.ggml.eos_token_id", static_cast<uint32_t>(tokens.size() - 1));
  kFiles->push_back(builder.Bytes());
  static auto* const kParsed = new std::vector<std::unique_ptr<vitrine::GgufFile>>;
  auto file = vitrine::GgufFile::Parse(kFiles->back(), "fuzz.gguf");
  Require(file.status());
  kParsed->push_back(*std::move(file));
  auto tokenizer = vitrine::CreateTokenizer(*kParsed->back());
  Require(tokenizer.status());
  return *std::move(tokenizer);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const auto* const kTokenizers = new std::vector<std::unique_ptr<vitrine::Tokenizer>>([] {
    std::vector<std::unique_ptr<vitrine::Tokenizer>> tokenizers;
    tokenizers.push_back(MakeTokenizer("gpt-2"));
    tokenizers.push_back(MakeTokenizer("smollm"));
    return tokenizers;
  }());
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const bool valid = vitrine::FindInvalidUtf8(text) == std::string_view::npos;
  for (const auto& tokenizer : *kTokenizers) {
    for (const bool parse_special : {false, true}) {
      const auto encoding =
          tokenizer->Encode(text, {.parse_special = parse_special, .add_bos = false});
      if (encoding.ok() != valid) std::abort();
      if (!valid) continue;
      std::string decoded;
      for (const vitrine::TokenId id : encoding->ids) decoded += tokenizer->TokenBytes(id);
      if (decoded != text) std::abort();
    }
  }
  return 0;
}
