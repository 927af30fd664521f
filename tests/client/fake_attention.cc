#include "tests/client/fake_attention.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "vitrine/v1/attention.pb.h"

namespace vitrine::client {
namespace {

constexpr char kKeptPrompt[] = "A cat sat.";
constexpr char kKeptAnswer[] = " on it";

bool Reduces(v1::AttentionReduce reduce) {
  return reduce == v1::ATTENTION_REDUCE_MEAN || reduce == v1::ATTENTION_REDUCE_MAX;
}

// Exact for the weights here, which are neither tiny nor large.
uint16_t HalfOf(double value) {
  if (value == 0) return 0;
  int exponent = 0;
  const double fraction = std::frexp(value, &exponent);
  const auto bits = static_cast<uint32_t>(std::lround(fraction * 2048));  // 1024 to 2048.
  return static_cast<uint16_t>((static_cast<uint32_t>(exponent + 14) << 10) + (bits - 1024));
}

void Append(uint32_t value, int bytes, std::string* data) {
  for (int i = 0; i < bytes; ++i) data->push_back(static_cast<char>(value >> (8 * i) & 0xFFu));
}

void AppendFloat(double value, std::string* data) {
  Append(std::bit_cast<uint32_t>(static_cast<float>(value)), 4, data);
}

std::vector<uint32_t> WantedRows(const v1::AttentionSpec& spec, uint32_t prompt, uint32_t all) {
  std::vector<uint32_t> rows;
  for (uint32_t row = 0; row + 1 < all; ++row) {
    bool wanted = spec.queries().empty() && spec.query_ranges().empty() && row + 1 >= prompt;
    for (const int set : spec.queries()) {
      wanted = wanted || set == v1::QUERY_SET_ALL ||
               (set == v1::QUERY_SET_ALL_PROMPT && row < prompt) ||
               (set == v1::QUERY_SET_LAST_PROMPT && row + 1 == prompt) ||
               (set == v1::QUERY_SET_GENERATED && row >= prompt);
    }
    for (const v1::Range& range : spec.query_ranges()) {
      wanted = wanted || (row >= range.begin() && row < range.end());
    }
    if (wanted) rows.push_back(row);
  }
  return rows;
}

class Tracer {
 public:
  Tracer(const v1::AttentionSpec& spec, std::string request_id)
      : spec_(spec), request_id_(std::move(request_id)), layers_(kFakeLayers), heads_(kFakeHeads) {
    std::iota(layers_.begin(), layers_.end(), 0u);
    std::iota(heads_.begin(), heads_.end(), 0u);
    if (!spec.grid().layers().empty()) {
      layers_.clear();
      for (const int32_t layer : spec.grid().layers()) {
        layers_.push_back(static_cast<uint32_t>(layer < 0 ? layer + 3 : layer));
      }
    }
    if (!spec.grid().heads().empty()) {
      heads_.assign(spec.grid().heads().begin(), spec.grid().heads().end());
    }
    if (!spec.has_pairs()) return;
    layers_.clear();
    heads_.clear();
    for (const v1::LayerHead& pair : spec.pairs().pairs()) {
      layers_.push_back(static_cast<uint32_t>(pair.layer() < 0 ? pair.layer() + 3 : pair.layer()));
      heads_.push_back(pair.head());
    }
  }

  void Rows(const std::vector<uint32_t>& rows) {
    if (rows.empty()) return;
    for (const v1::AttentionOutput& output : spec_.outputs()) {
      if (output.has_column_sum()) continue;
      if (spec_.has_pairs() || Reduces(spec_.reduce_layers())) {
        RowsOfLayers(output, rows, layers_);
      } else {
        for (const uint32_t layer : layers_) RowsOfLayers(output, rows, {layer});
      }
    }
    rows_ += rows.size();
  }

  void End(const std::vector<uint32_t>& rows, uint32_t keys) {
    for (const v1::AttentionOutput& output : spec_.outputs()) {
      if (!output.has_column_sum() || rows.empty()) continue;
      v1::AttentionChunk chunk = Head(rows, layers_);
      chunk.set_output(v1::ATTENTION_OUTPUT_KIND_COLUMN_SUM);
      chunk.set_key_count(keys);
      v1::Tensor* values = chunk.mutable_values();
      SetDims(layers_, 1, keys, values);
      ForHeads(layers_, [&](const auto& weight) {
        for (uint32_t key = 0; key < keys; ++key) {
          double sum = 0;
          for (const uint32_t row : rows) sum += weight(row, key);
          AppendFloat(sum, values->mutable_data());
        }
      });
      Send(std::move(chunk));
    }
    v1::AttentionChunk end;
    end.set_request_id(request_id_);
    end.set_sequence_number(chunks_.size());
    end.mutable_trace_end()->set_status(v1::TRACE_STATUS_OK);
    end.mutable_trace_end()->set_rows(rows_);
    end.mutable_trace_end()->set_bytes(bytes_);
    end.mutable_trace_end()->set_added_us(1500);
    chunks_.push_back(std::move(end));
  }

  std::vector<v1::AttentionChunk> Take() { return std::move(chunks_); }

 private:
  using Weight = std::function<double(uint32_t query, uint32_t key)>;

  v1::AttentionChunk Head(const std::vector<uint32_t>& rows,
                          const std::vector<uint32_t>& layers) const {
    v1::AttentionChunk chunk;
    for (const uint32_t row : rows) {
      chunk.add_rows()->set_query_position(row);
      chunk.mutable_rows()->rbegin()->set_predicts_position(row + 1);
    }
    chunk.mutable_layers()->Assign(layers.begin(), layers.end());
    chunk.mutable_heads()->Assign(heads_.begin(), heads_.end());
    chunk.mutable_provenance()->set_method(v1::ATTENTION_METHOD_RECOMPUTED);
    chunk.mutable_provenance()->set_kv_dtype("bf16");
    chunk.mutable_provenance()->set_numerics("fast");
    chunk.mutable_provenance()->set_max_row_sum_error(1.2e-7f);
    return chunk;
  }

  void SetDims(const std::vector<uint32_t>& layers, uint32_t queries, uint32_t last,
               v1::Tensor* tensor) const {
    const bool one_layer = spec_.has_pairs() || Reduces(spec_.reduce_layers());
    tensor->add_dims(one_layer ? 1 : static_cast<uint32_t>(layers.size()));
    tensor->add_dims(Reduces(spec_.reduce_heads()) ? 1 : static_cast<uint32_t>(heads_.size()));
    tensor->add_dims(queries);
    tensor->add_dims(last);
    tensor->set_dtype(v1::ELEMENT_TYPE_F32);
  }

  // Calls `use` for every place of the head axis of every place of the layer axis.
  void ForHeads(const std::vector<uint32_t>& layers,
                const std::function<void(const Weight& weight)>& use) const {
    if (spec_.has_pairs()) {
      for (size_t i = 0; i < layers.size(); ++i) {
        use([&, i](uint32_t q, uint32_t k) { return FakeWeight(layers[i], heads_[i], q, k); });
      }
      return;
    }
    std::vector<std::vector<uint32_t>> layer_groups;
    std::vector<std::vector<uint32_t>> head_groups;
    const auto group = [](bool together, const std::vector<uint32_t>& members, auto* groups) {
      if (together) groups->push_back(members);
      for (const uint32_t member : members) {
        if (!together) groups->push_back({member});
      }
    };
    group(Reduces(spec_.reduce_layers()), layers, &layer_groups);
    group(Reduces(spec_.reduce_heads()), heads_, &head_groups);
    for (const auto& layer_group : layer_groups) {
      for (const auto& head_group : head_groups) {
        use([&](uint32_t q, uint32_t k) {
          double sum = 0;
          for (const uint32_t layer : layer_group) {
            for (const uint32_t head : head_group) sum += FakeWeight(layer, head, q, k);
          }
          return sum / static_cast<double>(layer_group.size() * head_group.size());
        });
      }
    }
  }

  void RowsOfLayers(const v1::AttentionOutput& output, const std::vector<uint32_t>& rows,
                    const std::vector<uint32_t>& layers) {
    v1::AttentionChunk chunk = Head(rows, layers);
    if (output.has_dense()) {
      Dense(output.dense().dtype() == v1::ELEMENT_TYPE_F16, rows, layers, &chunk);
    } else if (output.has_top_k()) {
      TopK(output.top_k().has_k() ? output.top_k().k() : 16, rows, layers, &chunk);
    } else if (output.has_stats()) {
      Stats(rows, layers, &chunk);
    } else {
      SpanMass(rows, layers, &chunk);
    }
    Send(std::move(chunk));
  }

  void Dense(bool is_half, const std::vector<uint32_t>& rows, const std::vector<uint32_t>& layers,
             v1::AttentionChunk* chunk) const {
    chunk->set_output(v1::ATTENTION_OUTPUT_KIND_DENSE);
    const uint32_t keys = rows.back() + 1;
    chunk->set_key_count(keys);
    v1::Tensor* values = chunk->mutable_values();
    SetDims(layers, static_cast<uint32_t>(rows.size()), keys, values);
    if (is_half) values->set_dtype(v1::ELEMENT_TYPE_F16);
    ForHeads(layers, [&](const Weight& weight) {
      for (const uint32_t row : rows) {
        for (uint32_t key = 0; key < keys; ++key) {
          const double value = weight(row, key);
          is_half ? Append(HalfOf(value), 2, values->mutable_data())
                  : AppendFloat(value, values->mutable_data());
        }
      }
    });
  }

  void TopK(uint32_t k, const std::vector<uint32_t>& rows, const std::vector<uint32_t>& layers,
            v1::AttentionChunk* chunk) const {
    chunk->set_output(v1::ATTENTION_OUTPUT_KIND_TOP_K);
    v1::TopKTensors* top = chunk->mutable_top_k();
    const auto queries = static_cast<uint32_t>(rows.size());
    SetDims(layers, queries, k, top->mutable_keys());
    SetDims(layers, queries, k, top->mutable_weights());
    SetDims(layers, queries, k, top->mutable_tail_mass());
    top->mutable_keys()->set_dtype(v1::ELEMENT_TYPE_U32);
    top->mutable_tail_mass()->mutable_dims()->RemoveLast();
    ForHeads(layers, [&](const Weight& weight) {
      for (const uint32_t row : rows) {
        std::vector<uint32_t> keys(row + 1);
        std::iota(keys.begin(), keys.end(), 0u);
        std::stable_sort(keys.begin(), keys.end(),
                         [&](uint32_t a, uint32_t b) { return weight(row, a) > weight(row, b); });
        double tail = 1;
        for (uint32_t i = 0; i < k; ++i) {
          const double value = i < keys.size() ? weight(row, keys[i]) : 0.0;
          Append(i < keys.size() ? keys[i] : 0xFFFFFFFFu, 4, top->mutable_keys()->mutable_data());
          AppendFloat(value, top->mutable_weights()->mutable_data());
          tail -= value;
        }
        AppendFloat(tail, top->mutable_tail_mass()->mutable_data());
      }
    });
  }

  void Stats(const std::vector<uint32_t>& rows, const std::vector<uint32_t>& layers,
             v1::AttentionChunk* chunk) const {
    chunk->set_output(v1::ATTENTION_OUTPUT_KIND_STATS);
    v1::Tensor* values = chunk->mutable_values();
    SetDims(layers, static_cast<uint32_t>(rows.size()), 8, values);
    ForHeads(layers, [&](const Weight& weight) {
      for (const uint32_t row : rows) {
        double entropy = 0;
        double distance = 0;
        uint32_t top = 0;
        for (uint32_t key = 0; key <= row; ++key) {
          entropy -= weight(row, key) * std::log(weight(row, key));
          distance += weight(row, key) * (row - key);
          if (weight(row, key) > weight(row, top)) top = key;
        }
        for (const double value : {2.5, entropy, weight(row, top), double{1} * top,
                                   weight(row, row), weight(row, 0), distance, row + 1.0}) {
          AppendFloat(value, values->mutable_data());
        }
      }
    });
  }

  void SpanMass(const std::vector<uint32_t>& rows, const std::vector<uint32_t>& layers,
                v1::AttentionChunk* chunk) const {
    chunk->set_output(v1::ATTENTION_OUTPUT_KIND_SPAN_MASS);
    v1::Tensor* values = chunk->mutable_values();
    SetDims(layers, static_cast<uint32_t>(rows.size()), static_cast<uint32_t>(spec_.spans_size()),
            values);
    ForHeads(layers, [&](const Weight& weight) {
      for (const uint32_t row : rows) {
        for (const v1::AttentionSpan& span : spec_.spans()) {
          // A token per byte, so both kinds of range are the same.
          const v1::Range& range = span.has_tokens() ? span.tokens() : span.prompt_bytes();
          double sum = 0;
          for (uint32_t key = range.begin(); key < range.end(); ++key) sum += weight(row, key);
          AppendFloat(sum, values->mutable_data());
        }
      }
    });
  }

  void Send(v1::AttentionChunk chunk) {
    chunk.set_request_id(request_id_);
    chunk.set_sequence_number(chunks_.size());
    bytes_ += chunk.values().data().size() + chunk.top_k().keys().data().size() +
              chunk.top_k().weights().data().size() + chunk.top_k().tail_mass().data().size();
    chunks_.push_back(std::move(chunk));
  }

  const v1::AttentionSpec& spec_;
  const std::string request_id_;
  std::vector<uint32_t> layers_;
  std::vector<uint32_t> heads_;
  std::vector<v1::AttentionChunk> chunks_;
  uint64_t rows_ = 0;
  uint64_t bytes_ = 0;
};

}  // namespace

double FakeWeight(uint32_t layer, uint32_t head, uint32_t query, uint32_t key) {
  if (key > query) return 0;
  const auto raw = [&](uint32_t k) {
    const double peak = (layer * 7 + head * 5 + query * 3 + k * 11) % 13;
    return k == 0 ? 20.0 : 0.25 + peak * peak / 16;
  };
  double sum = 0;
  for (uint32_t k = 0; k <= query; ++k) sum += raw(k);
  return raw(key) / sum;
}

std::vector<v1::AttentionChunk> FakeTrace(const v1::AttentionSpec& spec,
                                          const std::string& request_id, uint32_t prompt_tokens,
                                          uint32_t all_tokens) {
  Tracer tracer(spec, request_id);
  const std::vector<uint32_t> rows = WantedRows(spec, prompt_tokens, all_tokens);
  std::vector<uint32_t> prompt;
  for (const uint32_t row : rows) {
    if (row < prompt_tokens) prompt.push_back(row);
  }
  tracer.Rows(prompt);
  for (const uint32_t row : rows) {
    if (row >= prompt_tokens) tracer.Rows({row});
  }
  tracer.End(rows, rows.empty() ? 0 : rows.back() + 1);
  return tracer.Take();
}

grpc::Status FakeInspection::GetAttention(grpc::ServerContext*,
                                          const v1::GetAttentionRequest* request,
                                          grpc::ServerWriter<v1::AttentionChunk>* writer) {
  constexpr uint32_t kPromptTokens = sizeof(kKeptPrompt) - 1;
  constexpr uint32_t kAllTokens = kPromptTokens + sizeof(kKeptAnswer) - 1;
  std::vector<v1::AttentionChunk> chunks =
      FakeTrace(request->spec(), request->request_id(), kPromptTokens, kAllTokens);
  if (request->request_id() == "cut") chunks.pop_back();
  for (const v1::AttentionChunk& chunk : chunks) writer->Write(chunk);
  return grpc::Status::OK;
}

grpc::Status FakeInspection::GetRequest(grpc::ServerContext*, const v1::GetRequestRequest* request,
                                        v1::GetRequestResponse* response) {
  if (request->request_id() == "off") {
    return grpc::Status(grpc::StatusCode::FAILED_PRECONDITION, "inspection is off");
  }
  if (request->request_id() != "r-1" && request->request_id() != "cut") {
    return grpc::Status(grpc::StatusCode::NOT_FOUND, "no such request");
  }
  response->set_request_id(request->request_id());
  for (const char c : std::string(kKeptPrompt)) {
    response->add_prompt_token_ids(static_cast<unsigned char>(c));
  }
  v1::ChoiceRecord* choice = response->add_choices();
  for (const char c : std::string(kKeptAnswer)) {
    choice->add_token_ids(static_cast<unsigned char>(c));
  }
  return grpc::Status::OK;
}

}  // namespace vitrine::client
