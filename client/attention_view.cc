#include "client/attention_view.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <numeric>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/attention_assembly.h"
#include "client/attention_rows.h"
#include "client/heat_scale.h"
#include "client/heat_table.h"
#include "client/sequence_tokens.h"
#include "client/visible_text.h"
#include "vitrine/v1/attention.pb.h"

namespace vitrine::client {
namespace {

constexpr size_t kTopKeys = 3;      // Named beside a row.
constexpr size_t kManyTokens = 96;  // From here on cold stretches are left out of a strip.
constexpr double kWarm = 0.1;       // Share of the hottest weight that keeps its surroundings.
constexpr double kLogSpan = 1e-3;   // A logarithmic scale begins at this share of its end.
constexpr float kNothing = std::numeric_limits<float>::quiet_NaN();

constexpr const char* kStatisticNames[] = {
    "log-sum-exp",      "entropy",         "largest weight", "key with the largest weight",
    "weight on itself", "weight on key 0", "mean distance",  "visible keys"};
constexpr int kStatisticDigits[] = {1, 2, 2, 0, 2, 2, 1, 0};

class AttentionPainter {
 public:
  AttentionPainter(const AttentionTrace& trace, const SequenceTokens& tokens,
                   const v1::AttentionSpec& spec, const AttentionViewOptions& options)
      : trace_(trace),
        tokens_(tokens),
        spec_(spec),
        options_(options),
        ascii_(!options.style.colour),
        arrow_(ascii_ ? " -> " : " \u2192 ") {}

  absl::StatusOr<std::string> Draw() const {
    absl::StatusOr<std::string> picture = "";
    switch (options_.view) {
      case AttentionView::kStrip:
      case AttentionView::kMatrix:
        picture = DrawWeights();
        break;
      case AttentionView::kGrid:
        picture = DrawGrid();
        break;
      case AttentionView::kSpans:
        picture = DrawSpans();
        break;
      case AttentionView::kNone:
        break;
    }
    if (!picture.ok()) return picture;
    return absl::StrCat(*picture, Footer());
  }

 private:
  bool is_scores() const { return spec_.stage() == v1::ATTENTION_STAGE_SCORES; }

  std::string TokenName(size_t position) const {
    if (position >= tokens_.ids.size()) return absl::StrCat("#", position);
    const std::string& bytes = tokens_.bytes[position];
    return bytes.empty() ? absl::StrCat("<", tokens_.ids[position], ">")
                         : VisibleText(bytes, ascii_);
  }

  // "5 _is -> _Paris": the row of _is chose _Paris. Inside the prompt nothing was chosen.
  std::string RowName(uint32_t position) const {
    std::string name = absl::StrCat(position, " ", TokenName(position));
    if (position + size_t{1} >= tokens_.prompt_tokens && position + 1 < tokens_.ids.size()) {
      absl::StrAppend(&name, arrow_, TokenName(position + size_t{1}));
    }
    return name;
  }

  // "mean over 30 layers and 9 heads", "layer 5, head 3".
  std::string Where(const AttentionArray& array) const {
    const std::string how = options_.combine_max ? "largest of " : "mean over ";
    if (!array.pairs.empty()) {
      if (array.pairs.size() > 1) return absl::StrCat(how, array.pairs.size(), " heads");
      return absl::StrCat("layer ", array.pairs[0].layer, ", head ", array.pairs[0].head);
    }
    const size_t layers = array.layers.size();
    const size_t heads = array.heads.size();
    const std::string head = absl::StrCat("head ", array.heads[0]);
    const std::string layer = absl::StrCat("layer ", array.layers[0]);
    if (layers == 1 && heads == 1) return absl::StrCat(layer, ", ", head);
    if (layers == 1) return absl::StrCat(layer, ", ", how, heads, " heads");
    if (heads == 1) return absl::StrCat(head, ", ", how, layers, " layers");
    return absl::StrCat(how, layers, " layers and ", heads, " heads");
  }

  absl::StatusOr<const AttentionArray*> Need(v1::AttentionOutputKind kind,
                                             std::string_view name) const {
    const AttentionArray* array = trace_.Find(kind);
    if (array != nullptr) return array;
    return absl::FailedPreconditionError(
        absl::StrCat("nothing to draw: no ", std::string(name), " came for any token"));
  }

  absl::StatusOr<std::vector<size_t>> Rows(const AttentionArray& array) const {
    std::vector<size_t> rows =
        SelectRows(array, tokens_.prompt_tokens, options_.choice, options_.token);
    if (!rows.empty()) return rows;
    return absl::FailedPreconditionError(
        "there is no row of that token; --queries says which come");
  }

  absl::StatusOr<std::string> DrawWeights() const {
    const AttentionArray* array = trace_.Find(v1::ATTENTION_OUTPUT_KIND_DENSE);
    if (array == nullptr) {
      const auto top = Need(v1::ATTENTION_OUTPUT_KIND_TOP_K, "weights (dense or top_k)");
      if (!top.ok()) return top.status();
      array = *top;
    }
    const absl::StatusOr<std::vector<size_t>> selected = Rows(*array);
    if (!selected.ok()) return selected.status();
    // Nothing looks at what comes behind the last row.
    const size_t keys = size_t{array->rows[selected->back()].position} + 1;
    std::vector<TokenRow> rows;
    for (const size_t row : *selected) {
      rows.push_back({.position = array->rows[row].position,
                      .weights = KeyWeights(*array, row, keys, options_.combine_max)});
    }
    double sink = 0;
    for (TokenRow& row : rows) {
      if (!HidesSink()) continue;
      sink += std::isnan(row.weights[0]) ? 0.0 : row.weights[0];
      row.weights[0] = kNothing;
    }
    const HeatScale scale = ScaleOf(rows);
    std::string text =
        absl::StrCat(is_scores() ? "attention scores, " : "attention, ", Where(*array), ": ",
                     rows.size(), rows.size() == 1 ? " token" : " tokens", " over ", keys,
                     keys == 1 ? " key\n" : " keys\n", scale.Legend(options_.style), "\n");
    if (HidesSink()) {
      absl::StrAppendFormat(&text,
                            "key 0 (%s) took %.2f of the weight and is left out; "
                            "--hide_sink=false shows it\n",
                            TokenName(0), sink / static_cast<double>(rows.size()));
    }
    const bool as_text = options_.view == AttentionView::kStrip && options_.style.colour;
    return absl::StrCat(text, "\n", as_text ? DrawStrip(rows, scale) : DrawMatrix(rows, scale));
  }

  // Scores have no sink to hide: their differences count, not their size.
  bool HidesSink() const { return options_.hide_sink && !is_scores() && tokens_.ids.size() > 1; }

  HeatScale ScaleOf(const std::vector<TokenRow>& rows) const {
    double low = HUGE_VAL;
    double high = -HUGE_VAL;
    for (const TokenRow& row : rows) {
      for (const float weight : row.weights) {
        if (!std::isfinite(weight)) continue;
        low = std::min(low, double{weight});
        high = std::max(high, double{weight});
      }
    }
    if (is_scores()) return {low, high, false};
    return ScaleUpTo(high);
  }

  HeatScale ScaleUpTo(double high) const {
    if (!(high > 0.0)) high = 1.0;
    return {options_.log_scale ? high * kLogSpan : 0.0, high, options_.log_scale};
  }

  std::string TopKeys(const std::vector<float>& weights) const {
    std::string text;
    for (const size_t key : LargestOf(weights, kTopKeys)) {
      absl::StrAppendFormat(&text, "%s%d %s %.2f", text.empty() ? "" : ", ", key, TokenName(key),
                            weights[key]);
    }
    return text;
  }

  double WarmThreshold(const std::vector<TokenRow>& rows) const {
    double high = 0;
    for (const TokenRow& row : rows) {
      for (const float weight : row.weights) {
        if (weight > high) high = weight;
      }
    }
    return std::max(high * kWarm, 1e-30);
  }

  std::vector<size_t> ShownColumns(const std::vector<TokenRow>& rows, double threshold,
                                   size_t neighbourhood) const {
    const size_t keys = rows.front().weights.size();
    if (options_.view == AttentionView::kStrip && keys > kManyTokens) {
      return WarmColumns(rows, keys, threshold, neighbourhood);
    }
    std::vector<size_t> all(keys);
    std::iota(all.begin(), all.end(), size_t{0});
    return all;
  }

  std::string DrawMatrix(const std::vector<TokenRow>& rows, const HeatScale& scale) const {
    const std::vector<size_t> shown = ShownColumns(rows, WarmThreshold(rows), 1);
    HeatTable table;
    for (const size_t c : shown) {
      table.columns.push_back(c == kGap ? (ascii_ ? "~" : "\u2026") : TokenName(c));
    }
    for (const TokenRow& row : rows) {
      HeatRow drawn = {.label = RowName(row.position), .values = {}};
      for (const size_t c : shown) drawn.values.push_back(c == kGap ? kNothing : row.weights[c]);
      if (!is_scores()) drawn.note = TopKeys(row.weights);
      table.rows.push_back(std::move(drawn));
    }
    return DrawHeatTable(table, scale, options_.style);
  }

  // The text itself in colours, once per token that looked at it.
  std::string DrawStrip(const std::vector<TokenRow>& rows, const HeatScale& scale) const {
    std::string text;
    for (const TokenRow& row : rows) {
      absl::StrAppend(&text, "\x1b[1m", RowName(row.position), "\x1b[0m");
      if (!is_scores()) absl::StrAppend(&text, "   ", TopKeys(row.weights));
      text += "\n";
      text += PaintText(row, ShownColumns({row}, WarmThreshold(rows), 4), scale);
    }
    return text;
  }

  std::string PaintText(const TokenRow& row, const std::vector<size_t>& shown,
                        const HeatScale& scale) const {
    constexpr size_t kIndent = 4;
    const std::string new_line = "\n" + std::string(kIndent, ' ');
    std::string text(kIndent, ' ');
    size_t column = kIndent;
    bool breaks = false;
    for (const size_t key : shown) {
      if (key != kGap && key > row.position) break;
      std::string name = key == kGap ? " \u2026 " : TokenName(key);
      const bool opens_answer = key == tokens_.prompt_tokens;
      const size_t width = DisplayWidth(name) + (opens_answer ? 3 : 0);
      if (breaks || column + width > static_cast<size_t>(std::max(options_.style.width, 40))) {
        text += new_line;
        column = kIndent;
      }
      if (opens_answer) text += " \u2502 ";
      const float weight = key == kGap ? kNothing : row.weights[key];
      absl::StrAppend(&text, std::isnan(weight) ? absl::StrCat("\x1b[2m", name, "\x1b[0m")
                                                : scale.Paint(name, weight));
      column += width;
      breaks = key != kGap && key < tokens_.bytes.size() && tokens_.bytes[key].ends_with('\n');
    }
    return text + "\n";
  }

  absl::StatusOr<std::string> DrawGrid() const {
    const absl::StatusOr<const AttentionArray*> found =
        Need(v1::ATTENTION_OUTPUT_KIND_STATS, "statistics (stats)");
    if (!found.ok()) return found.status();
    const AttentionArray& array = **found;
    const absl::StatusOr<std::vector<size_t>> selected = Rows(array);
    if (!selected.ok()) return selected.status();
    const size_t row = selected->back();
    const auto statistic = static_cast<size_t>(options_.statistic);
    // The colour of a key's number is the weight on it.
    const bool is_key = options_.statistic == AttentionStatistic::kTop;
    const size_t coloured = is_key ? static_cast<size_t>(AttentionStatistic::kMax) : statistic;

    HeatTable table = {
        .columns = {}, .rows = {}, .label_heading = "layer", .digits = kStatisticDigits[statistic]};
    double low = HUGE_VAL;
    double high = -HUGE_VAL;
    std::map<size_t, int> top_keys;
    for (size_t layer = 0; layer < array.dims[0]; ++layer) {
      HeatRow drawn = {.label = LayerName(array, layer), .values = {}};
      for (size_t head = 0; head < array.dims[1]; ++head) {
        const size_t begin = array.RowBegin(layer, head, row);
        const float value = array.values[begin + coloured];
        low = std::min(low, double{value});
        high = std::max(high, double{value});
        drawn.values.push_back(value);
        const float key = array.values[begin + static_cast<size_t>(AttentionStatistic::kTop)];
        if (is_key) drawn.texts.push_back(absl::StrFormat("%.0f", key));
        if (key >= 0.0f && key < static_cast<float>(tokens_.ids.size())) {
          ++top_keys[static_cast<size_t>(key)];
        }
      }
      table.rows.push_back(std::move(drawn));
    }
    for (size_t head = 0; head < array.dims[1]; ++head)
      table.columns.push_back(HeadName(array, head));
    const bool is_share = coloured == 2 || coloured == 4 || coloured == 5;
    const HeatScale scale = is_share ? ScaleUpTo(high) : HeatScale(low, high, false);
    return absl::StrCat(kStatisticNames[statistic], statistic == 1 ? " (nats)" : "", " of ",
                        RowName(array.rows[row].position), ", layer x head\n",
                        scale.Legend(options_.style), is_key ? " = weight on that key" : "", "\n\n",
                        DrawHeatTable(table, scale, options_.style), "\n", TopKeyCounts(top_keys));
  }

  static std::string LayerName(const AttentionArray& array, size_t layer) {
    if (!array.pairs.empty()) return "pairs";
    return array.layers.size() == array.dims[0] ? absl::StrCat(array.layers[layer]) : "all";
  }

  static std::string HeadName(const AttentionArray& array, size_t head) {
    if (!array.pairs.empty()) {
      return absl::StrCat(array.pairs[head].layer, ":", array.pairs[head].head);
    }
    return array.heads.size() == array.dims[1] ? absl::StrCat(array.heads[head]) : "all";
  }

  // "on top: _The in 214 heads, ...".
  std::string TopKeyCounts(const std::map<size_t, int>& counts) const {
    std::vector<std::pair<size_t, int>> order(counts.begin(), counts.end());
    std::stable_sort(order.begin(), order.end(),
                     [](const auto& a, const auto& b) { return a.second > b.second; });
    std::string text = "most weight: ";
    for (size_t i = 0; i < std::min<size_t>(order.size(), 5); ++i) {
      absl::StrAppend(&text, i == 0 ? "" : ", ", order[i].first, " ", TokenName(order[i].first),
                      i == 0 ? " in " : " ", order[i].second, i == 0 ? " heads" : "");
    }
    return text + "\n";
  }

  absl::StatusOr<std::string> DrawSpans() const {
    const absl::StatusOr<const AttentionArray*> found =
        Need(v1::ATTENTION_OUTPUT_KIND_SPAN_MASS, "masses of spans (span_mass)");
    if (!found.ok()) return found.status();
    const AttentionArray& array = **found;
    const absl::StatusOr<std::vector<size_t>> selected = Rows(array);
    if (!selected.ok()) return selected.status();
    HeatTable table = {.columns = {}, .rows = {}, .label_heading = "", .digits = 3};
    for (const v1::AttentionSpan& span : spec_.spans()) {
      table.columns.push_back(VisibleText(span.name(), ascii_));
    }
    double high = 0;
    for (const size_t row : *selected) {
      HeatRow drawn = {.label = RowName(array.rows[row].position),
                       .values = CombineHeads(array, row, options_.combine_max)};
      for (const float value : drawn.values) high = std::max(high, double{value});
      table.rows.push_back(std::move(drawn));
    }
    const HeatScale scale = ScaleUpTo(high);
    return absl::StrCat("attention on spans, ", Where(array), "\n", scale.Legend(options_.style),
                        "\n\n", DrawHeatTable(table, scale, options_.style));
  }

  std::string Footer() const {
    const v1::AttentionProvenance& from = trace_.provenance;
    std::string text = absl::StrCat(
        "\n",
        from.method() == v1::ATTENTION_METHOD_REPLAYED ? "replayed" : "recomputed in the step",
        ", cache ", from.kv_dtype(), ", numerics ", from.numerics());
    absl::StrAppendFormat(&text, "; rows sum to 1 within %.1g, log-sum-exp within %.1g\n",
                          from.max_row_sum_error(), from.max_lse_delta());
    absl::StrAppendFormat(
        &text, "request %s: %u rows, %u bytes, %.1f ms of the server's time%s\n", trace_.request_id,
        trace_.end.rows(), trace_.end.bytes(), static_cast<double>(trace_.end.added_us()) / 1e3,
        trace_.end.status() == v1::TRACE_STATUS_PARTIAL ? "; the answer ended before every row"
                                                        : "");
    return text;
  }

  const AttentionTrace& trace_;
  const SequenceTokens& tokens_;
  const v1::AttentionSpec& spec_;
  const AttentionViewOptions& options_;
  const bool ascii_;
  const std::string arrow_;
};

}  // namespace

absl::StatusOr<std::string> DrawAttention(const AttentionTrace& trace, const SequenceTokens& tokens,
                                          const v1::AttentionSpec& spec,
                                          const AttentionViewOptions& options) {
  return AttentionPainter(trace, tokens, spec, options).Draw();
}

}  // namespace vitrine::client
