// absl::Status to grpc::Status, with google.rpc details.
#pragma once

#include <grpcpp/server_context.h>
#include <grpcpp/support/server_callback.h>
#include <grpcpp/support/status.h>

#include "absl/status/status.h"

namespace vitrine::server {

// The text is cut to 512 bytes. Errors of FieldError carry BadRequest, those of SetRetryAfter
// RetryInfo; the details stay under 4 KiB. A total function.
grpc::Status ToGrpcStatus(const absl::Status& status);

// Ends a call whose response, if any, is written; for handlers that answer at once.
grpc::ServerUnaryReactor* FinishUnary(grpc::CallbackServerContext* context,
                                      const absl::Status& status);

}  // namespace vitrine::server
