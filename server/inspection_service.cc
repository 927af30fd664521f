#include "server/inspection_service.h"

#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/field_error.h"
#include "server/grpc_caller.h"
#include "server/grpc_deadline.h"
#include "server/grpc_status.h"
#include "server/inspection_messages.h"
#include "server/replay_stream.h"
#include "server/validate_replay.h"

namespace vitrine::server {
namespace {

constexpr int kDefaultPage = 100;
constexpr int kMaxPage = 1000;

absl::Status Off() {
  return absl::FailedPreconditionError(
      "inspection is off; the server's flag --allow_inspection turns it on");
}

}  // namespace

grpc::ServerWriteReactor<v1::AttentionChunk>* InspectionService::GetAttention(
    grpc::CallbackServerContext* context, const v1::GetAttentionRequest* message) {
  const std::shared_ptr<ReplayStream> stream =
      ReplayStream::Create(context, message->request_id(), {streams_, parts_.queue, parts_.clock});
  // Whose requests may be seen: the caller's own.
  const auto caller = Authorize(*context, parts_.callers, Scope::kInspection);
  if (!caller.ok() || parts_.archive == nullptr) {
    stream->Refuse(caller.ok() ? Off() : caller.status());
    return stream.get();
  }
  const auto record = parts_.archive->Find(message->request_id(), *caller);
  if (!record.ok()) {
    stream->Refuse(record.status());
    return stream.get();
  }
  auto requests = PlanReplay(message->spec(), **record, parts_.model);
  if (!requests.ok()) {
    stream->Refuse(requests.status());
    return stream.get();
  }
  const int64_t now_us = parts_.clock.NowMicros();
  const int64_t left_us = DeadlineMicros(*context);
  for (GenerationRequest& request : *requests) {
    request.arrival_us = now_us;
    request.deadline_us =
        now_us + (left_us == kNever ? parts_.request_limits.max_request_us : left_us);
  }
  stream->Start(*std::move(requests));
  return stream.get();
}

grpc::ServerUnaryReactor* InspectionService::GetRequest(grpc::CallbackServerContext* context,
                                                        const v1::GetRequestRequest* message,
                                                        v1::GetRequestResponse* response) {
  const auto caller = Authorize(*context, parts_.callers, Scope::kInspection);
  if (!caller.ok()) return FinishUnary(context, caller.status());
  if (parts_.archive == nullptr) return FinishUnary(context, Off());
  const auto record = parts_.archive->Find(message->request_id(), *caller);
  if (!record.ok()) return FinishUnary(context, record.status());
  *response = MakeRequestResponse(**record, parts_.archive->KeptFor(**record));
  return FinishUnary(context, absl::OkStatus());
}

grpc::ServerUnaryReactor* InspectionService::ListRequests(grpc::CallbackServerContext* context,
                                                          const v1::ListRequestsRequest* message,
                                                          v1::ListRequestsResponse* response) {
  const auto caller = Authorize(*context, parts_.callers, Scope::kInspection);
  if (!caller.ok()) return FinishUnary(context, caller.status());
  if (parts_.archive == nullptr) return FinishUnary(context, Off());
  const uint32_t page = message->has_page_size() ? message->page_size() : kDefaultPage;
  if (page < 1 || page > kMaxPage) {
    return FinishUnary(context,
                       FieldError("page_size", std::string(absl::StrCat("must be in [1, ", kMaxPage,
                                                                        "], is ", page))));
  }
  // One more than the page shows whether there is another.
  const auto records =
      parts_.archive->List(*caller, message->page_token(), static_cast<int>(page) + 1);
  if (!records.ok()) return FinishUnary(context, records.status());
  for (const auto& record : *records) {
    if (response->requests_size() == static_cast<int>(page)) {
      response->set_next_page_token(response->requests(response->requests_size() - 1).request_id());
      break;
    }
    *response->add_requests() = MakeRequestSummary(*record);
  }
  return FinishUnary(context, absl::OkStatus());
}

}  // namespace vitrine::server
