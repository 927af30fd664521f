#include "server/grpc_caller.h"

#include <iterator>
#include <string_view>

namespace vitrine::server {

absl::StatusOr<std::string> Authorize(const grpc::CallbackServerContext& context,
                                      const CallerTable* callers, Scope scope) {
  if (callers == nullptr) return std::string();
  const auto [begin, end] = context.client_metadata().equal_range("authorization");
  // Two of them: whoever checks before us may have looked at the other one.
  const bool is_single = begin != end && std::next(begin) == end;
  const std::string_view value =
      is_single ? std::string_view(begin->second.data(), begin->second.size()) : std::string_view();
  return callers->Admit(value, scope);
}

}  // namespace vitrine::server
