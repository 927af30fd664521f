// The control plane: what is served, and how busy it is.
#pragma once

#include <atomic>

#include "server/caller_table.h"
#include "server/clock.h"
#include "server/engine.h"
#include "server/metrics.h"
#include "server/options.h"
#include "server/request_queue.h"
#include "server/served_model.h"
#include "vitrine/v1/control.grpc.pb.h"

namespace vitrine::server {

class ControlService final : public v1::Control::CallbackService {
 public:
  struct Parts {
    const ServedModel& model;
    const ServerOptions& options;
    const RequestQueue& queue;
    const Engine& engine;
    const RequestCounters& counters;
    const Clock& clock;
    const CallerTable* callers;  // Null: everybody may call.
  };
  // All parts must outlive the service.
  explicit ControlService(const Parts& parts) : parts_(parts) {}

  grpc::ServerUnaryReactor* DescribeModel(grpc::CallbackServerContext* context,
                                          const v1::DescribeModelRequest* message,
                                          v1::DescribeModelResponse* response) override;
  grpc::ServerUnaryReactor* GetLoad(grpc::CallbackServerContext* context,
                                    const v1::GetLoadRequest* message,
                                    v1::GetLoadResponse* response) override;

  void SetDraining() { is_draining_ = true; }

 private:
  void FillLimits(v1::Limits& limits) const;

  const Parts parts_;
  std::atomic<bool> is_draining_ = false;
};

}  // namespace vitrine::server
