#include "server/grpc_status.h"

#include <string>

#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "server/field_error.h"
#include "server/request_queue.h"

namespace vitrine::server {
namespace {

constexpr size_t kMaxTextBytes = 512;
constexpr size_t kMaxFieldBytes = 256;

}  // namespace

grpc::Status ToGrpcStatus(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  // The numbers of the two code sets are the same, by design of Abseil.
  const auto code = static_cast<grpc::StatusCode>(status.raw_code());
  const std::string text(status.message().substr(0, kMaxTextBytes));

  google::rpc::Status rich;
  if (const auto found = ViolationOf(status)) {
    google::rpc::BadRequest bad_request;
    auto* violation = bad_request.add_field_violations();
    violation->set_field(found->field.substr(0, kMaxFieldBytes));
    violation->set_description(found->rule.substr(0, kMaxTextBytes));
    rich.add_details()->PackFrom(bad_request);
  }
  if (const auto micros = RetryAfterMicros(status)) {
    google::rpc::RetryInfo retry;
    retry.mutable_retry_delay()->set_seconds(*micros / 1'000'000);
    retry.mutable_retry_delay()->set_nanos(static_cast<int32_t>(*micros % 1'000'000) * 1000);
    rich.add_details()->PackFrom(retry);
  }
  if (rich.details_size() == 0) return {code, text};
  rich.set_code(status.raw_code());
  rich.set_message(text);
  return {code, text, rich.SerializeAsString()};
}

grpc::ServerUnaryReactor* FinishUnary(grpc::CallbackServerContext* context,
                                      const absl::Status& status) {
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  reactor->Finish(ToGrpcStatus(status));
  return reactor;
}

}  // namespace vitrine::server
