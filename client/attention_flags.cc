#include "client/attention_flags.h"

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "client/attention_view.h"
#include "client/command_line.h"
#include "vitrine/v1/attention.pb.h"

namespace vitrine::client {
namespace {

std::vector<std::string_view> SplitAt(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (true) {
    const size_t end = text.find(separator);
    parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

template <typename Number>
bool ParseWhole(std::string_view text, Number* number) {
  const char* end = text.data() + text.size();
  const auto [parsed, error] = std::from_chars(text.data(), end, *number);
  return error == std::errc() && parsed == end;
}

// "BEGIN:END".
bool ParseRange(std::string_view text, v1::Range* range) {
  const size_t colon = text.find(':');
  uint32_t begin = 0;
  uint32_t end = 0;
  if (colon == std::string_view::npos || !ParseWhole(text.substr(0, colon), &begin) ||
      !ParseWhole(text.substr(colon + 1), &end)) {
    return false;
  }
  range->set_begin(begin);
  range->set_end(end);
  return true;
}

FlagSetter TakesLayers(std::vector<int32_t>* layers) {
  return [layers](std::string_view value) {
    layers->clear();
    for (const std::string_view part : SplitAt(value, ',')) {
      int32_t layer = 0;
      if (!ParseWhole(part, &layer)) {
        return absl::InvalidArgumentError("takes layers with commas between, such as 0,14,-1");
      }
      layers->push_back(layer);
    }
    return absl::OkStatus();
  };
}

FlagSetter TakesPairs(v1::AttentionSpec* spec) {
  return [spec](std::string_view value) {
    for (const std::string_view part : SplitAt(value, ',')) {
      const size_t colon = part.find(':');
      int32_t layer = 0;
      uint32_t head = 0;
      if (colon == std::string_view::npos || !ParseWhole(part.substr(0, colon), &layer) ||
          !ParseWhole(part.substr(colon + 1), &head)) {
        return absl::InvalidArgumentError("takes LAYER:HEAD with commas between, such as 5:3,-1:0");
      }
      v1::LayerHead* pair = spec->mutable_pairs()->add_pairs();
      pair->set_layer(layer);
      pair->set_head(head);
    }
    return absl::OkStatus();
  };
}

FlagSetter TakesQueries(v1::AttentionSpec* spec) {
  return [spec](std::string_view value) {
    const std::pair<std::string_view, v1::QuerySet> sets[] = {
        {"last_prompt", v1::QUERY_SET_LAST_PROMPT},
        {"generated", v1::QUERY_SET_GENERATED},
        {"all_prompt", v1::QUERY_SET_ALL_PROMPT},
        {"all", v1::QUERY_SET_ALL}};
    for (const std::string_view part : SplitAt(value, ',')) {
      v1::QuerySet set = v1::QUERY_SET_UNSPECIFIED;
      for (const auto& [name, one] : sets) {
        if (name == part) set = one;
      }
      v1::Range range;
      if (set != v1::QUERY_SET_UNSPECIFIED) {
        spec->add_queries(set);
      } else if (ParseRange(part, &range)) {
        *spec->add_query_ranges() = range;
      } else {
        return absl::InvalidArgumentError(
            "takes last_prompt, generated, all_prompt, all or BEGIN:END, with commas between");
      }
    }
    return absl::OkStatus();
  };
}

FlagSetter TakesKeys(v1::AttentionSpec* spec) {
  return [spec](std::string_view value) {
    for (const std::string_view part : SplitAt(value, ',')) {
      if (!ParseRange(part, spec->add_key_ranges())) {
        return absl::InvalidArgumentError("takes BEGIN:END with commas between");
      }
    }
    return absl::OkStatus();
  };
}

// NAME=BEGIN:END, NAME=bytes:BEGIN:END, NAME=role:ROLE, NAME=text:TEXT.
FlagSetter TakesSpan(AttentionFlags* flags) {
  return [flags](std::string_view value) {
    const size_t equals = value.find('=');
    absl::Status status = absl::InvalidArgumentError(
        "takes NAME=BEGIN:END (tokens), NAME=bytes:BEGIN:END, NAME=role:ROLE or NAME=text:TEXT");
    if (equals == std::string_view::npos || equals == 0) return status;
    const std::string_view where = value.substr(equals + 1);
    v1::AttentionSpan span;
    span.set_name(std::string(value.substr(0, equals)));
    if (where.starts_with("text:")) {
      // A byte range takes its place once the prompt is known.
      span.mutable_prompt_bytes();
      flags->text_spans.resize(static_cast<size_t>(flags->spec.spans_size()) + 1);
      flags->text_spans.back() = where.substr(5);
      if (flags->text_spans.back().empty()) return status;
    } else if (where.starts_with("role:")) {
      span.set_chat_role(std::string(where.substr(5)));
    } else if (where.starts_with("bytes:")) {
      if (!ParseRange(where.substr(6), span.mutable_prompt_bytes())) return status;
    } else if (!ParseRange(where, span.mutable_tokens())) {
      return status;
    }
    *flags->spec.add_spans() = std::move(span);
    return absl::OkStatus();
  };
}

// "QxK" or "QxK:max".
bool ParseTile(std::string_view text, v1::TileOutput* tile) {
  const size_t cross = text.find('x');
  const size_t colon = std::min(text.find(':'), text.size());
  uint32_t query_bins = 0;
  uint32_t key_bins = 0;
  if (cross == std::string_view::npos || !ParseWhole(text.substr(0, cross), &query_bins) ||
      !ParseWhole(text.substr(cross + 1, colon - cross - 1), &key_bins)) {
    return false;
  }
  tile->set_query_bins(query_bins);
  tile->set_key_bins(key_bins);
  if (colon == text.size()) return true;
  tile->set_reduce(v1::ATTENTION_REDUCE_MAX);
  return text.substr(colon) == ":max";
}

// A kind, for two of them with a size behind it: "top_k:5", "tile:16x32".
bool ParseOutput(std::string_view text, v1::AttentionOutput* output) {
  const size_t colon = text.find(':');
  const std::string_view kind = text.substr(0, colon);
  const bool has_size = colon != std::string_view::npos;
  const std::string_view size = has_size ? text.substr(colon + 1) : "";
  if (kind == "top_k") {
    uint32_t k = 0;
    output->mutable_top_k();
    if (!has_size) return true;
    if (!ParseWhole(size, &k)) return false;
    output->mutable_top_k()->set_k(k);
    return true;
  }
  if (kind == "tile") {
    output->mutable_tile();
    return !has_size || ParseTile(size, output->mutable_tile());
  }
  if (kind == "stats") {
    output->mutable_stats();
  } else if (kind == "span_mass") {
    output->mutable_span_mass();
  } else if (kind == "column_sum") {
    output->mutable_column_sum();
  } else if (kind == "dense") {
    output->mutable_dense();
  } else {
    return false;
  }
  return !has_size;
}

FlagSetter TakesOutputs(v1::AttentionSpec* spec) {
  return [spec](std::string_view value) {
    for (const std::string_view part : SplitAt(value, ',')) {
      if (!ParseOutput(part, spec->add_outputs())) {
        return absl::InvalidArgumentError(
            "takes stats, top_k[:COUNT], span_mass, column_sum, dense and "
            "tile[:QUERIESxKEYS[:max]], "
            "with commas between");
      }
    }
    return absl::OkStatus();
  };
}

FlagSetter TakesReduce(std::function<void(v1::AttentionReduce)> store) {
  return TakesOneOf({"none", "mean", "max"}, [store = std::move(store)](size_t v) {
    const v1::AttentionReduce reduces[] = {v1::ATTENTION_REDUCE_NONE, v1::ATTENTION_REDUCE_MEAN,
                                           v1::ATTENTION_REDUCE_MAX};
    store(reduces[v]);
  });
}

void AddSpecFlags(CommandLine* command_line, AttentionFlags* flags) {
  v1::AttentionSpec* spec = &flags->spec;
  command_line->Section("What to look at (unset: everything)");
  command_line->Add({.name = "layer",
                     .placeholder = "LAYER,...",
                     .help = "Layers; negative ones count from the end.",
                     .set = TakesLayers(&flags->layers)});
  command_line->Add(
      {.name = "head",
       .placeholder = "HEAD,...",
       .help = "Query heads.",
       .set = TakesIds([flags](const std::vector<uint32_t>& v) { flags->heads = v; })});
  command_line->Add({.name = "pairs",
                     .placeholder = "LAYER:HEAD,...",
                     .help = "Single heads instead of all combinations.",
                     .set = TakesPairs(spec)});
  command_line->Add({.name = "queries",
                     .placeholder = "SET,...",
                     .help = "Rows: last_prompt, generated, all_prompt, all, or positions "
                             "BEGIN:END. Default: all for short prompts, else "
                             "last_prompt,generated.",
                     .set = TakesQueries(spec)});
  command_line->Add({.name = "keys",
                     .placeholder = "BEGIN:END,...",
                     .help = "Positions looked at; default all.",
                     .set = TakesKeys(spec)});
  command_line->Add({.name = "spans",
                     .placeholder = "NAME=WHERE",
                     .help = "A part of the prompt whose weight is added up: BEGIN:END (tokens), "
                             "bytes:BEGIN:END, role:ROLE, or text:TEXT found in the prompt.",
                     .set = TakesSpan(flags),
                     .repeatable = true});
  command_line->Add({.name = "output",
                     .placeholder = "KIND,...",
                     .help =
                         "stats, top_k (or top_k:COUNT; 16), span_mass, column_sum, dense, tile "
                         "(or tile:QUERIESxKEYS, :max behind it); default: what the view "
                         "draws.",
                     .set = TakesOutputs(spec)});
  command_line->Add({.name = "dtype",
                     .placeholder = "TYPE",
                     .help = "f32 (default) or f16, for --output=dense.",
                     .set = TakesOneOf({"f32", "f16"}, [flags](size_t v) {
                       flags->dtype = v == 0 ? v1::ELEMENT_TYPE_F32 : v1::ELEMENT_TYPE_F16;
                     })});
  command_line->Add({.name = "stage",
                     .placeholder = "STAGE",
                     .help = "weights (default) or scores (before the softmax).",
                     .set = TakesOneOf({"weights", "scores"}, [spec](size_t v) {
                       spec->set_stage(v == 0 ? v1::ATTENTION_STAGE_WEIGHTS
                                              : v1::ATTENTION_STAGE_SCORES);
                     })});
  command_line->Add({.name = "reduce_heads",
                     .placeholder = "HOW",
                     .help = "none, mean or max, on the server; default: mean for pictures, none "
                             "for files.",
                     .set = TakesReduce([spec](auto v) { spec->set_reduce_heads(v); })});
  command_line->Add({.name = "reduce_layers",
                     .placeholder = "HOW",
                     .help = "The same for layers.",
                     .set = TakesReduce([spec](auto v) { spec->set_reduce_layers(v); })});
  command_line->Add({.name = "max_bytes",
                     .placeholder = "COUNT",
                     .help = "Refuses a larger answer before any work.",
                     .set = TakesUint64([spec](uint64_t v) { spec->set_max_bytes(v); })});
}

void AddLookFlags(CommandLine* command_line, AttentionFlags* flags) {
  AttentionViewOptions* look = &flags->look;
  command_line->Section("Picture and files");
  command_line->Add(
      {.name = "view",
       .placeholder = "VIEW",
       .help = "strip (text in colours, per token), grid (layers x heads of one "
               "token), matrix (queries x keys), spans, none; default strip.",
       .set = TakesOneOf({"strip", "grid", "matrix", "spans", "none"},
                         [flags](size_t v) { flags->view = static_cast<AttentionView>(v); })});
  command_line->Add(
      {.name = "token",
       .placeholder = "POSITION",
       .help = "Only the token at this position; -1 is the last one.",
       .set = TakesInteger(std::numeric_limits<int32_t>::min(), std::numeric_limits<int32_t>::max(),
                           [look](int64_t v) { look->token = v; })});
  command_line->Add(
      {.name = "statistic",
       .placeholder = "NAME",
       .help = "For the grid: log_sum_exp, entropy (default), max, top (which key), "
               "self, first, distance, visible.",
       .set = TakesOneOf(
           {"log_sum_exp", "entropy", "max", "top", "self", "first", "distance", "visible"},
           [look](size_t v) { look->statistic = static_cast<AttentionStatistic>(v); })});
  command_line->Add({.name = "choice",
                     .placeholder = "INDEX",
                     .help = "Which answer of a replayed request; default 0.",
                     .set = TakesUint32([look](uint32_t v) { look->choice = v; })});
  command_line->Add({.name = "hide_sink",
                     .placeholder = "",
                     .help = "Leaves key 0 out of the picture, which says what it took; default "
                             "true.",
                     .set = TakesSwitch([look](bool v) { look->hide_sink = v; })});
  command_line->Add({.name = "log_scale",
                     .placeholder = "",
                     .help = "Colours by the logarithm, over three decades.",
                     .set = TakesSwitch([look](bool v) { look->log_scale = v; })});
  command_line->Add({.name = "colour",
                     .placeholder = "WHEN",
                     .help = "auto (default: in a terminal, unless NO_COLOR is set), always, never "
                             "(ASCII).",
                     .set = TakesOneOf({"auto", "always", "never"}, [flags](size_t v) {
                       flags->colour_always = v == 1;
                       flags->colour_never = v == 2;
                     })});
  command_line->Add({.name = "width",
                     .placeholder = "COLUMNS",
                     .help = "Of the picture; default: the terminal's, else 100.",
                     .set = TakesInteger(
                         40, 10'000, [flags](int64_t v) { flags->width = static_cast<int>(v); })});
  command_line->Add({.name = "npz",
                     .placeholder = "FILE",
                     .help = "Writes arrays for numpy.load, axes [layer, head, query, key].",
                     .set = TakesText([flags](const std::string& v) { flags->npz = v; })});
  command_line->Add({.name = "csv",
                     .placeholder = "FILE",
                     .help = "Writes a line per number.",
                     .set = TakesText([flags](const std::string& v) { flags->csv = v; })});
}

bool HasOutput(const v1::AttentionSpec& spec, v1::AttentionOutput::KindCase kind) {
  for (const v1::AttentionOutput& output : spec.outputs()) {
    if (output.kind_case() == kind) return true;
  }
  return false;
}

AttentionView ViewOf(const v1::AttentionSpec& spec) {
  using Output = v1::AttentionOutput;
  if (spec.outputs().empty()) {
    return spec.spans().empty() ? AttentionView::kStrip : AttentionView::kSpans;
  }
  if (HasOutput(spec, Output::kDense) || HasOutput(spec, Output::kTopK)) {
    return AttentionView::kStrip;
  }
  if (HasOutput(spec, Output::kStats)) return AttentionView::kGrid;
  if (HasOutput(spec, Output::kSpanMass)) return AttentionView::kSpans;
  return AttentionView::kNone;
}

// The output that a view draws, where the flags name none.
void AddDefaultOutput(AttentionView view, AttentionFlags* flags) {
  v1::AttentionSpec* spec = &flags->spec;
  if (view == AttentionView::kGrid) {
    spec->add_outputs()->mutable_stats();
  } else if (view == AttentionView::kSpans) {
    spec->add_outputs()->mutable_span_mass();
  } else {
    spec->add_outputs()->mutable_dense();
  }
}

absl::Status CheckViewHasOutput(AttentionView view, const v1::AttentionSpec& spec) {
  using Output = v1::AttentionOutput;
  const bool has_weights = HasOutput(spec, Output::kDense) || HasOutput(spec, Output::kTopK);
  if ((view == AttentionView::kStrip || view == AttentionView::kMatrix) && !has_weights) {
    return absl::InvalidArgumentError("this --view draws --output=dense or top_k");
  }
  if (view == AttentionView::kGrid && !HasOutput(spec, Output::kStats)) {
    return absl::InvalidArgumentError("--view=grid draws --output=stats");
  }
  if (view == AttentionView::kSpans && !HasOutput(spec, Output::kSpanMass)) {
    return absl::InvalidArgumentError("--view=spans draws --output=span_mass");
  }
  return absl::OkStatus();
}

}  // namespace

void AddAttentionFlags(CommandLine* command_line, AttentionFlags* flags) {
  AddSpecFlags(command_line, flags);
  AddLookFlags(command_line, flags);
}

absl::Status CompleteAttention(size_t prompt_tokens, AttentionFlags* flags) {
  v1::AttentionSpec* spec = &flags->spec;
  if (!flags->layers.empty() || !flags->heads.empty()) {
    if (spec->has_pairs()) {
      return absl::InvalidArgumentError("--pairs excludes --layer and --head");
    }
    spec->mutable_grid()->mutable_layers()->Assign(flags->layers.begin(), flags->layers.end());
    spec->mutable_grid()->mutable_heads()->Assign(flags->heads.begin(), flags->heads.end());
  }
  if (!flags->view) flags->view = ViewOf(*spec);
  const AttentionView view = *flags->view;
  if (spec->outputs().empty()) AddDefaultOutput(view, flags);
  absl::Status status = CheckViewHasOutput(view, *spec);
  if (!status.ok()) return status;
  for (v1::AttentionOutput& output : *spec->mutable_outputs()) {
    if (output.has_dense()) {
      output.mutable_dense()->set_dtype(
          flags->dtype == v1::ELEMENT_TYPE_UNSPECIFIED ? v1::ELEMENT_TYPE_F32 : flags->dtype);
    }
  }
  if (flags->dtype != v1::ELEMENT_TYPE_UNSPECIFIED &&
      !HasOutput(*spec, v1::AttentionOutput::kDense)) {
    return absl::InvalidArgumentError("--dtype goes with --output=dense");
  }
  const bool names_rows = !spec->queries().empty() || !spec->query_ranges().empty();
  const bool draws_rows = view != AttentionView::kNone && view != AttentionView::kGrid;
  const int64_t token = flags->look.token.value_or(-1);
  if (!names_rows && token >= 0) {
    const auto position = static_cast<uint32_t>(token);
    spec->add_query_ranges()->set_begin(position);
    spec->mutable_query_ranges(0)->set_end(position + 1);
  } else if (!names_rows && draws_rows &&
             (prompt_tokens <= kFewTokens || view == AttentionView::kMatrix)) {
    spec->add_queries(v1::QUERY_SET_ALL);
  }
  // A file keeps heads apart; a picture of one thing takes them together where that is cheapest.
  if (draws_rows && flags->npz.empty() && flags->csv.empty() && !spec->has_pairs()) {
    if (spec->reduce_heads() == v1::ATTENTION_REDUCE_UNSPECIFIED) {
      spec->set_reduce_heads(v1::ATTENTION_REDUCE_MEAN);
    }
    if (spec->reduce_layers() == v1::ATTENTION_REDUCE_UNSPECIFIED) {
      spec->set_reduce_layers(v1::ATTENTION_REDUCE_MEAN);
    }
  }
  flags->look.view = view;
  flags->look.combine_max = spec->reduce_heads() == v1::ATTENTION_REDUCE_MAX ||
                            spec->reduce_layers() == v1::ATTENTION_REDUCE_MAX;
  return absl::OkStatus();
}

absl::Status FindTextSpans(std::string_view prompt, AttentionFlags* flags) {
  for (size_t i = 0; i < flags->text_spans.size(); ++i) {
    const std::string& text = flags->text_spans[i];
    if (text.empty()) continue;
    v1::AttentionSpan* span = flags->spec.mutable_spans(static_cast<int>(i));
    const size_t begin = prompt.find(text);
    if (begin == std::string_view::npos) {
      return absl::InvalidArgumentError(
          absl::StrCat("--spans: the prompt does not hold the text of ", span->name()));
    }
    span->mutable_prompt_bytes()->set_begin(static_cast<uint32_t>(begin));
    span->mutable_prompt_bytes()->set_end(static_cast<uint32_t>(begin + text.size()));
  }
  return absl::OkStatus();
}

}  // namespace vitrine::client
