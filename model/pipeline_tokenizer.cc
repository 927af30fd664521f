#include "model/pipeline_tokenizer.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "kernels/check.h"
#include "model/detokenizer.h"

namespace vitrine {
namespace {

// The part [begin, end) of a text that is aligned with another one.
AlignedText Part(const AlignedText& text, size_t begin, size_t end) {
  AlignedText part;
  part.AppendSame(text, begin, end);
  return part;
}

void Apply(const std::vector<NormalizerStep>& steps, bool is_start, AlignedText& text) {
  for (const NormalizerStep& step : steps) step(text, is_start);
}

// The ranges of `text` that come from `ranges` of its source.
std::vector<ByteRange> MapRanges(std::span<const ByteRange> ranges, const AlignedText& text) {
  const auto position = [&](size_t source) {
    const auto found = std::ranges::lower_bound(text.sources, source);
    return static_cast<size_t>(found - text.sources.begin());
  };
  std::vector<ByteRange> mapped;
  for (const ByteRange& range : ranges) {
    const ByteRange here = {position(range.begin), position(range.end)};
    if (here.begin < here.end) mapped.push_back(here);
  }
  return mapped;
}

}  // namespace

// State of one call of Encode.
struct PipelineTokenizer::Work {
  std::string_view text;
  const EncodeOptions& options;
  Encoding encoding;
  std::vector<PlacedToken> tokens;
  SubwordModel::Workspace subwords;

  void Append(TokenId id, size_t offset) {
    encoding.ids.push_back(id);
    encoding.byte_offsets.push_back(static_cast<uint32_t>(offset));
  }
  // Moves what the subword model gave, whose offsets are those of the text or of `aligned`.
  void AppendTokens(const AlignedText* aligned) {
    for (const PlacedToken& token : tokens) {
      Append(token.id, aligned == nullptr ? token.offset : aligned->sources[token.offset]);
    }
    tokens.clear();
  }
};

PipelineTokenizer::PipelineTokenizer(TokenizerParts parts)
    : parts_(std::move(parts)),
      added_tokens_(std::move(parts_.added_tokens)),
      normalized_added_tokens_(std::move(parts_.normalized_added_tokens)) {}

absl::StatusOr<std::unique_ptr<Tokenizer>> PipelineTokenizer::Create(TokenizerParts parts) {
  VITRINE_CHECK(parts.model != nullptr);
  const int vocabulary = parts.vocabulary.size();
  const auto is_token = [&](TokenId id) { return id >= 0 && id < vocabulary; };
  const bool all_valid = (parts.bos_id == -1 || is_token(parts.bos_id)) &&
                         std::ranges::all_of(parts.prefix_ids, is_token) &&
                         std::ranges::all_of(parts.suffix_ids, is_token) &&
                         std::ranges::all_of(parts.eos_ids, is_token);
  if (!all_valid) {
    return absl::InvalidArgumentError("a begin or end token is outside the vocabulary");
  }
  return std::unique_ptr<Tokenizer>(new PipelineTokenizer(std::move(parts)));
}

// Encodes `text`, which has no added tokens, is final, and begins at `offset` of its own source.
void PipelineTokenizer::EncodeText(std::string_view text, size_t offset, Work& work) const {
  if (text.empty()) return;
  PreTokenIterator pieces(parts_.pre_tokenizer, text);
  while (const std::optional<std::string_view> piece = pieces.Next()) {
    const auto place = static_cast<size_t>(piece->data() - text.data());
    parts_.model->Encode(*piece, static_cast<uint32_t>(offset + place), work.subwords, work.tokens);
  }
}

void PipelineTokenizer::EncodeNormalized(const AlignedText& text, bool is_start, Work& work) const {
  std::vector<ByteRange> plain;
  EncodeOptions options = work.options;
  if (!options.plain_ranges.empty()) {
    plain = MapRanges(options.plain_ranges, text);
    options.plain_ranges = plain;
  }
  const auto encode = [&](size_t begin, size_t end) {
    if (begin == end) return;
    if (parts_.preparation.empty()) {
      EncodeText(std::string_view(text.bytes).substr(begin, end - begin), begin, work);
      work.AppendTokens(&text);
      return;
    }
    AlignedText part = Part(text, begin, end);
    Apply(parts_.preparation, is_start && begin == 0, part);
    EncodeText(part.bytes, 0, work);
    work.AppendTokens(&part);
  };
  size_t begin = 0;
  for (const TokenMatch& match : normalized_added_tokens_.Find(text.bytes, options)) {
    encode(begin, match.begin);
    work.Append(match.id, text.sources[match.begin]);
    begin = match.end;
  }
  encode(begin, text.bytes.size());
}

// Encodes text[begin, end), which lies between added tokens.
void PipelineTokenizer::EncodeSegment(size_t begin, size_t end, Work& work) const {
  if (begin == end) return;
  const std::string_view segment = work.text.substr(begin, end - begin);
  const bool is_changed = !parts_.normalizer.empty() || !parts_.preparation.empty() ||
                          !normalized_added_tokens_.empty();
  if (!is_changed) {
    EncodeText(segment, begin, work);
    work.AppendTokens(nullptr);
    return;
  }
  AlignedText text;
  text.bytes = segment;
  text.sources.resize(segment.size());
  std::iota(text.sources.begin(), text.sources.end(), static_cast<uint32_t>(begin));
  Apply(parts_.normalizer, begin == 0, text);
  EncodeNormalized(text, begin == 0, work);
}

std::string PipelineTokenizer::Decode(std::span<const TokenId> ids) const {
  std::string text;
  bool is_first = parts_.strips_first_space;
  for (const TokenId id : ids) {
    std::string_view bytes = TokenBytes(id);
    if (is_first && !IsControl(id)) {
      if (bytes.starts_with(' ')) bytes.remove_prefix(1);
      is_first = false;
    }
    text += bytes;
  }
  return text;
}

absl::StatusOr<Encoding> PipelineTokenizer::Encode(std::string_view text,
                                                   const EncodeOptions& options) const {
  if (const size_t bad = FindInvalidUtf8(text); bad != std::string_view::npos) {
    return absl::InvalidArgumentError(absl::StrCat("the text is not UTF-8 at byte ", bad));
  }
  if (text.size() > UINT32_MAX) {
    return absl::InvalidArgumentError("the text is longer than 4 GiB");
  }
  Work work{.text = text, .options = options, .encoding = {}, .tokens = {}, .subwords = {}};
  size_t begin = 0;
  for (const TokenMatch& match : added_tokens_.Find(text, options)) {
    EncodeSegment(begin, match.begin, work);
    work.Append(match.id, match.begin);
    begin = match.end;
  }
  EncodeSegment(begin, text.size(), work);
  Encoding& encoding = work.encoding;
  if (!options.add_bos) return std::move(encoding);
  // A text that begins with the begin token keeps one.
  const std::vector<TokenId>& prefix = parts_.prefix_ids;
  const bool has_prefix = options.parse_special && prefix == std::vector{parts_.bos_id} &&
                          !encoding.ids.empty() && encoding.ids.front() == parts_.bos_id;
  if (!has_prefix) {
    encoding.ids.insert(encoding.ids.begin(), prefix.begin(), prefix.end());
    encoding.byte_offsets.insert(encoding.byte_offsets.begin(), prefix.size(), 0);
  }
  for (const TokenId id : parts_.suffix_ids) work.Append(id, text.size());
  return std::move(encoding);
}

}  // namespace vitrine
