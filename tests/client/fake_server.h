// A server in this process whose answers depend only on the prompt's text.
#pragma once

#include <grpcpp/grpcpp.h>

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "grpc/health/v1/health.grpc.pb.h"
#include "tests/client/fake_attention.h"
#include "vitrine/v1/control.grpc.pb.h"
#include "vitrine/v1/generation.grpc.pb.h"

namespace vitrine::client {

// Prompts, or last messages of a conversation: "hello" streams "Hello", ", " and "world" + tail
// "!"; "two" two choices that overlap; "refuse" and "overload" end with an error and its details;
// "break" fails after one token; "gap", "wrong hash" and "no end" break the protocol; "endless"
// goes on until it is cancelled; "slow" waits 20 ms before each of its three tokens. With attention
// asked for, the prompt has a token per byte and the answer is " on", " the", " mat\n"; "off" is
// refused as by a server without inspection, "lost" loses a chunk.
class FakeGeneration final : public v1::Generation::Service {
 public:
  grpc::Status Generate(grpc::ServerContext* context, const v1::GenerateRequest* request,
                        grpc::ServerWriter<v1::GenerateEvent>* writer) override;
  grpc::Status GenerateUnary(grpc::ServerContext* context, const v1::GenerateRequest* request,
                             v1::GenerateResponse* response) override;
  grpc::Status Tokenize(grpc::ServerContext* context, const v1::TokenizeRequest* request,
                        v1::TokenizeResponse* response) override;
  grpc::Status Detokenize(grpc::ServerContext* context, const v1::DetokenizeRequest* request,
                          v1::DetokenizeResponse* response) override;

  v1::GenerateRequest last_request();
  // The "authorization" metadata of the last Generate.
  std::string last_authorization();
  int requests();
  int most_at_once();
  // Connections that Generate was called on.
  size_t connections();
  // Blocks until a Generate has seen its cancellation; false after a minute.
  bool WaitUntilCancelled();

 private:
  std::mutex mutex_;
  v1::GenerateRequest last_request_;
  std::string last_authorization_;
  int requests_ = 0;
  int running_ = 0;
  int most_at_once_ = 0;
  std::set<std::string> peers_;
  bool cancelled_ = false;
  std::condition_variable cancelled_changed_;
};

class FakeControl final : public v1::Control::Service {
 public:
  grpc::Status DescribeModel(grpc::ServerContext* context, const v1::DescribeModelRequest* request,
                             v1::DescribeModelResponse* response) override;
  grpc::Status GetLoad(grpc::ServerContext* context, const v1::GetLoadRequest* request,
                       v1::GetLoadResponse* response) override;
};

// "" is SERVING, "stuck" is NOT_SERVING, others are not known.
class FakeHealth final : public grpc::health::v1::Health::Service {
 public:
  grpc::Status Check(grpc::ServerContext* context,
                     const grpc::health::v1::HealthCheckRequest* request,
                     grpc::health::v1::HealthCheckResponse* response) override;
};

// Listens on a free port of 127.0.0.1 while it lives.
class FakeServer {
 public:
  FakeServer();
  ~FakeServer();
  FakeServer(const FakeServer&) = delete;
  FakeServer& operator=(const FakeServer&) = delete;

  std::string address() const { return "127.0.0.1:" + std::to_string(port_); }
  FakeGeneration& generation() { return generation_; }

 private:
  FakeGeneration generation_;
  FakeInspection inspection_;
  FakeControl control_;
  FakeHealth health_;
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

// As the protocol defines Done.token_hash, for one choice after the other.
uint64_t TokenHash(const std::vector<uint32_t>& ids);

}  // namespace vitrine::client
