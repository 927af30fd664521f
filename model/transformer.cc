// The forward pass. Reads like the paper; branches on data, never on a family's name.
#include "model/transformer.h"

#include <cmath>
#include <vector>

#include "model/status.h"

namespace vitrine {
namespace {

// Slopes of Press et al. (2021), as their code has them: 2^(-b i / n) for n heads, n a power of
// two, where b is 8; other head counts take every second slope of twice that power for the heads
// that are left.
std::vector<float> AlibiSlopes(const ModelConfig& config) {
  int power = 1;
  while (2 * power <= config.num_heads) power *= 2;
  const auto slope = [&](double share) {
    return static_cast<float>(std::exp2(-config.alibi_max_bias * share)) * config.alibi_scale;
  };
  std::vector<float> slopes;
  for (int i = 1; i <= power; ++i) slopes.push_back(slope(static_cast<double>(i) / power));
  for (int i = 1; static_cast<int>(slopes.size()) < config.num_heads; i += 2) {
    slopes.push_back(slope(0.5 * i / power));
  }
  return slopes;
}

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
  VITRINE_RETURN_IF_ERROR(transformer->FillRopeTable(config.rope_frequencies,
                                                     config.rope_attention_factor,
                                                     limits.max_positions, transformer->rope_));
  VITRINE_RETURN_IF_ERROR(transformer->FillRopeTable(
      config.local_rope_frequencies, 1.0f, limits.max_positions, transformer->local_rope_));
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

  if (config_.norm_placement == NormPlacement::kOutput ||
      config_.norm_placement == NormPlacement::kInputAndOutput || config_.experts.count > 0) {
    VITRINE_ASSIGN_OR_RETURN(block_output_,
                             backend_.Allocate(FloatBytes(limits.max_rows, config_.d_model)));
  }
  if (config_.qk_norm == QkNorm::kAllHeads) {
    const int qkv_columns = (config_.num_heads + 2 * config_.num_kv_heads) * config_.head_dim;
    VITRINE_ASSIGN_OR_RETURN(qkv_, backend_.Allocate(FloatBytes(limits.max_rows, qkv_columns)));
  }
  VITRINE_RETURN_IF_ERROR(CopyAlibiSlopes());
  if (limits.max_traced_rows > 0) {
    VITRINE_ASSIGN_OR_RETURN(
        capture_, AttentionCapture::Create(backend_, config_,
                                           {.max_rows = limits.max_rows,
                                            .max_traced_rows = limits.max_traced_rows,
                                            // A replay may have two in one step.
                                            .max_certified_rows = 2 * limits.max_samples}));
    VITRINE_ASSIGN_OR_RETURN(reader_,
                             AttentionReader::Create(backend_, config_, limits.max_positions));
  }

  RowBufferSpec normalized{.max_rows = limits.max_rows, .columns = config_.d_model};
  RowBufferSpec attended{.max_rows = limits.max_rows, .columns = attention_columns};
  RowBufferSpec hidden{.max_rows = limits.max_rows, .columns = config_.d_ff};
  for (const LayerWeights& layer : weights_.layers) {
    normalized.consumers.push_back(layer.qkv.get());
    attended.consumers.push_back(layer.attention_out.get());
    if (layer.gate_up != nullptr) normalized.consumers.push_back(layer.gate_up.get());
    if (layer.router != nullptr) normalized.consumers.push_back(layer.router.get());
    for (const ExpertWeights& expert : layer.experts) {
      normalized.consumers.push_back(expert.gate_up.get());
    }
    if (layer.router == nullptr) hidden.consumers.push_back(layer.down.get());
  }
  VITRINE_ASSIGN_OR_RETURN(normalized_, backend_.CreateRowBuffer(normalized));
  VITRINE_ASSIGN_OR_RETURN(attended_, backend_.CreateRowBuffer(attended));
  if (!hidden.consumers.empty()) {
    VITRINE_ASSIGN_OR_RETURN(hidden_, backend_.CreateRowBuffer(hidden));
  }
  if (config_.experts.count > 0) VITRINE_RETURN_IF_ERROR(AllocateExperts(limits.max_rows));
  return AllocateHead(limits.max_samples);
}

absl::Status Transformer::AllocateHead(int max_samples) {
  const PackedMatrix* projection = weights_.output_projection.get();
  const PackedMatrix* head = &weights_.head();
  RowBufferSpec input{.max_rows = max_samples, .columns = config_.d_model};
  input.consumers = {projection == nullptr ? head : projection};
  VITRINE_ASSIGN_OR_RETURN(final_normalized_, backend_.CreateRowBuffer(input));
  if (projection == nullptr) return absl::OkStatus();
  VITRINE_ASSIGN_OR_RETURN(projected_,
                           backend_.Allocate(FloatBytes(max_samples, config_.d_embedding)));
  input.columns = config_.d_embedding;
  input.consumers = {head};
  VITRINE_ASSIGN_OR_RETURN(head_input_, backend_.CreateRowBuffer(input));
  return absl::OkStatus();
}

absl::Status Transformer::AllocateExperts(int max_rows) {
  const ExpertConfig& experts = config_.experts;
  VITRINE_CHECK(!backend_.records());
  routing_.emplace(experts, max_rows);
  host_logits_.resize(static_cast<size_t>(max_rows) * static_cast<size_t>(routing_->columns()));
  VITRINE_ASSIGN_OR_RETURN(router_logits_,
                           backend_.Allocate(FloatBytes(max_rows, routing_->columns())));
  VITRINE_ASSIGN_OR_RETURN(stream_copy_, backend_.Allocate(FloatBytes(max_rows, config_.d_model)));
  VITRINE_ASSIGN_OR_RETURN(expert_input_, backend_.Allocate(FloatBytes(max_rows, config_.d_model)));
  RowBufferSpec hidden{.max_rows = max_rows, .columns = experts.d_ff};
  RowBufferSpec shared{.max_rows = max_rows, .columns = experts.d_shared};
  for (const LayerWeights& layer : weights_.layers) {
    for (const ExpertWeights& expert : layer.experts) {
      hidden.consumers.push_back(expert.down.get());
    }
    if (layer.router != nullptr && layer.down != nullptr) {
      shared.consumers.push_back(layer.down.get());
    }
  }
  VITRINE_ASSIGN_OR_RETURN(expert_hidden_, backend_.CreateRowBuffer(hidden));
  if (shared.consumers.empty()) return absl::OkStatus();
  VITRINE_ASSIGN_OR_RETURN(shared_hidden_, backend_.CreateRowBuffer(shared));
  return absl::OkStatus();
}

absl::Status Transformer::FillRopeTable(const std::vector<double>& frequencies, float factor,
                                        int positions, RopeTable& table) {
  const size_t pairs = frequencies.size();
  std::vector<float> cosines(static_cast<size_t>(positions) * pairs);
  std::vector<float> sines(cosines.size());
  for (size_t i = 0; i < cosines.size(); ++i) {
    // In double: a float product of position and frequency loses the angle at long contexts.
    const size_t position = i / pairs;
    const double angle = static_cast<double>(position) * frequencies[i % pairs];
    cosines[i] = static_cast<float>(std::cos(angle)) * factor;
    sines[i] = static_cast<float>(std::sin(angle)) * factor;
  }
  VITRINE_ASSIGN_OR_RETURN(table.cosines, backend_.Allocate(cosines.size() * sizeof(float)));
  VITRINE_ASSIGN_OR_RETURN(table.sines, backend_.Allocate(sines.size() * sizeof(float)));
  backend_.CopyToDevice(std::span<const float>(cosines), table.cosines.As<float>());
  backend_.CopyToDevice(std::span<const float>(sines), table.sines.As<float>());
  return absl::OkStatus();
}

absl::Status Transformer::CopyAlibiSlopes() {
  if (config_.position_bias != PositionBias::kAlibi) return absl::OkStatus();
  const std::vector<float> slopes = AlibiSlopes(config_);
  VITRINE_ASSIGN_OR_RETURN(alibi_slopes_, backend_.Allocate(slopes.size() * sizeof(float)));
  backend_.CopyToDevice(std::span<const float>(slopes), alibi_slopes_.As<float>());
  return absl::OkStatus();
}

void Transformer::Forward(const Batch& batch, DeviceSpan<const TokenId> drawn) {
  VITRINE_CHECK(capture_ != nullptr || (batch.traces.empty() && batch.certified_rows.empty()));
  const int rows = batch.rows();
  paged_ = batch.paged();

  backend_.Embed({.table = weights_.embedding.get(),
                  .token_ids = batch.token_ids,
                  .drawn = drawn,
                  .scale = config_.embedding_scale,
                  .position_table = weights_.position_table.As<float>(),
                  .batch = &paged_,
                  .output = residual_.As<float>()});
  if (capture_ != nullptr) {
    reader_->Begin(batch, *kv_, alibi_slopes_.As<float>());
    capture_->Begin(batch, reader_->read_by_layer());
  }
  for (int layer = 0; layer < config_.num_layers; ++layer) RunLayer(layer, rows);
  if (capture_ != nullptr) capture_->End();
}

// Only rows whose next token matters pay for the vocabulary.
DeviceSpan<const float> Transformer::Logits(std::span<const int32_t> rows) {
  const int samples = static_cast<int>(rows.size());
  backend_.GatherRows({.input = residual_.As<float>(),
                       .row_ids = rows,
                       .columns = config_.d_model,
                       .output = gathered_.As<float>()});
  Normalize(gathered_, weights_.final_norm, weights_.final_norm_bias, samples, *final_normalized_);
  const RowBuffer* head_input = final_normalized_.get();
  if (head_input_ != nullptr) {
    backend_.MatMul({.input = final_normalized_.get(),
                     .weight = weights_.output_projection.get(),
                     .output = projected_.As<float>(),
                     .rows = samples});
    backend_.PackRows(
        {.input = projected_.As<float>(), .rows = samples, .output = head_input_.get()});
    head_input = head_input_.get();
  }
  backend_.MatMul({.input = head_input,
                   .weight = &weights_.head(),
                   .bias = weights_.output_bias.As<float>(),
                   .output_scale = config_.logit_scale,
                   .softcap = config_.logit_softcap,
                   .output = logits_.As<float>(),
                   .rows = samples});
  return logits(samples);
}

DeviceSpan<const float> Transformer::logits(int samples) const {
  return logits_.As<float>().subspan(
      0, static_cast<size_t>(samples) * static_cast<size_t>(config_.vocabulary));
}

void Transformer::RunLayer(int index, int rows) {
  const LayerWeights& layer = weights_.layers[static_cast<size_t>(index)];
  Attend(index, rows);
  if (layer.router != nullptr) {
    AddAttention(layer, rows);
    return RunExperts(layer, rows);
  }
  if (config_.is_parallel) {
    // The feed-forward block reads what attention read, so it starts before attention's output
    // joins the residual stream.
    ExpandMlp(layer, rows);
    AddAttention(layer, rows);
  } else {
    AddAttention(layer, rows);
    ExpandMlp(layer, rows);
  }
  AddToResidual(*hidden_, *layer.down, layer.down_bias, layer.mlp_post_norm, rows);
}

void Transformer::Attend(int index, int rows) {
  const LayerWeights& layer = weights_.layers[static_cast<size_t>(index)];
  const LayerConfig layer_config = config_.layer(index);
  const RopeTable& rope = layer_config.local_rope ? local_rope_ : rope_;

  NormalizeStream(layer.attention_norm, layer.attention_norm_bias, rows);
  const bool has_layer_norm =
      config_.qk_norm == QkNorm::kLayer || config_.qk_norm == QkNorm::kOwnLayer;
  const RopeKvTarget target = {
      .cosines = rope.cosines.As<float>(),
      .sines = rope.sines.As<float>(),
      .rotary_dim = layer_config.rotates ? config_.rotary_dim : 0,
      .pairing = config_.rope_pairing,
      .batch = &paged_,
      .num_heads = config_.num_heads,
      .kv = kv_.get(),
      .layer = index,
      .q = q_.As<float>(),
      .clip = config_.qkv_clip,
      .norm_kind = has_layer_norm ? HeadNormKind::kLayer : HeadNormKind::kRms,
      .q_norm = layer.q_norm.As<float>(),
      .k_norm = layer.k_norm.As<float>(),
      .q_norm_bias = layer.q_norm_bias.As<float>(),
      .k_norm_bias = layer.k_norm_bias.As<float>(),
      .norm_epsilon = config_.norm_epsilon};
  if (config_.qk_norm == QkNorm::kAllHeads) {
    backend_.MatMul({.input = normalized_.get(),
                     .weight = layer.qkv.get(),
                     .bias = layer.qkv_bias.As<float>(),
                     .output = qkv_.As<float>(),
                     .rows = rows});
    backend_.RopeWriteKv({.qkv = qkv_.As<float>(), .target = target});
  } else {
    backend_.MatMulRopeWriteKv({.input = normalized_.get(),
                                .weight = layer.qkv.get(),
                                .bias = layer.qkv_bias.As<float>(),
                                .target = target});
  }
  backend_.PagedAttention(
      {.q = q_.As<float>(),
       .batch = &paged_,
       .kv = kv_.get(),
       .layer = index,
       .num_heads = config_.num_heads,
       .scale = config_.attention_scale,
       .softcap = config_.attention_softcap,
       .window = layer_config.window,
       .alibi_slopes = alibi_slopes_.As<float>(),
       .output = attended_.get(),
       .log_sum_exp = capture_ == nullptr ? DeviceSpan<float>() : capture_->LogSumExp(index)});
  if (capture_ == nullptr) return;
  capture_->KeepLayer(index, q_.As<float>());
  reader_->ReadLayer(index, paged_, q_.As<float>(), capture_->LogSumExp(index));
}

void Transformer::ReadAttention(const Batch& batch, std::vector<AttentionPiece>& pieces) {
  if (batch.traces.empty()) return;
  reader_->Read(batch, *capture_, pieces);
}

void Transformer::AddAttention(const LayerWeights& layer, int rows) {
  AddToResidual(*attended_, *layer.attention_out, layer.attention_out_bias,
                layer.attention_post_norm, rows);
}

void Transformer::ExpandMlp(const LayerWeights& layer, int rows) {
  const bool shares_attention_norm = config_.is_parallel && layer.mlp_norm.bytes() == 0;
  if (!shares_attention_norm) {
    NormalizeStream(layer.mlp_norm, layer.mlp_norm_bias, rows);
  }
  backend_.ActivatedMatMul({.input = normalized_.get(),
                            .weight = layer.gate_up.get(),
                            .bias = layer.gate_up_bias.As<float>(),
                            .activation = config_.activation,
                            .output = hidden_.get(),
                            .rows = rows});
}

void Transformer::RunExperts(const LayerWeights& layer, int rows) {
  NormalizeStream(layer.mlp_norm, layer.mlp_norm_bias, rows);
  backend_.MatMul({.input = normalized_.get(),
                   .weight = layer.router.get(),
                   .output = router_logits_.As<float>(),
                   .rows = rows});
  if (layer.gate_up != nullptr) {
    backend_.ActivatedMatMul({.input = normalized_.get(),
                              .weight = layer.gate_up.get(),
                              .activation = config_.activation,
                              .output = shared_hidden_.get(),
                              .rows = rows});
    backend_.MatMul({.input = shared_hidden_.get(),
                     .weight = layer.down.get(),
                     .output = block_output_.As<float>(),
                     .rows = rows});
  }
  const std::span<float> logits =
      std::span(host_logits_)
          .first(static_cast<size_t>(rows) * static_cast<size_t>(routing_->columns()));
  backend_.CopyToHost(router_logits_.As<const float>().subspan(0, logits.size()), logits);
  // All that was enqueued is done, so the lists of the layer before are free.
  routing_->Choose(logits, rows);
  const ExpertRouting::Rows all = routing_->OfShared();
  backend_.GatherRows({.input = residual_.As<float>(),
                       .row_ids = all.ids,
                       .columns = config_.d_model,
                       .output = stream_copy_.As<float>()});
  if (layer.gate_up != nullptr) {
    backend_.ScatterAdd({.input = block_output_.As<float>(),
                         .row_ids = all.ids,
                         .scales = all.scales,
                         .columns = config_.d_model,
                         .output = residual_.As<float>()});
  }
  for (size_t e = 0; e < layer.experts.size(); ++e) {
    const ExpertRouting::Rows chosen = routing_->OfExpert(static_cast<int>(e));
    if (chosen.size() > 0) RunExpert(layer, layer.experts[e], chosen);
  }
}

void Transformer::RunExpert(const LayerWeights& layer, const ExpertWeights& expert,
                            const ExpertRouting::Rows& rows) {
  backend_.GatherRows({.input = stream_copy_.As<float>(),
                       .row_ids = rows.ids,
                       .columns = config_.d_model,
                       .output = expert_input_.As<float>()});
  Normalize(expert_input_, layer.mlp_norm, layer.mlp_norm_bias, rows.size(), *normalized_);
  backend_.ActivatedMatMul({.input = normalized_.get(),
                            .weight = expert.gate_up.get(),
                            .activation = config_.activation,
                            .output = expert_hidden_.get(),
                            .rows = rows.size()});
  backend_.MatMul({.input = expert_hidden_.get(),
                   .weight = expert.down.get(),
                   .output = block_output_.As<float>(),
                   .rows = rows.size()});
  backend_.ScatterAdd({.input = block_output_.As<float>(),
                       .row_ids = rows.ids,
                       .scales = rows.scales,
                       .columns = config_.d_model,
                       .output = residual_.As<float>()});
}

void Transformer::NormalizeStream(const Buffer& weight, const Buffer& bias, int rows) {
  const bool in_place = config_.norm_placement == NormPlacement::kStream;
  Normalize(residual_, weight, bias, rows, *normalized_,
            in_place ? residual_.As<float>() : DeviceSpan<float>());
}

void Transformer::Normalize(const Buffer& input, const Buffer& weight, const Buffer& bias, int rows,
                            RowBuffer& output, DeviceSpan<float> normalized) {
  if (weight.bytes() == 0) {
    backend_.PackRows({.input = input.As<float>(), .rows = rows, .output = &output});
  } else if (config_.norm_kind == NormKind::kRms) {
    backend_.RmsNorm({.input = input.As<float>(),
                      .weight = weight.As<float>(),
                      .epsilon = config_.norm_epsilon,
                      .rows = rows,
                      .output = &output});
  } else {
    backend_.LayerNorm({.input = input.As<float>(),
                        .weight = weight.As<float>(),
                        .bias = bias.As<float>(),
                        .epsilon = config_.norm_epsilon,
                        .rows = rows,
                        .output = &output,
                        .normalized = normalized});
  }
}

void Transformer::AddToResidual(const RowBuffer& input, const PackedMatrix& weight,
                                const Buffer& bias, const Buffer& post_norm, int rows) {
  const bool is_normalized = post_norm.bytes() > 0;
  backend_.MatMul({.input = &input,
                   .weight = &weight,
                   .bias = bias.As<float>(),
                   .output_scale = config_.residual_scale,
                   .add_to_output = !is_normalized,
                   .output = (is_normalized ? block_output_ : residual_).As<float>(),
                   .rows = rows});
  if (!is_normalized) return;
  backend_.RmsNormAdd({.input = block_output_.As<float>(),
                       .weight = post_norm.As<float>(),
                       .epsilon = config_.norm_epsilon,
                       .rows = rows,
                       .columns = config_.d_model,
                       .output = residual_.As<float>()});
}

}  // namespace vitrine
