// GET /metrics over plain HTTP, on a thread of its own.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "server/caller_table.h"

namespace vitrine::server {

class MetricsServer {
 public:
  // `listen` is HOST:PORT, port 0 takes a free one. `text` makes the page, on the server's thread.
  // `callers`, null: everybody may read; else a bearer token with the control scope is needed.
  // What both refer to must outlive the server. UNAVAILABLE: the address cannot be bound.
  static absl::StatusOr<std::unique_ptr<MetricsServer>> Start(const std::string& listen,
                                                              const CallerTable* callers,
                                                              std::function<std::string()> text);
  virtual ~MetricsServer() = default;

  // HOST:PORT with the port in use.
  virtual const std::string& address() const = 0;
};

}  // namespace vitrine::server
