// The client's side of every RPC; the only place that knows gRPC.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/cancellation.h"
#include "client/connection.h"
#include "grpc/health/v1/health.pb.h"
#include "vitrine/v1/control.pb.h"
#include "vitrine/v1/generation.pb.h"
#include "vitrine/v1/inspection.pb.h"

namespace vitrine::client {

// A stream that runs on gRPC's threads. Thread-safe.
class GenerateStream {
 public:
  virtual ~GenerateStream() = default;  // Does not end the stream.
  virtual void Cancel() = 0;
};

// Statuses carry the server's code and message, with its details ("sampling.top_p: ...", "try again
// after 1s") on further lines. Thread-safe.
class GenerateClient {
 public:
  virtual ~GenerateClient() = default;

  // Calls `on_event` for every event in order and `on_done` once after the last; both on a gRPC
  // thread, one call at a time. Both stay alive until on_done has returned.
  virtual std::shared_ptr<GenerateStream> StartGenerate(
      const v1::GenerateRequest& request,
      std::function<void(const v1::GenerateEvent& event)> on_event,
      std::function<void(absl::Status status)> on_done) = 0;

  // The rest blocks until the RPC has ended or `cancellation` has ended it (CANCELLED).
  virtual absl::Status Generate(const v1::GenerateRequest& request, Cancellation* cancellation,
                                std::function<void(const v1::GenerateEvent& event)> on_event) = 0;
  virtual absl::StatusOr<v1::GenerateResponse> GenerateUnary(const v1::GenerateRequest& request,
                                                             Cancellation* cancellation) = 0;
  virtual absl::StatusOr<v1::TokenizeResponse> Tokenize(const v1::TokenizeRequest& request,
                                                        Cancellation* cancellation) = 0;
  virtual absl::StatusOr<v1::DetokenizeResponse> Detokenize(const v1::DetokenizeRequest& request,
                                                            Cancellation* cancellation) = 0;
  // Calls `on_chunk` for every chunk in order; an error of its ends the RPC and is returned.
  virtual absl::Status GetAttention(
      const v1::GetAttentionRequest& request, Cancellation* cancellation,
      const std::function<absl::Status(const v1::AttentionChunk& chunk)>& on_chunk) = 0;
  virtual absl::StatusOr<v1::GetRequestResponse> GetRequest(const std::string& request_id,
                                                            Cancellation* cancellation) = 0;
  virtual absl::StatusOr<v1::DescribeModelResponse> DescribeModel(Cancellation* cancellation) = 0;
  virtual absl::StatusOr<v1::GetLoadResponse> GetLoad(Cancellation* cancellation) = 0;
  // `service`: a full service name; empty = the whole server.
  virtual absl::StatusOr<grpc::health::v1::HealthCheckResponse> CheckHealth(
      const std::string& service, Cancellation* cancellation) = 0;
};

// Connects, within options.timeout and 10 s. UNAVAILABLE says at which address nobody answers, and
// why; CANCELLED when `cancellation` ended it.
absl::StatusOr<std::unique_ptr<GenerateClient>> ConnectToServer(const ConnectionOptions& options,
                                                                Cancellation* cancellation);

}  // namespace vitrine::client
