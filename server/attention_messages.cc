#include "server/attention_messages.h"

#include <utility>

namespace vitrine::server {
namespace {

void FillTensor(TraceTensor& tensor, v1::Tensor& message) {
  message.mutable_dims()->Add(tensor.dims.begin(), tensor.dims.end());
  message.set_dtype(static_cast<v1::ElementType>(tensor.element));
  message.set_data(std::move(tensor.data));
}

void FillProvenance(const TraceChunk& chunk, const TraceOrigin& origin,
                    v1::AttentionProvenance& message) {
  message.set_method(origin.is_replay ? v1::ATTENTION_METHOD_REPLAYED
                                      : v1::ATTENTION_METHOD_RECOMPUTED);
  message.set_max_row_sum_error(chunk.max_row_sum_error);
  message.set_max_lse_delta(chunk.max_lse_delta);
  message.set_kv_dtype(origin.kv_dtype);
  message.set_numerics(origin.numerics);
}

void FillEnd(const TraceEnd& end, v1::TraceEnd& message) {
  message.set_status(end.is_complete ? v1::TRACE_STATUS_OK : v1::TRACE_STATUS_PARTIAL);
  message.set_rows(end.rows);
  message.set_bytes(end.bytes);
  message.set_added_us(static_cast<uint64_t>(end.added_us));
}

}  // namespace

v1::AttentionChunk MakeAttentionChunk(TraceChunk& chunk, std::string_view request_id,
                                      const TraceOrigin& origin) {
  v1::AttentionChunk message;
  message.set_request_id(std::string(request_id));
  message.set_sequence_number(chunk.sequence_number);
  FillProvenance(chunk, origin, *message.mutable_provenance());
  if (chunk.end.has_value()) {
    FillEnd(*chunk.end, *message.mutable_trace_end());
    return message;
  }
  for (const TraceRow& row : chunk.rows) {
    v1::AttentionRow& sent = *message.add_rows();
    sent.set_query_position(static_cast<uint32_t>(row.position));
    sent.set_predicts_position(static_cast<uint32_t>(row.position) + 1);
    sent.set_choice(static_cast<uint32_t>(row.choice));
  }
  message.set_key_start(static_cast<uint32_t>(chunk.key_start));
  message.set_key_count(static_cast<uint32_t>(chunk.key_count));
  message.mutable_layers()->Add(chunk.layers.begin(), chunk.layers.end());
  message.mutable_heads()->Add(chunk.heads.begin(), chunk.heads.end());
  message.set_output(static_cast<v1::AttentionOutputKind>(chunk.kind));
  if (chunk.kind == TraceOutputKind::kTopK) {
    v1::TopKTensors& top_k = *message.mutable_top_k();
    FillTensor(chunk.top_keys, *top_k.mutable_keys());
    FillTensor(chunk.top_values, *top_k.mutable_weights());
    if (!chunk.tail_mass.dims.empty()) FillTensor(chunk.tail_mass, *top_k.mutable_tail_mass());
  } else {
    FillTensor(chunk.values, *message.mutable_values());
  }
  return message;
}

}  // namespace vitrine::server
