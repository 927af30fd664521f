// The inspection plane: what a request looked at, live or afterwards. Refused with the flag that
// turns it on where it is off.
#pragma once

#include <string>

#include "server/caller_table.h"
#include "server/clock.h"
#include "server/metrics.h"
#include "server/options.h"
#include "server/request_archive.h"
#include "server/request_queue.h"
#include "server/served_model.h"
#include "server/stream_set.h"
#include "vitrine/v1/inspection.grpc.pb.h"

namespace vitrine::server {

class InspectionService final : public v1::Inspection::CallbackService {
 public:
  struct Parts {
    const ServedModel& model;
    const RequestLimits& request_limits;
    RequestQueue& queue;
    RequestArchive* archive;  // Null: inspection is off.
    const Clock& clock;
    const CallerTable* callers;  // Null: everybody may call.
  };
  // All parts must outlive the service.
  explicit InspectionService(const Parts& parts) : parts_(parts) {}

  grpc::ServerWriteReactor<v1::AttentionChunk>* GetAttention(
      grpc::CallbackServerContext* context, const v1::GetAttentionRequest* message) override;
  grpc::ServerUnaryReactor* GetRequest(grpc::CallbackServerContext* context,
                                       const v1::GetRequestRequest* message,
                                       v1::GetRequestResponse* response) override;
  grpc::ServerUnaryReactor* ListRequests(grpc::CallbackServerContext* context,
                                         const v1::ListRequestsRequest* message,
                                         v1::ListRequestsResponse* response) override;

  StreamSet& streams() { return streams_; }
  const StreamSet& streams() const { return streams_; }

 private:
  const Parts parts_;
  StreamSet streams_;
};

}  // namespace vitrine::server
