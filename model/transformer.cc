// The forward pass. Reads like the paper; branches on data, never on a family's name.
#include "model/transformer.h"

#include <cmath>
#include <vector>

#include "model/status.h"

namespace vitrine {
namespace {

size_t FloatBytes(int64_t rows, int64_t columns) {
  return static_cast<size_t>(rows) * static_cast<size_t>(columns) * sizeof(float);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Transformer>> Transformer::Create(Backend& backend,
                                                                 const ModelConfig& config,
                                                                 const Weights& weights,
                                                                 const TransformerLimits& limits) {
  std::unique_ptr<Transformer> transformer(new Transformer(backend, config, weights));
  VITRINE_RETURN_IF_ERROR(transformer->Allocate(limits));
  VITRINE_RETURN_IF_ERROR(transformer->FillRopeTables(limits.max_positions));
  return transformer;
}

absl::Status Transformer::Allocate(const TransformerLimits& limits) {
  const int attention_columns = config_.num_heads * config_.head_dim;
  VITRINE_ASSIGN_OR_RETURN(kv_, backend_.CreateKvStorage({.num_layers = config_.num_layers,
                                                          .num_kv_heads = config_.num_kv_heads,
                                                          .head_dim = config_.head_dim,
                                                          .num_blocks = limits.num_blocks,
                                                          .dtype = limits.kv_dtype}));
  VITRINE_ASSIGN_OR_RETURN(residual_,
                           backend_.Allocate(FloatBytes(limits.max_rows, config_.d_model)));
  VITRINE_ASSIGN_OR_RETURN(q_, backend_.Allocate(FloatBytes(limits.max_rows, attention_columns)));
  VITRINE_ASSIGN_OR_RETURN(gathered_,
                           backend_.Allocate(FloatBytes(limits.max_samples, config_.d_model)));
  VITRINE_ASSIGN_OR_RETURN(logits_,
                           backend_.Allocate(FloatBytes(limits.max_samples, config_.vocabulary)));

  RowBufferSpec normalized{.max_rows = limits.max_rows, .columns = config_.d_model};
  RowBufferSpec attended{.max_rows = limits.max_rows, .columns = attention_columns};
  RowBufferSpec hidden{.max_rows = limits.max_rows, .columns = config_.d_ff};
  for (const LayerWeights& layer : weights_.layers) {
    normalized.consumers.push_back(layer.qkv.get());
    normalized.consumers.push_back(layer.gate_up.get());
    attended.consumers.push_back(layer.attention_out.get());
    hidden.consumers.push_back(layer.down.get());
  }
  VITRINE_ASSIGN_OR_RETURN(normalized_, backend_.CreateRowBuffer(normalized));
  VITRINE_ASSIGN_OR_RETURN(attended_, backend_.CreateRowBuffer(attended));
  VITRINE_ASSIGN_OR_RETURN(hidden_, backend_.CreateRowBuffer(hidden));
  VITRINE_ASSIGN_OR_RETURN(final_normalized_,
                           backend_.CreateRowBuffer({.max_rows = limits.max_samples,
                                                     .columns = config_.d_model,
                                                     .consumers = {&weights_.head()}}));
  return absl::OkStatus();
}

absl::Status Transformer::FillRopeTables(int positions) {
  const size_t pairs = config_.rope_frequencies.size();
  std::vector<float> cosines(static_cast<size_t>(positions) * pairs);
  std::vector<float> sines(cosines.size());
  for (size_t i = 0; i < cosines.size(); ++i) {
    // In double: a float product of position and frequency loses the angle at long contexts.
    const double angle = static_cast<double>(i / pairs) * config_.rope_frequencies[i % pairs];
    cosines[i] = static_cast<float>(std::cos(angle)) * config_.rope_attention_factor;
    sines[i] = static_cast<float>(std::sin(angle)) * config_.rope_attention_factor;
  }
  VITRINE_ASSIGN_OR_RETURN(cosines_, backend_.Allocate(cosines.size() * sizeof(float)));
  VITRINE_ASSIGN_OR_RETURN(sines_, backend_.Allocate(sines.size() * sizeof(float)));
  backend_.CopyToDevice(std::span<const float>(cosines), cosines_.As<float>());
  backend_.CopyToDevice(std::span<const float>(sines), sines_.As<float>());
  return absl::OkStatus();
}

DeviceSpan<const float> Transformer::Forward(const Batch& batch) {
  const int rows = batch.rows();
  const int samples = static_cast<int>(batch.sampled_rows.size());
  paged_ = batch.paged();

  backend_.Embed({.table = weights_.embedding.get(),
                  .token_ids = batch.token_ids,
                  .output = residual_.As<float>()});
  for (int layer = 0; layer < config_.num_layers; ++layer) RunLayer(layer, rows);
  if (samples == 0) return {};

  // Only rows whose token is drawn pay for the vocabulary.
  backend_.GatherRows({.input = residual_.As<float>(),
                       .row_ids = batch.sampled_rows,
                       .columns = config_.d_model,
                       .output = gathered_.As<float>()});
  backend_.RmsNorm({.input = gathered_.As<float>(),
                    .weight = weights_.final_norm.As<float>(),
                    .epsilon = config_.norm_epsilon,
                    .rows = samples,
                    .output = final_normalized_.get()});
  backend_.MatMul({.input = final_normalized_.get(),
                   .weight = &weights_.head(),
                   .output = logits_.As<float>(),
                   .rows = samples});
  return logits_.As<float>().subspan(
      0, static_cast<size_t>(samples) * static_cast<size_t>(config_.vocabulary));
}

void Transformer::RunLayer(int index, int rows) {
  const LayerWeights& layer = weights_.layers[static_cast<size_t>(index)];

  backend_.RmsNorm({.input = residual_.As<float>(),
                    .weight = layer.attention_norm.As<float>(),
                    .epsilon = config_.norm_epsilon,
                    .rows = rows,
                    .output = normalized_.get()});
  backend_.MatMulRopeWriteKv({.input = normalized_.get(),
                              .weight = layer.qkv.get(),
                              .target = {.cosines = cosines_.As<float>(),
                                         .sines = sines_.As<float>(),
                                         .rotary_dim = config_.rotary_dim,
                                         .pairing = config_.rope_pairing,
                                         .batch = &paged_,
                                         .num_heads = config_.num_heads,
                                         .kv = kv_.get(),
                                         .layer = index,
                                         .q = q_.As<float>()}});
  backend_.PagedAttention({.q = q_.As<float>(),
                           .batch = &paged_,
                           .kv = kv_.get(),
                           .layer = index,
                           .num_heads = config_.num_heads,
                           .scale = config_.attention_scale,
                           .output = attended_.get()});
  backend_.MatMul({.input = attended_.get(),
                   .weight = layer.attention_out.get(),
                   .add_to_output = true,
                   .output = residual_.As<float>(),
                   .rows = rows});

  backend_.RmsNorm({.input = residual_.As<float>(),
                    .weight = layer.mlp_norm.As<float>(),
                    .epsilon = config_.norm_epsilon,
                    .rows = rows,
                    .output = normalized_.get()});
  backend_.ActivatedMatMul({.input = normalized_.get(),
                            .weight = layer.gate_up.get(),
                            .activation = config_.activation,
                            .output = hidden_.get(),
                            .rows = rows});
  backend_.MatMul({.input = hidden_.get(),
                   .weight = layer.down.get(),
                   .add_to_output = true,
                   .output = residual_.As<float>(),
                   .rows = rows});
}

}  // namespace vitrine
