// The data plane: validates, tokenises, queues and hands the call to its reactor. No handler waits.
#pragma once

#include <memory>

#include "absl/status/status.h"
#include "server/caller_table.h"
#include "server/clock.h"
#include "server/generate_stream.h"
#include "server/metrics.h"
#include "server/options.h"
#include "server/request_archive.h"
#include "server/request_queue.h"
#include "server/served_model.h"
#include "vitrine/v1/generation.grpc.pb.h"

namespace vitrine::server {

class InferenceService final : public v1::Generation::CallbackService {
 public:
  struct Parts {
    const ServedModel& model;
    const RequestLimits& request_limits;
    const TransportLimits& transport_limits;
    RequestQueue& queue;
    RequestArchive* archive;  // Null: requests are not kept.
    RequestCounters& counters;
    const Clock& clock;
    const CallerTable* callers;  // Null: everybody may call.
  };
  // All parts must outlive the service.
  explicit InferenceService(const Parts& parts) : parts_(parts) {}

  grpc::ServerWriteReactor<v1::GenerateEvent>* Generate(
      grpc::CallbackServerContext* context, const v1::GenerateRequest* message) override;
  grpc::ServerUnaryReactor* GenerateUnary(grpc::CallbackServerContext* context,
                                          const v1::GenerateRequest* message,
                                          v1::GenerateResponse* response) override;
  grpc::ServerUnaryReactor* Tokenize(grpc::CallbackServerContext* context,
                                     const v1::TokenizeRequest* message,
                                     v1::TokenizeResponse* response) override;
  grpc::ServerUnaryReactor* Detokenize(grpc::CallbackServerContext* context,
                                       const v1::DetokenizeRequest* message,
                                       v1::DetokenizeResponse* response) override;
  grpc::ServerUnaryReactor* RenderChat(grpc::CallbackServerContext* context,
                                       const v1::RenderChatRequest* message,
                                       v1::RenderChatResponse* response) override;

  StreamSet& streams() { return streams_; }
  const StreamSet& streams() const { return streams_; }

 private:
  // A request with its times, ready for the queue.
  absl::StatusOr<GenerationRequest> Prepare(const grpc::CallbackServerContext& context,
                                            const v1::GenerateRequest& message);
  absl::Status Submit(const std::shared_ptr<ActiveRequest>& request);

  const Parts parts_;
  StreamSet streams_;
};

}  // namespace vitrine::server
