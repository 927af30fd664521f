#include "server/validate_attention.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "model/detokenizer.h"
#include "model/status.h"
#include "server/field_error.h"

namespace vitrine::server {
namespace {

constexpr int kMaxRanges = 1024;
constexpr int kMaxSpans = 64;
constexpr int kMaxSpanNameBytes = 64;
constexpr uint32_t kMaxTopK = 1024;
constexpr uint32_t kMaxBins = 1024;
constexpr int kDefaultTopK = 16;
constexpr int kDefaultBins = 64;

// Builds one TraceSpec from one message.
class SpecReader {
 public:
  SpecReader(const v1::AttentionSpec& message, std::string_view path, const TraceSubject& subject,
             const ServedModel& model)
      : message_(message), path_(path), subject_(subject), model_(model) {}

  absl::StatusOr<TraceSpec> Read();

 private:
  using Kind = v1::AttentionOutput::KindCase;

  absl::Status Error(absl::string_view field, absl::string_view rule) const {
    return FieldError(
        std::string(absl::StrCat(absl::string_view(path_.data(), path_.size()), ".", field)),
        std::string_view(rule.data(), rule.size()));
  }

  absl::Status ReadHeads();
  absl::Status ReadPairs();
  absl::Status ReadGrid();
  absl::StatusOr<int32_t> LayerOf(absl::string_view field, int32_t layer) const;
  absl::StatusOr<int32_t> HeadOf(absl::string_view field, uint32_t head) const;
  absl::Status ReadReductions();
  absl::StatusOr<std::optional<AttentionCombine>> ReduceOf(absl::string_view field,
                                                           v1::AttentionReduce reduce) const;
  absl::Status ReadRows();
  absl::StatusOr<KeyRange> RangeOf(absl::string_view field, const v1::Range& range,
                                   int64_t end) const;
  absl::Status ReadKeys();
  absl::Status ReadSpans();
  absl::StatusOr<std::vector<KeyRange>> SpanOf(absl::string_view field,
                                               const v1::AttentionSpan& span) const;
  absl::Status ReadOutputs();
  absl::StatusOr<TraceOutput> OutputOf(absl::string_view field, const v1::AttentionOutput& output);
  absl::Status CheckStage(absl::string_view field, TraceOutputKind kind) const;

  const v1::AttentionSpec& message_;
  const std::string_view path_;
  const TraceSubject& subject_;
  const ServedModel& model_;
  TraceSpec spec_;
  std::vector<std::vector<KeyRange>> spans_;
};

absl::StatusOr<TraceSpec> SpecReader::Read() {
  spec_.prompt_tokens = subject_.prompt_tokens;
  spec_.choices = subject_.choices;
  spec_.origin = {
      .is_replay = subject_.is_replay, .kv_dtype = model_.kv_dtype, .numerics = model_.numerics};
  VITRINE_RETURN_IF_ERROR(ReadHeads());
  VITRINE_RETURN_IF_ERROR(ReadReductions());
  VITRINE_RETURN_IF_ERROR(ReadRows());
  VITRINE_RETURN_IF_ERROR(ReadKeys());
  VITRINE_RETURN_IF_ERROR(ReadSpans());
  VITRINE_RETURN_IF_ERROR(ReadOutputs());
  for (const int32_t layer : spec_.plan.layers) {
    spec_.windows.push_back(model_.windows.empty() ? 0
                                                   : model_.windows[static_cast<size_t>(layer)]);
  }
  return std::move(spec_);
}

absl::Status SpecReader::ReadHeads() {
  switch (message_.heads_case()) {
    case v1::AttentionSpec::kPairs:
      return ReadPairs();
    case v1::AttentionSpec::kGrid:
      return ReadGrid();
    case v1::AttentionSpec::kAll:
    case v1::AttentionSpec::HEADS_NOT_SET:
      break;
  }
  for (int layer = 0; layer < model_.num_layers; ++layer) spec_.plan.layers.push_back(layer);
  for (int head = 0; head < model_.num_heads; ++head) spec_.plan.heads.push_back(head);
  return absl::OkStatus();
}

absl::Status SpecReader::ReadPairs() {
  const int count = message_.pairs().pairs_size();
  const int most = model_.num_layers * model_.num_heads;
  if (count < 1 || count > most) {
    return Error("pairs.pairs", absl::StrCat("must hold 1 to ", most, " pairs, holds ", count));
  }
  std::set<std::pair<int32_t, int32_t>> seen;
  for (int i = 0; i < count; ++i) {
    const v1::LayerHead& pair = message_.pairs().pairs(i);
    const std::string field = absl::StrCat("pairs.pairs[", i, "]");
    VITRINE_ASSIGN_OR_RETURN(const int32_t layer, LayerOf(field + ".layer", pair.layer()));
    VITRINE_ASSIGN_OR_RETURN(const int32_t head, HeadOf(field + ".head", pair.head()));
    if (!seen.emplace(layer, head).second) return Error(field, "is there twice");
    spec_.plan.layers.push_back(layer);
    spec_.plan.heads.push_back(head);
  }
  spec_.plan.is_paired = true;
  return absl::OkStatus();
}

absl::Status SpecReader::ReadGrid() {
  const v1::HeadGrid& grid = message_.grid();
  if (grid.layers_size() > model_.num_layers) {
    return Error("grid.layers", absl::StrCat("must hold at most ", model_.num_layers,
                                             " layers, holds ", grid.layers_size()));
  }
  if (grid.heads_size() > model_.num_heads) {
    return Error("grid.heads", absl::StrCat("must hold at most ", model_.num_heads,
                                            " heads, holds ", grid.heads_size()));
  }
  for (int i = 0; i < grid.layers_size(); ++i) {
    const std::string field = absl::StrCat("grid.layers[", i, "]");
    VITRINE_ASSIGN_OR_RETURN(const int32_t layer, LayerOf(field, grid.layers(i)));
    if (std::ranges::count(spec_.plan.layers, layer) > 0) return Error(field, "is there twice");
    spec_.plan.layers.push_back(layer);
  }
  for (int i = 0; i < grid.heads_size(); ++i) {
    const std::string field = absl::StrCat("grid.heads[", i, "]");
    VITRINE_ASSIGN_OR_RETURN(const int32_t head, HeadOf(field, grid.heads(i)));
    if (std::ranges::count(spec_.plan.heads, head) > 0) return Error(field, "is there twice");
    spec_.plan.heads.push_back(head);
  }
  for (int layer = 0; grid.layers_size() == 0 && layer < model_.num_layers; ++layer) {
    spec_.plan.layers.push_back(layer);
  }
  for (int head = 0; grid.heads_size() == 0 && head < model_.num_heads; ++head) {
    spec_.plan.heads.push_back(head);
  }
  return absl::OkStatus();
}

absl::StatusOr<int32_t> SpecReader::LayerOf(absl::string_view field, int32_t layer) const {
  const int layers = model_.num_layers;
  if (layer < -layers || layer >= layers) {
    return Error(field, absl::StrCat("must be in [", -layers, ", ", layers - 1, "], is ", layer));
  }
  return layer < 0 ? layer + layers : layer;
}

absl::StatusOr<int32_t> SpecReader::HeadOf(absl::string_view field, uint32_t head) const {
  if (head >= static_cast<uint32_t>(model_.num_heads)) {
    return Error(field, absl::StrCat("must be in [0, ", model_.num_heads - 1, "], is ", head));
  }
  return static_cast<int32_t>(head);
}

absl::StatusOr<std::optional<AttentionCombine>> SpecReader::ReduceOf(
    absl::string_view field, v1::AttentionReduce reduce) const {
  switch (reduce) {
    case v1::ATTENTION_REDUCE_UNSPECIFIED:
    case v1::ATTENTION_REDUCE_NONE:
      return std::optional<AttentionCombine>();
    case v1::ATTENTION_REDUCE_MEAN:
      return std::optional(AttentionCombine::kMean);
    case v1::ATTENTION_REDUCE_MAX:
      return std::optional(AttentionCombine::kMax);
    default:
      return Error(field, absl::StrCat("must be NONE, MEAN or MAX, is ", reduce));
  }
}

absl::Status SpecReader::ReadReductions() {
  AttentionPlan& plan = spec_.plan;
  switch (message_.stage()) {
    case v1::ATTENTION_STAGE_UNSPECIFIED:
    case v1::ATTENTION_STAGE_WEIGHTS:
      break;
    case v1::ATTENTION_STAGE_SCORES:
      plan.stage = AttentionStage::kScores;
      break;
    default:
      return Error("stage", absl::StrCat("must be WEIGHTS or SCORES, is ", message_.stage()));
  }
  VITRINE_ASSIGN_OR_RETURN(plan.reduce_heads, ReduceOf("reduce_heads", message_.reduce_heads()));
  VITRINE_ASSIGN_OR_RETURN(plan.reduce_layers, ReduceOf("reduce_layers", message_.reduce_layers()));
  if (!plan.is_paired) return absl::OkStatus();
  if (plan.reduce_layers.has_value()) {
    return Error("reduce_layers", "does not go with pairs: they have no layer axis to reduce");
  }
  const auto pairs = static_cast<int>(plan.heads.size());
  if (plan.reduce_heads.has_value() && pairs > model_.max_reduced_pairs) {
    return Error("reduce_heads", absl::StrCat("goes with at most ", model_.max_reduced_pairs,
                                              " pairs, there are ", pairs));
  }
  return absl::OkStatus();
}

absl::StatusOr<KeyRange> SpecReader::RangeOf(absl::string_view field, const v1::Range& range,
                                             int64_t end) const {
  if (range.begin() >= range.end()) {
    return Error(field, absl::StrCat("must begin before it ends, is [", range.begin(), ", ",
                                     range.end(), ")"));
  }
  if (range.end() > end) {
    return Error(field, absl::StrCat("must end at ", end, " at the latest, ends at ", range.end()));
  }
  return KeyRange{.begin = static_cast<int32_t>(range.begin()),
                  .end = static_cast<int32_t>(range.end())};
}

absl::Status SpecReader::ReadRows() {
  const int prompt = subject_.prompt_tokens;
  std::vector<KeyRange> rows;
  if (message_.queries_size() + message_.query_ranges_size() > kMaxRanges) {
    return Error("query_ranges", absl::StrCat("must be at most ", kMaxRanges, " with queries"));
  }
  for (int i = 0; i < message_.queries_size(); ++i) {
    switch (message_.queries(i)) {
      case v1::QUERY_SET_LAST_PROMPT:
        rows.push_back({.begin = prompt - 1, .end = prompt});
        break;
      case v1::QUERY_SET_GENERATED:
        rows.push_back({.begin = prompt, .end = subject_.end_row});
        break;
      case v1::QUERY_SET_ALL_PROMPT:
        rows.push_back({.begin = 0, .end = prompt});
        break;
      case v1::QUERY_SET_ALL:
        rows.push_back({.begin = 0, .end = subject_.end_row});
        break;
      default:
        return Error(absl::StrCat("queries[", i, "]"),
                     absl::StrCat("must be LAST_PROMPT, GENERATED, ALL_PROMPT or ALL, is ",
                                  message_.queries(i)));
    }
  }
  for (int i = 0; i < message_.query_ranges_size(); ++i) {
    VITRINE_ASSIGN_OR_RETURN(const KeyRange range,
                             RangeOf(absl::StrCat("query_ranges[", i, "]"),
                                     message_.query_ranges(i), model_.context_length));
    rows.push_back(range);
  }
  if (message_.queries_size() + message_.query_ranges_size() == 0) {
    rows.push_back({.begin = prompt - 1, .end = subject_.end_row});
  }
  spec_.rows = UnionBelow(std::move(rows), subject_.end_row);
  return absl::OkStatus();
}

absl::Status SpecReader::ReadKeys() {
  if (message_.key_ranges_size() > kMaxRanges) {
    return Error("key_ranges", absl::StrCat("must be at most ", kMaxRanges, ", are ",
                                            message_.key_ranges_size()));
  }
  for (int i = 0; i < message_.key_ranges_size(); ++i) {
    const std::string field = absl::StrCat("key_ranges[", i, "]");
    VITRINE_ASSIGN_OR_RETURN(const KeyRange range,
                             RangeOf(field, message_.key_ranges(i), model_.context_length));
    if (!spec_.keys.empty() && range.begin < spec_.keys.back().end) {
      return Error(field, "must lie behind the range before it");
    }
    spec_.keys.push_back(range);
  }
  spec_.plan.top_ranges = spec_.keys;
  if (spec_.keys.empty()) spec_.keys.push_back({.begin = 0, .end = model_.context_length});
  return absl::OkStatus();
}

absl::Status SpecReader::ReadSpans() {
  if (message_.spans_size() > kMaxSpans) {
    return Error("spans",
                 absl::StrCat("must be at most ", kMaxSpans, ", are ", message_.spans_size()));
  }
  std::set<std::string_view> names;
  for (int i = 0; i < message_.spans_size(); ++i) {
    const v1::AttentionSpan& span = message_.spans(i);
    const std::string field = absl::StrCat("spans[", i, "]");
    if (static_cast<int>(span.name().size()) > kMaxSpanNameBytes) {
      return Error(field + ".name", absl::StrCat("must have at most ", kMaxSpanNameBytes,
                                                 " bytes, has ", span.name().size()));
    }
    if (FindInvalidUtf8(span.name()) != std::string_view::npos) {
      return Error(field + ".name", "must be UTF-8");
    }
    if (!names.insert(span.name()).second) return Error(field + ".name", "is there twice");
    VITRINE_ASSIGN_OR_RETURN(std::vector<KeyRange> keys, SpanOf(field, span));
    spans_.push_back(std::move(keys));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<KeyRange>> SpecReader::SpanOf(absl::string_view field,
                                                         const v1::AttentionSpan& span) const {
  std::vector<KeyRange> keys;
  switch (span.where_case()) {
    case v1::AttentionSpan::kTokens: {
      VITRINE_ASSIGN_OR_RETURN(const KeyRange range, RangeOf(absl::StrCat(field, ".tokens"),
                                                             span.tokens(), model_.context_length));
      keys.push_back(range);
      return keys;
    }
    case v1::AttentionSpan::kPromptBytes: {
      if (subject_.byte_offsets.empty()) {
        return absl::FailedPreconditionError(
            absl::StrCat(absl::string_view(path_.data(), path_.size()), ".", field,
                         ".prompt_bytes: the prompt was given as token ids and has no text"));
      }
      VITRINE_ASSIGN_OR_RETURN(const KeyRange bytes,
                               RangeOf(absl::StrCat(field, ".prompt_bytes"), span.prompt_bytes(),
                                       subject_.prompt_bytes));
      // Token t covers the bytes from its offset to that of the next one.
      for (size_t t = 0; t < subject_.byte_offsets.size(); ++t) {
        const int64_t begin = subject_.byte_offsets[t];
        const int64_t end = t + 1 < subject_.byte_offsets.size()
                                ? int64_t{subject_.byte_offsets[t + 1]}
                                : subject_.prompt_bytes;
        if (begin < bytes.end && end > bytes.begin && begin < end) {
          keys.push_back({.begin = static_cast<int32_t>(t), .end = static_cast<int32_t>(t) + 1});
        }
      }
      return UnionBelow(std::move(keys), subject_.prompt_tokens);
    }
    case v1::AttentionSpan::kChatRole: {
      if (subject_.role_spans.empty()) {
        return absl::FailedPreconditionError(
            absl::StrCat(absl::string_view(path_.data(), path_.size()), ".", field,
                         ".chat_role: the prompt is not a chat"));
      }
      for (const PromptRoleSpan& turn : subject_.role_spans) {
        if (turn.role == span.chat_role()) keys.push_back(turn.tokens);
      }
      if (keys.empty()) {
        return Error(absl::StrCat(field, ".chat_role"), "is the role of no turn of the prompt");
      }
      return UnionBelow(std::move(keys), subject_.prompt_tokens);
    }
    case v1::AttentionSpan::WHERE_NOT_SET:
      break;
  }
  return Error(field, "one of tokens, prompt_bytes and chat_role must be set");
}

absl::Status SpecReader::ReadOutputs() {
  AttentionPlan& plan = spec_.plan;
  if (message_.outputs_size() == 0) {
    spec_.outputs = {{.kind = TraceOutputKind::kStats}, {.kind = TraceOutputKind::kTopK}};
    plan.top_k = kDefaultTopK;
    VITRINE_RETURN_IF_ERROR(CheckStage("outputs", TraceOutputKind::kStats));
  }
  std::set<TraceOutputKind> seen;
  for (int i = 0; i < message_.outputs_size(); ++i) {
    const std::string field = absl::StrCat("outputs[", i, "]");
    VITRINE_ASSIGN_OR_RETURN(const TraceOutput output, OutputOf(field, message_.outputs(i)));
    if (!seen.insert(output.kind).second) return Error(field, "is a kind that is there already");
    VITRINE_RETURN_IF_ERROR(CheckStage(field, output.kind));
    spec_.outputs.push_back(output);
  }
  for (const TraceOutput& output : spec_.outputs) {
    plan.wants_stats |= output.kind == TraceOutputKind::kStats;
    plan.wants_rows |= output.kind == TraceOutputKind::kDense ||
                       output.kind == TraceOutputKind::kColumnSum ||
                       output.kind == TraceOutputKind::kTile;
    if (output.kind != TraceOutputKind::kSpanMass) continue;
    plan.span_begin.push_back(0);
    for (const std::vector<KeyRange>& span : spans_) {
      plan.span_ranges.insert(plan.span_ranges.end(), span.begin(), span.end());
      plan.span_begin.push_back(static_cast<int32_t>(plan.span_ranges.size()));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<TraceOutput> SpecReader::OutputOf(absl::string_view field,
                                                 const v1::AttentionOutput& output) {
  const auto number = [&](absl::string_view name, bool is_set, uint32_t value, uint32_t most,
                          int fallback) -> absl::StatusOr<int> {
    if (!is_set) return fallback;
    if (value >= 1 && value <= most) return static_cast<int>(value);
    return Error(absl::StrCat(field, ".", name),
                 absl::StrCat("must be in [1, ", most, "], is ", value));
  };
  const bool has_choices = subject_.choices > 1;
  switch (output.kind_case()) {
    case Kind::kStats:
      return TraceOutput{.kind = TraceOutputKind::kStats};
    case Kind::kTopK: {
      const v1::TopKOutput& top_k = output.top_k();
      VITRINE_ASSIGN_OR_RETURN(spec_.plan.top_k,
                               number("top_k.k", top_k.has_k(), top_k.k(), kMaxTopK, kDefaultTopK));
      return TraceOutput{.kind = TraceOutputKind::kTopK};
    }
    case Kind::kSpanMass:
      if (spans_.empty()) return Error(field, "span_mass needs at least one of spans");
      return TraceOutput{.kind = TraceOutputKind::kSpanMass};
    case Kind::kColumnSum:
      if (has_choices) return Error(field, "column_sum goes with one choice only");
      return TraceOutput{.kind = TraceOutputKind::kColumnSum};
    case Kind::kDense: {
      const v1::ElementType dtype = output.dense().dtype();
      if (dtype != v1::ELEMENT_TYPE_UNSPECIFIED && dtype != v1::ELEMENT_TYPE_F16 &&
          dtype != v1::ELEMENT_TYPE_F32) {
        return Error(absl::StrCat(field, ".dense.dtype"),
                     absl::StrCat("must be F16 or F32, is ", dtype));
      }
      return TraceOutput{.kind = TraceOutputKind::kDense, .is_f16 = dtype != v1::ELEMENT_TYPE_F32};
    }
    case Kind::kTile: {
      if (has_choices) return Error(field, "tile goes with one choice only");
      const v1::TileOutput& tile = output.tile();
      TraceOutput result = {.kind = TraceOutputKind::kTile};
      VITRINE_ASSIGN_OR_RETURN(result.query_bins,
                               number("tile.query_bins", tile.has_query_bins(), tile.query_bins(),
                                      kMaxBins, kDefaultBins));
      VITRINE_ASSIGN_OR_RETURN(result.key_bins, number("tile.key_bins", tile.has_key_bins(),
                                                       tile.key_bins(), kMaxBins, kDefaultBins));
      if (tile.reduce() == v1::ATTENTION_REDUCE_NONE) {
        return Error(absl::StrCat(field, ".tile.reduce"), "must be MEAN or MAX");
      }
      VITRINE_ASSIGN_OR_RETURN(const std::optional<AttentionCombine> combine,
                               ReduceOf(absl::StrCat(field, ".tile.reduce"), tile.reduce()));
      result.combine = combine.value_or(AttentionCombine::kMean);
      return result;
    }
    case Kind::KIND_NOT_SET:
      break;
  }
  return Error(field, "one kind must be set");
}

absl::Status SpecReader::CheckStage(absl::string_view field, TraceOutputKind kind) const {
  if (spec_.plan.stage == AttentionStage::kWeights) return absl::OkStatus();
  switch (kind) {
    case TraceOutputKind::kTopK:
    case TraceOutputKind::kDense:
    case TraceOutputKind::kTile:
      return absl::OkStatus();
    case TraceOutputKind::kStats:
    case TraceOutputKind::kSpanMass:
    case TraceOutputKind::kColumnSum:
      break;
  }
  const std::string_view name = NameOf(kind);
  return Error(field, absl::StrCat(absl::string_view(name.data(), name.size()),
                                   " goes with stage WEIGHTS only"));
}

}  // namespace

absl::StatusOr<TraceSpec> ValidateAttention(const v1::AttentionSpec& spec, std::string_view path,
                                            const TraceSubject& subject, const ServedModel& model,
                                            int64_t max_bytes) {
  VITRINE_ASSIGN_OR_RETURN(TraceSpec trace, SpecReader(spec, path, subject, model).Read());
  const uint64_t bytes = trace.AnswerBytes();
  const auto cap = static_cast<uint64_t>(max_bytes);
  const uint64_t allowed = spec.has_max_bytes() ? std::min(spec.max_bytes(), cap) : cap;
  // The size comes first: it is the answer to whoever asked with any limit.
  if (bytes > allowed) {
    return absl::ResourceExhaustedError(absl::StrCat(absl::string_view(path.data(), path.size()),
                                                     ": the answer would have ", bytes,
                                                     " bytes, at most ", allowed, " are allowed"));
  }
  if (spec.has_max_bytes() && spec.max_bytes() > cap) {
    return FieldError(
        std::string(path) + ".max_bytes",
        std::string(absl::StrCat("must be at most ", cap, ", is ", spec.max_bytes())));
  }
  return trace;
}

std::vector<std::string> SupportedAttentionOutputs() {
  std::vector<std::string> names;
  for (const TraceOutputKind kind :
       {TraceOutputKind::kStats, TraceOutputKind::kTopK, TraceOutputKind::kSpanMass,
        TraceOutputKind::kColumnSum, TraceOutputKind::kDense, TraceOutputKind::kTile}) {
    names.emplace_back(NameOf(kind));
  }
  return names;
}

}  // namespace vitrine::server
