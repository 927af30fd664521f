// Who makes a call, from its metadata. Every handler of every service asks first; identity belongs
// to the call, never to its connection, which several callers may share.
#pragma once

#include <grpcpp/server_context.h>

#include <string>

#include "absl/status/statusor.h"
#include "server/caller_table.h"

namespace vitrine::server {

// The caller's name; empty where `callers` is null, which lets everybody in. Errors as
// CallerTable::Admit.
absl::StatusOr<std::string> Authorize(const grpc::CallbackServerContext& context,
                                      const CallerTable* callers, Scope scope);

}  // namespace vitrine::server
