// Text to token ids and back. Const and thread-safe after creation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "model/batch.h"
#include "model/gguf.h"

namespace vitrine {

// The bytes [begin, end) of a text.
struct ByteRange {
  size_t begin = 0;
  size_t end = 0;
};

struct EncodeOptions {
  // True: the text of a control token becomes that token. False: it is ordinary text.
  bool parse_special = false;
  // Puts the tokens around the text that the model asks for: begin of sequence, rarely an end.
  bool add_bos = true;
  // Where text is ordinary in spite of parse_special, as what a user wrote into a chat is: no
  // control token has a byte in these ranges, which are ascending and do not overlap.
  std::span<const ByteRange> plain_ranges = {};
};

struct Encoding {
  std::vector<TokenId> ids;
  std::vector<uint32_t> byte_offsets;  // [ids], first byte of the text that the token covers.
};

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  // INVALID_ARGUMENT when `text` is not UTF-8; the message names the byte offset. Time is about
  // linear in the text (n log n within one pre-token), memory proportional, the stack constant.
  virtual absl::StatusOr<Encoding> Encode(std::string_view text,
                                          const EncodeOptions& options) const = 0;

  // Bytes that a token stands for. Control tokens give their text. `id` is within vocabulary().
  virtual std::string_view TokenBytes(TokenId id) const = 0;
  virtual bool IsControl(TokenId id) const = 0;

  // The text of ids that begin a text: their bytes, without the space that encoding puts in front
  // of a text. What follows other text, as an answer does, is the bytes of its tokens alone. Ids
  // are within vocabulary().
  virtual std::string Decode(std::span<const TokenId> ids) const = 0;

  virtual int vocabulary() const = 0;
  virtual std::string_view kind() const = 0;  // "bpe/smollm", "bpe/gpt-2".

  // Tokens that end an answer: eos and, where the file names one, end of turn.
  virtual const std::vector<TokenId>& eos_ids() const = 0;
  virtual TokenId bos_id() const = 0;  // -1: none.
};

// The tokenizer that GGUF metadata (tokenizer.ggml.*) describes: byte-level BPE ("gpt2"),
// SentencePiece BPE ("llama") or unigram ("t5"). UNIMPLEMENTED names a model or
// pre-tokenizer that is not supported; INVALID_ARGUMENT a key that breaks a rule.
absl::StatusOr<std::unique_ptr<Tokenizer>> CreateTokenizer(const GgufFile& file);

}  // namespace vitrine
