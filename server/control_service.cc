#include "server/control_service.h"

#include <algorithm>
#include <string>

#include "server/grpc_caller.h"
#include "server/grpc_status.h"
#include "server/validate.h"
#include "server/validate_attention.h"

namespace vitrine::server {
namespace {

constexpr char kServerVersion[] = "0.1.0";
constexpr uint32_t kSchemaRevision = 1;

}  // namespace

grpc::ServerUnaryReactor* ControlService::DescribeModel(grpc::CallbackServerContext* context,
                                                        const v1::DescribeModelRequest* message,
                                                        v1::DescribeModelResponse* response) {
  const auto caller = Authorize(*context, parts_.callers, Scope::kControl);
  if (!caller.ok()) return FinishUnary(context, caller.status());
  const ServedModel& model = parts_.model;
  if (!message->model().empty() && message->model() != model.name) {
    return FinishUnary(context, absl::NotFoundError("model: no such model is served here"));
  }
  response->set_model(model.name);
  response->set_architecture(model.architecture);
  response->set_num_layers(static_cast<uint32_t>(model.num_layers));
  response->set_num_heads(static_cast<uint32_t>(model.num_heads));
  response->set_num_kv_heads(static_cast<uint32_t>(model.num_kv_heads));
  response->set_head_dim(static_cast<uint32_t>(model.head_dim));
  response->set_d_model(static_cast<uint32_t>(model.d_model));
  response->set_vocabulary_size(static_cast<uint32_t>(model.vocabulary));
  response->set_trained_context_length(static_cast<uint32_t>(model.trained_context_length));
  for (int layer = 0; layer < model.num_layers; ++layer) {
    const int window = model.windows.empty() ? 0 : model.windows[static_cast<size_t>(layer)];
    response->add_layers()->set_window(static_cast<uint32_t>(window));
  }
  for (const ServedModel::WeightType& type : model.weight_types) {
    auto* weight_type = response->add_weight_types();
    weight_type->set_name(type.name);
    weight_type->set_tensors(static_cast<uint32_t>(type.tensors));
    weight_type->set_bytes(type.bytes);
  }
  response->set_parameters(model.parameters);
  response->set_tokenizer(std::string(model.tokenizer->kind()));
  for (const TokenId id : model.tokenizer->eos_ids()) {
    response->add_eos_token_ids(static_cast<uint32_t>(id));
  }
  if (model.tokenizer->bos_id() >= 0) {
    response->set_bos_token_id(static_cast<uint32_t>(model.tokenizer->bos_id()));
  }
  response->set_has_chat_template(model.chat_template != nullptr);
  response->set_backend(model.backend);
  response->set_device(model.device);
  response->set_numerics(model.numerics);
  response->set_kv_dtype(model.kv_dtype);
  v1::Capabilities& capabilities = *response->mutable_capabilities();
  capabilities.set_schema_revision(kSchemaRevision);
  for (std::string& field : SupportedRequestFields()) {
    capabilities.add_request_fields(std::move(field));
  }
  if (model.inspection_bytes > 0) {
    capabilities.add_request_fields("attention");
    for (std::string& output : SupportedAttentionOutputs()) {
      capabilities.add_attention_outputs(std::move(output));
    }
  }
  capabilities.set_batch_invariant(model.backend != "cuda");
  FillLimits(*response->mutable_limits());
  response->set_server_version(kServerVersion);
  return FinishUnary(context, absl::OkStatus());
}

void ControlService::FillLimits(v1::Limits& limits) const {
  const ServerOptions& options = parts_.options;
  limits.set_context_length(static_cast<uint32_t>(parts_.model.context_length));
  limits.set_max_running_sequences(static_cast<uint32_t>(options.scheduler.max_running_sequences));
  limits.set_max_step_tokens(static_cast<uint32_t>(options.scheduler.max_step_tokens));
  limits.set_prefill_chunk_tokens(static_cast<uint32_t>(options.scheduler.prefill_chunk_tokens));
  limits.set_max_queued_requests(static_cast<uint32_t>(options.queue.max_requests));
  limits.set_max_queued_tokens(static_cast<uint64_t>(options.queue.max_prompt_tokens));
  limits.set_kv_blocks(static_cast<uint32_t>(parts_.engine.load().blocks_total));
  limits.set_kv_block_tokens(kKvBlockTokens);
  limits.set_kv_cache_bytes(parts_.model.kv_bytes);
  limits.set_inspection_bytes(static_cast<uint64_t>(parts_.model.inspection_bytes));
  if (options.allow_inspection) {
    const int64_t retention_us = options.inspection_retention_us;
    limits.mutable_inspection_retention()->set_seconds(retention_us / 1'000'000);
    limits.mutable_inspection_retention()->set_nanos(
        static_cast<int32_t>(retention_us % 1'000'000) * 1000);
  }
  limits.set_max_stop_strings(static_cast<uint32_t>(options.request.max_stop_strings));
  limits.set_max_stop_string_bytes(static_cast<uint32_t>(options.request.max_stop_string_bytes));
  limits.set_max_logit_bias(static_cast<uint32_t>(options.request.max_logit_biases));
  limits.set_max_logprobs(kMaxTopLogprobs);
  limits.set_max_choices(
      static_cast<uint32_t>(std::min(kMaxChoices, options.request.max_running_sequences)));
  limits.set_max_request_bytes(static_cast<uint32_t>(options.request.max_request_bytes));
}

grpc::ServerUnaryReactor* ControlService::GetLoad(grpc::CallbackServerContext* context,
                                                  const v1::GetLoadRequest* /*message*/,
                                                  v1::GetLoadResponse* response) {
  const auto caller = Authorize(*context, parts_.callers, Scope::kControl);
  if (!caller.ok()) return FinishUnary(context, caller.status());
  const EngineLoad load = parts_.engine.load();
  const RequestQueue::Load queue = parts_.queue.load();
  const int64_t now_us = parts_.clock.NowMicros();
  response->set_queued_requests(static_cast<uint32_t>(queue.requests));
  response->set_queued_tokens(static_cast<uint64_t>(queue.prompt_tokens));
  response->set_running_sequences(static_cast<uint32_t>(load.running_sequences));
  response->set_kv_blocks_free(static_cast<uint32_t>(load.blocks_free));
  response->set_kv_blocks_owned(static_cast<uint32_t>(load.blocks_owned));
  response->set_kv_blocks_cached(static_cast<uint32_t>(load.blocks_cached));
  response->set_kv_blocks_total(static_cast<uint32_t>(load.blocks_total));
  response->set_tokens_per_second(static_cast<float>(load.generated.PerSecond(now_us)));
  response->set_prefill_tokens_per_second(static_cast<float>(load.prefilled.PerSecond(now_us)));
  response->set_steps(load.steps);
  if (load.oldest_arrival_us != kNever) {
    const int64_t age_us = std::max<int64_t>(0, now_us - load.oldest_arrival_us);
    response->mutable_oldest_wait()->set_seconds(age_us / 1'000'000);
    response->mutable_oldest_wait()->set_nanos(static_cast<int32_t>(age_us % 1'000'000) * 1000);
  }
  response->set_draining(is_draining_);
  const RequestCounters::Counts counts = parts_.counters.Read();
  response->set_accepted(counts.accepted);
  response->set_finished(counts.finished);
  response->set_cancelled(counts.cancelled);
  response->set_expired(counts.expired);
  response->set_failed(counts.failed);
  response->set_live(counts.live());
  response->set_refused(counts.refused);
  return FinishUnary(context, absl::OkStatus());
}

}  // namespace vitrine::server
