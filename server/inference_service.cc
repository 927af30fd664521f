#include "server/inference_service.h"

#include <utility>

#include "model/status.h"
#include "server/answer_messages.h"
#include "server/chat_messages.h"
#include "server/field_error.h"
#include "server/grpc_caller.h"
#include "server/grpc_deadline.h"
#include "server/grpc_status.h"
#include "server/unary_reactor.h"
#include "server/validate.h"

namespace vitrine::server {

absl::StatusOr<GenerationRequest> InferenceService::Prepare(
    const grpc::CallbackServerContext& context, const v1::GenerateRequest& message) {
  VITRINE_ASSIGN_OR_RETURN(std::string caller, Authorize(context, parts_.callers, Scope::kData));
  if (message.has_attention()) {
    VITRINE_RETURN_IF_ERROR(Authorize(context, parts_.callers, Scope::kInspection).status());
  }
  const int64_t arrival_us = parts_.clock.NowMicros();
  const int64_t left_us = DeadlineMicros(context);
  if (left_us <= 0) return absl::DeadlineExceededError("the deadline had passed on arrival");
  absl::StatusOr<GenerationRequest> request =
      ValidateGenerate(message, parts_.model, parts_.request_limits);
  if (!request.ok()) {
    ++parts_.counters.refused;
    return request;
  }
  request->caller = std::move(caller);
  request->arrival_us = arrival_us;
  request->deadline_us =
      arrival_us + (left_us == kNever ? parts_.request_limits.max_request_us : left_us);
  if (request->time_limit_us != kNever) request->time_limit_us += arrival_us;
  return request;
}

absl::Status InferenceService::Submit(const std::shared_ptr<ActiveRequest>& request) {
  if (parts_.archive != nullptr) {
    request->record = parts_.archive->Open(request->id, request->request);
  }
  const absl::Status status = parts_.queue.Push(request, parts_.clock.NowMicros());
  if (!status.ok() && request->record != nullptr) parts_.archive->Discard(*request->record);
  return status;
}

grpc::ServerWriteReactor<v1::GenerateEvent>* InferenceService::Generate(
    grpc::CallbackServerContext* context, const v1::GenerateRequest* message) {
  const std::shared_ptr<GenerateStream> stream =
      GenerateStream::Create(context, streams_, parts_.clock, parts_.transport_limits);
  absl::StatusOr<GenerationRequest> request = Prepare(*context, *message);
  if (!request.ok()) {
    stream->Refuse(ToGrpcStatus(request.status()));
    return stream.get();
  }
  const auto active = std::make_shared<ActiveRequest>(NewRequestId(), *std::move(request), stream);
  stream->Attach(active, message->output().return_prompt_token_ids());
  if (const absl::Status status = Submit(active); !status.ok()) {
    // Nobody will end it.
    active->sink.reset();
    stream->Refuse(ToGrpcStatus(status));
  } else {
    stream->Open();
  }
  return stream.get();
}

grpc::ServerUnaryReactor* InferenceService::GenerateUnary(grpc::CallbackServerContext* context,
                                                          const v1::GenerateRequest* message,
                                                          v1::GenerateResponse* response) {
  absl::StatusOr<GenerationRequest> request = Prepare(*context, *message);
  if (!request.ok()) return FinishUnary(context, request.status());
  if (message->has_attention()) {
    ++parts_.counters.refused;
    return FinishUnary(context, FieldError("attention", "goes with Generate only"));
  }
  const std::shared_ptr<UnaryReactor> reactor =
      UnaryReactor::Create(*context, response, parts_.transport_limits);
  const auto active = std::make_shared<ActiveRequest>(NewRequestId(), *std::move(request), reactor);
  reactor->Attach(active, message->output().return_prompt_token_ids());
  if (const absl::Status status = Submit(active); !status.ok()) {
    active->sink.reset();
    reactor->Refuse(ToGrpcStatus(status));
  }
  return reactor.get();
}

grpc::ServerUnaryReactor* InferenceService::Tokenize(grpc::CallbackServerContext* context,
                                                     const v1::TokenizeRequest* message,
                                                     v1::TokenizeResponse* response) {
  const auto caller = Authorize(*context, parts_.callers, Scope::kData);
  if (!caller.ok()) return FinishUnary(context, caller.status());
  size_t text_bytes = 0;
  const absl::StatusOr<Encoding> encoding = ValidateTokenize(*message, parts_.model, text_bytes);
  if (!encoding.ok()) return FinishUnary(context, encoding.status());
  response->mutable_token_ids()->Add(encoding->ids.begin(), encoding->ids.end());
  response->mutable_byte_offsets()->Add(encoding->byte_offsets.begin(),
                                        encoding->byte_offsets.end());
  response->add_byte_offsets(static_cast<uint32_t>(text_bytes));
  response->set_token_count(static_cast<uint32_t>(encoding->ids.size()));
  return FinishUnary(context, absl::OkStatus());
}

grpc::ServerUnaryReactor* InferenceService::Detokenize(grpc::CallbackServerContext* context,
                                                       const v1::DetokenizeRequest* message,
                                                       v1::DetokenizeResponse* response) {
  const auto caller = Authorize(*context, parts_.callers, Scope::kData);
  if (!caller.ok()) return FinishUnary(context, caller.status());
  absl::StatusOr<std::string> bytes = ValidateDetokenize(*message, parts_.model);
  if (!bytes.ok()) return FinishUnary(context, bytes.status());
  response->set_text(*std::move(bytes));
  return FinishUnary(context, absl::OkStatus());
}

grpc::ServerUnaryReactor* InferenceService::RenderChat(grpc::CallbackServerContext* context,
                                                       const v1::RenderChatRequest* message,
                                                       v1::RenderChatResponse* response) {
  const auto caller = Authorize(*context, parts_.callers, Scope::kData);
  if (!caller.ok()) return FinishUnary(context, caller.status());
  absl::StatusOr<ChatPrompt> prompt = ValidateRenderChat(*message, parts_.model);
  if (!prompt.ok()) return FinishUnary(context, prompt.status());
  FillRenderChat(message->chat(), *std::move(prompt), *response);
  return FinishUnary(context, absl::OkStatus());
}

}  // namespace vitrine::server
