// The deadline of a call on the server's own clock.
#pragma once

#include <grpcpp/server_context.h>

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

}  // namespace vitrine::server
