// absl::Status to grpc::Status, with google.rpc details. A total function.
#pragma once

#include <grpcpp/support/status.h>

#include "absl/status/status.h"

namespace vitrine::server {

// The text is cut to 512 bytes. Errors of FieldError carry BadRequest, those of SetRetryAfter
// RetryInfo; the details stay under 4 KiB.
grpc::Status ToGrpcStatus(const absl::Status& status);

}  // namespace vitrine::server
