#include "client/attention_export.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <ios>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/attention_assembly.h"
#include "client/npz.h"
#include "client/sequence_tokens.h"
#include "vitrine/v1/attention.pb.h"

namespace vitrine::client {
namespace {

const std::vector<std::string>& StatisticNames() {
  static const auto* const kNames = new std::vector<std::string>{
      "log_sum_exp", "entropy",          "max",           "argmax",
      "self_weight", "first_key_weight", "mean_distance", "visible_keys"};
  return *kNames;
}

std::string NameOf(v1::AttentionOutputKind kind) {
  constexpr size_t kPrefix = std::string_view("ATTENTION_OUTPUT_KIND_").size();
  std::string name = v1::AttentionOutputKind_Name(kind).substr(kPrefix);
  std::transform(name.begin(), name.end(), name.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  return name;
}

std::vector<std::string> SpanNames(const v1::AttentionSpec& spec) {
  std::vector<std::string> names;
  for (const v1::AttentionSpan& span : spec.spans()) names.push_back(span.name());
  return names;
}

bool HasRowPerQuery(const AttentionArray& array) {
  return array.kind != v1::ATTENTION_OUTPUT_KIND_COLUMN_SUM &&
         array.kind != v1::ATTENTION_OUTPUT_KIND_TILE;
}

void AddData(const AttentionArray& array, NpzWriter* npz) {
  const std::string name = NameOf(array.kind);
  const std::vector<size_t> shape(array.dims.begin(), array.dims.end());
  if (array.kind != v1::ATTENTION_OUTPUT_KIND_TOP_K) {
    npz->Add(name, shape, array.values);
    return;
  }
  npz->Add("top_k_weights", shape, array.values);
  npz->Add("top_k_keys", shape, array.top_keys);
  if (!array.tail_mass.empty()) {
    npz->Add("top_k_tail_mass", {shape[0], shape[1], shape[2]}, array.tail_mass);
  }
}

// The rows are the same for every output of a trace, and so are layers and heads.
void AddAxes(const AttentionArray& array, NpzWriter* npz) {
  if (array.pairs.empty()) {
    npz->Add("layers", {array.layers.size()}, array.layers);
    npz->Add("heads", {array.heads.size()}, array.heads);
  } else {
    std::vector<uint32_t> pairs;
    for (const AttentionHead& pair : array.pairs) {
      pairs.push_back(pair.layer);
      pairs.push_back(pair.head);
    }
    npz->Add("pairs", {array.pairs.size(), 2}, pairs);
  }
  std::vector<uint32_t> choices;
  std::vector<uint32_t> queries;
  std::vector<uint32_t> predicted;
  for (const AttentionRowId& row : array.rows) {
    choices.push_back(row.choice);
    queries.push_back(row.position);
    predicted.push_back(row.position + 1);
  }
  npz->Add("choices", {choices.size()}, choices);
  npz->Add("query_positions", {queries.size()}, queries);
  npz->Add("predicts_positions", {predicted.size()}, predicted);
}

void AddLastAxis(const AttentionArray& array, const v1::AttentionSpec& spec, NpzWriter* npz) {
  switch (array.kind) {
    case v1::ATTENTION_OUTPUT_KIND_DENSE:
      npz->Add("key_positions", {array.last.size()}, array.last);
      break;
    case v1::ATTENTION_OUTPUT_KIND_STATS:
      npz->Add("statistic_names", StatisticNames());
      break;
    case v1::ATTENTION_OUTPUT_KIND_SPAN_MASS:
      npz->Add("span_names", SpanNames(spec));
      break;
    case v1::ATTENTION_OUTPUT_KIND_COLUMN_SUM:
      npz->Add("column_sum_keys", {array.last.size()}, array.last);
      break;
    case v1::ATTENTION_OUTPUT_KIND_TILE:
      npz->Add("tile_first_keys", {array.last.size()}, array.last);
      break;
    default:
      break;
  }
}

// RFC 4180.
std::string CsvField(std::string_view text) {
  if (text.find_first_of("\",\r\n") == std::string_view::npos) return std::string(text);
  std::string field = "\"";
  for (const char c : text) {
    if (c == '"') field += '"';
    field += c;
  }
  return field + "\"";
}

class CsvWriter {
 public:
  CsvWriter(const SequenceTokens& tokens, const v1::AttentionSpec& spec, const std::string& path)
      : tokens_(tokens),
        span_names_(SpanNames(spec)),
        file_(path, std::ios::binary | std::ios::trunc) {
    file_ << "output,layer,head,choice,query,last,query_token,last_token,value\n";
  }

  void Add(const AttentionArray& array) {
    for (size_t layer = 0; layer < array.dims[0]; ++layer) {
      for (size_t head = 0; head < array.dims[1]; ++head) {
        for (size_t query = 0; query < array.dims[2]; ++query) AddRow(array, layer, head, query);
      }
    }
  }

  absl::Status Finish() {
    file_.close();
    return file_ ? absl::OkStatus() : absl::UnknownError("cannot write the csv file");
  }

 private:
  void AddRow(const AttentionArray& array, size_t layer, size_t head, size_t query) {
    const bool has_row = HasRowPerQuery(array);
    const std::string before =
        absl::StrCat(NameOf(array.kind), ",", HeadFields(array, layer, head), ",",
                     has_row ? absl::StrCat(array.rows[query].choice) : "", ",",
                     has_row ? array.rows[query].position : static_cast<uint32_t>(query));
    const std::string query_token = has_row ? Token(array.rows[query].position) : "";
    const size_t begin = array.RowBegin(layer, head, query);
    for (size_t i = 0; i < array.dims[3]; ++i) {
      std::string last = absl::StrCat(array.last[i]);
      std::string last_token;
      if (array.kind == v1::ATTENTION_OUTPUT_KIND_STATS) {
        last = StatisticNames()[i];
      } else if (array.kind == v1::ATTENTION_OUTPUT_KIND_SPAN_MASS) {
        last = CsvField(span_names_[i]);
      } else {
        const bool is_top_k = array.kind == v1::ATTENTION_OUTPUT_KIND_TOP_K;
        const uint32_t key = is_top_k ? array.top_keys[begin + i] : array.last[i];
        last = absl::StrCat(key);
        last_token = Token(key);
        // Keys that the row cannot see fill the place only.
        if (has_row && key > array.rows[query].position) continue;
      }
      file_ << before << "," << last << "," << query_token << "," << last_token << ","
            << absl::StrFormat("%.9g", array.values[begin + i]) << "\n";
    }
  }

  static std::string HeadFields(const AttentionArray& array, size_t layer, size_t head) {
    if (!array.pairs.empty()) {
      return absl::StrCat(array.pairs[head].layer, ",", array.pairs[head].head);
    }
    const bool has_layer = array.layers.size() == array.dims[0];
    const bool has_head = array.heads.size() == array.dims[1];
    return absl::StrCat(has_layer ? absl::StrCat(array.layers[layer]) : "reduced", ",",
                        has_head ? absl::StrCat(array.heads[head]) : "reduced");
  }

  std::string Token(uint32_t position) const {
    return position < tokens_.bytes.size() ? CsvField(tokens_.bytes[position]) : "";
  }

  const SequenceTokens& tokens_;
  const std::vector<std::string> span_names_;
  std::ofstream file_;
};

}  // namespace

absl::Status WriteNpz(const AttentionTrace& trace, const SequenceTokens& tokens,
                      const v1::AttentionSpec& spec, const std::string& path) {
  NpzWriter npz(path);
  for (const AttentionArray& array : trace.arrays) {
    AddData(array, &npz);
    AddLastAxis(array, spec, &npz);
  }
  if (!trace.arrays.empty()) AddAxes(trace.arrays.front(), &npz);
  npz.Add("token_ids", {tokens.ids.size()}, tokens.ids);
  npz.Add("token_bytes", tokens.bytes);
  npz.Add("prompt_tokens", {}, std::vector<uint32_t>{static_cast<uint32_t>(tokens.prompt_tokens)});
  const bool is_scores = spec.stage() == v1::ATTENTION_STAGE_SCORES;
  const bool is_replay = trace.provenance.method() == v1::ATTENTION_METHOD_REPLAYED;
  npz.Add("request_id", {trace.request_id});
  npz.Add("stage", {is_scores ? "scores" : "weights"});
  npz.Add("method", {is_replay ? "replayed" : "recomputed"});
  npz.Add("kv_dtype", {trace.provenance.kv_dtype()});
  npz.Add("numerics", {trace.provenance.numerics()});
  npz.Add("max_row_sum_error", {}, std::vector<float>{trace.provenance.max_row_sum_error()});
  npz.Add("max_lse_delta", {}, std::vector<float>{trace.provenance.max_lse_delta()});
  return npz.Finish();
}

absl::Status WriteCsv(const AttentionTrace& trace, const SequenceTokens& tokens,
                      const v1::AttentionSpec& spec, const std::string& path) {
  CsvWriter csv(tokens, spec, path);
  for (const AttentionArray& array : trace.arrays) csv.Add(array);
  return csv.Finish();
}

}  // namespace vitrine::client
