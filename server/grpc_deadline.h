// The deadline of a call on the server's own clock.
#pragma once

#include <grpcpp/server_context.h>
#include <grpcpp/support/status.h>

#include <chrono>
#include <cstdint>

#include "server/clock.h"

namespace vitrine::server {

// What is left of it, microseconds; kNever: the call has none.
inline int64_t DeadlineMicros(const grpc::CallbackServerContext& context) {
  const auto deadline = context.deadline();
  if (deadline == std::chrono::system_clock::time_point::max()) return kNever;
  return std::chrono::duration_cast<std::chrono::microseconds>(deadline -
                                                               std::chrono::system_clock::now())
      .count();
}

// The end of a call that gRPC reports as cancelled: by its deadline or by its client. gRPC keeps
// deadlines in whole milliseconds, so its timer may be that much early.
inline grpc::Status StatusOfCancelled(const grpc::CallbackServerContext& context) {
  constexpr int64_t kTimerMicros = 1000;
  if (DeadlineMicros(context) <= kTimerMicros) {
    return {grpc::StatusCode::DEADLINE_EXCEEDED, "the deadline passed"};
  }
  return {grpc::StatusCode::CANCELLED, "cancelled by the client"};
}

}  // namespace vitrine::server
