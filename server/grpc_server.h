// The gRPC server around the engine: port, credentials, limits, services, health, drain.
#pragma once

#include <grpcpp/server.h>

#include <memory>
#include <string>
#include <thread>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "server/caller_table.h"
#include "server/clock.h"
#include "server/control_service.h"
#include "server/delivery.h"
#include "server/engine.h"
#include "server/inference_service.h"
#include "server/inspection_service.h"
#include "server/metrics.h"
#include "server/metrics_server.h"
#include "server/options.h"
#include "server/request_archive.h"
#include "server/request_queue.h"
#include "server/served_model.h"

namespace vitrine::server {

class GrpcServer {
 public:
  // Listens and answers; health is NOT_SERVING until a warm-up generation has succeeded, which is
  // before this returns. All arguments must outlive the server. UNAVAILABLE: the address cannot be
  // bound; INVALID_ARGUMENT: a TLS file or the file of callers; INTERNAL: the warm-up failed.
  static absl::StatusOr<std::unique_ptr<GrpcServer>> Start(const ServerOptions& options,
                                                           const ServedModel& model, Runner& runner,
                                                           const Clock& clock);
  ~GrpcServer();
  GrpcServer(const GrpcServer&) = delete;
  GrpcServer& operator=(const GrpcServer&) = delete;

  // HOST:PORT with the port in use, or unix:PATH.
  const std::string& address() const { return address_; }
  // HOST:PORT of /metrics; empty: not offered.
  std::string metrics_address() const { return metrics_ ? metrics_->address() : ""; }

  // Refuses new requests and waits until the running ones have ended, options.drain_us have passed
  // or `stop_now` holds; then ends what is left and stops. Idempotent.
  void Drain(absl::FunctionRef<bool()> stop_now);

  // A channel to this server without a port.
  std::shared_ptr<grpc::Channel> InProcessChannel();

  // Any thread. UNAVAILABLE once the device has failed; health is NOT_SERVING by then, or soon.
  absl::Status status() const { return engine_.status(); }

  const Engine& engine() const { return engine_; }
  const RequestCounters& counters() const { return counters_; }
  const RequestQueue& queue() const { return queue_; }
  size_t open_streams() const { return inference_.streams().size() + inspection_.streams().size(); }

 private:
  GrpcServer(const ServerOptions& options, std::unique_ptr<const CallerTable> callers,
             const ServedModel& model, Runner& runner, const Clock& clock);
  absl::Status Listen();
  absl::Status OfferMetrics();
  absl::Status WarmUp();
  void Watch();
  void SetServing(bool is_serving);
  bool IsQuiet() const;

  const ServerOptions& options_;
  const std::unique_ptr<const CallerTable> callers_;  // Null: everybody may call.
  const ServedModel& model_;
  const Clock& clock_;
  RequestCounters counters_;
  RequestQueue queue_;
  std::unique_ptr<RequestArchive> archive_;  // Null: inspection is off.
  Delivery delivery_;
  Engine engine_;
  InferenceService inference_;
  InspectionService inspection_;
  ControlService control_;
  std::unique_ptr<grpc::Server> server_;
  std::string address_;
  bool is_drained_ = false;

  std::mutex watch_mutex_;
  std::condition_variable watch_changed_;
  bool is_draining_ = false;    // Guarded by watch_mutex_.
  bool is_watch_over_ = false;  // Guarded by watch_mutex_.
  std::thread watch_;
  std::unique_ptr<MetricsServer> metrics_;  // Reads the rest.
};

}  // namespace vitrine::server
