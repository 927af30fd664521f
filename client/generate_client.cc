#include "client/generate_client.h"

#include <grpcpp/grpcpp.h>
#include <grpcpp/support/client_callback.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "client/cancellation.h"
#include "client/connection.h"
#include "google/protobuf/util/time_util.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "grpc/health/v1/health.grpc.pb.h"
#include "vitrine/v1/control.grpc.pb.h"
#include "vitrine/v1/generation.grpc.pb.h"
#include "vitrine/v1/inspection.grpc.pb.h"

namespace vitrine::client {
namespace {

using Clock = std::chrono::system_clock;

// A prompt of a million tokens fits; an answer with logprobs too.
constexpr int kMaxMessageBytes = 64 << 20;
constexpr std::chrono::seconds kConnectTimeout{10};
// How often a wait for the connection looks whether it was cancelled.
constexpr std::chrono::milliseconds kCancelPoll{50};

// The codes of both enumerations are the same numbers.
absl::Status ToStatus(const grpc::Status& status) {
  if (status.ok()) return absl::OkStatus();
  std::string message = status.error_message();
  google::rpc::Status details;
  if (details.ParseFromString(status.error_details())) {
    for (const google::protobuf::Any& detail : details.details()) {
      google::rpc::BadRequest bad_request;
      google::rpc::RetryInfo retry_info;
      if (detail.UnpackTo(&bad_request)) {
        for (const auto& violation : bad_request.field_violations()) {
          // Often the message is already about the only violation.
          if (message.find(violation.description()) != std::string::npos) continue;
          absl::StrAppend(&message, "\n  ", violation.field(), ": ", violation.description());
        }
      } else if (detail.UnpackTo(&retry_info)) {
        absl::StrAppend(&message, "\n  try again after ",
                        google::protobuf::util::TimeUtil::ToString(retry_info.retry_delay()));
      }
    }
  }
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()), message);
}

void PrepareContext(const ConnectionOptions& options, grpc::ClientContext* context) {
  if (options.timeout) context->set_deadline(Clock::now() + *options.timeout);
  if (!options.auth_token.empty()) {
    context->AddMetadata("authorization", "Bearer " + options.auth_token);
  }
}

// Owns itself until OnDone, together with whoever holds the stream.
class GenerateReactor final : public GenerateStream,
                              public grpc::ClientReadReactor<v1::GenerateEvent> {
 public:
  static std::shared_ptr<GenerateReactor> Start(
      v1::Generation::Stub* stub, const ConnectionOptions& options,
      const v1::GenerateRequest& request,
      std::function<void(const v1::GenerateEvent& event)> on_event,
      std::function<void(absl::Status status)> on_done) {
    auto reactor =
        std::make_shared<GenerateReactor>(request, std::move(on_event), std::move(on_done));
    reactor->self_ = reactor;
    PrepareContext(options, &reactor->context_);
    stub->async()->Generate(&reactor->context_, &reactor->request_, reactor.get());
    reactor->StartRead(&reactor->event_);
    reactor->StartCall();
    return reactor;
  }

  GenerateReactor(const v1::GenerateRequest& request,
                  std::function<void(const v1::GenerateEvent& event)> on_event,
                  std::function<void(absl::Status status)> on_done)
      : request_(request), on_event_(std::move(on_event)), on_done_(std::move(on_done)) {}

  void Cancel() override { context_.TryCancel(); }

  void OnReadDone(bool ok) override {
    if (!ok) return;
    on_event_(event_);
    StartRead(&event_);
  }

  void OnDone(const grpc::Status& status) override {
    const std::shared_ptr<GenerateReactor> self = std::move(self_);
    on_done_(ToStatus(status));
  }

 private:
  grpc::ClientContext context_;
  v1::GenerateRequest request_;
  v1::GenerateEvent event_;
  std::function<void(const v1::GenerateEvent& event)> on_event_;
  std::function<void(absl::Status status)> on_done_;
  std::shared_ptr<GenerateReactor> self_;
};

class GrpcClient final : public GenerateClient {
 public:
  GrpcClient(const std::shared_ptr<grpc::Channel>& channel, ConnectionOptions options)
      : options_(std::move(options)),
        generation_(v1::Generation::NewStub(channel)),
        inspection_(v1::Inspection::NewStub(channel)),
        control_(v1::Control::NewStub(channel)),
        health_(grpc::health::v1::Health::NewStub(channel)) {}

  std::shared_ptr<GenerateStream> StartGenerate(
      const v1::GenerateRequest& request,
      std::function<void(const v1::GenerateEvent& event)> on_event,
      std::function<void(absl::Status status)> on_done) override {
    return GenerateReactor::Start(generation_.get(), options_, request, std::move(on_event),
                                  std::move(on_done));
  }

  absl::Status Generate(const v1::GenerateRequest& request, Cancellation* cancellation,
                        std::function<void(const v1::GenerateEvent& event)> on_event) override {
    // Shared, because set_value may still be returning when get does.
    const auto done = std::make_shared<std::promise<absl::Status>>();
    std::future<absl::Status> result = done->get_future();
    const std::shared_ptr<GenerateStream> stream =
        StartGenerate(request, std::move(on_event),
                      [done](absl::Status status) { done->set_value(std::move(status)); });
    cancellation->Arm([stream] { stream->Cancel(); });
    absl::Status status = result.get();
    cancellation->Disarm();
    return status;
  }

  absl::StatusOr<v1::GenerateResponse> GenerateUnary(const v1::GenerateRequest& request,
                                                     Cancellation* cancellation) override {
    return Unary<v1::GenerateResponse>(
        cancellation, [&](grpc::ClientContext* context, v1::GenerateResponse* response) {
          return generation_->GenerateUnary(context, request, response);
        });
  }

  absl::StatusOr<v1::TokenizeResponse> Tokenize(const v1::TokenizeRequest& request,
                                                Cancellation* cancellation) override {
    return Unary<v1::TokenizeResponse>(
        cancellation, [&](grpc::ClientContext* context, v1::TokenizeResponse* response) {
          return generation_->Tokenize(context, request, response);
        });
  }

  absl::StatusOr<v1::DetokenizeResponse> Detokenize(const v1::DetokenizeRequest& request,
                                                    Cancellation* cancellation) override {
    return Unary<v1::DetokenizeResponse>(
        cancellation, [&](grpc::ClientContext* context, v1::DetokenizeResponse* response) {
          return generation_->Detokenize(context, request, response);
        });
  }

  absl::Status GetAttention(
      const v1::GetAttentionRequest& request, Cancellation* cancellation,
      const std::function<absl::Status(const v1::AttentionChunk& chunk)>& on_chunk) override {
    grpc::ClientContext context;
    PrepareContext(options_, &context);
    cancellation->Arm([&context] { context.TryCancel(); });
    const auto reader = inspection_->GetAttention(&context, request);
    v1::AttentionChunk chunk;
    absl::Status own = absl::OkStatus();
    while (own.ok() && reader->Read(&chunk)) own = on_chunk(chunk);
    if (!own.ok()) {
      context.TryCancel();
      while (reader->Read(&chunk)) {
      }
    }
    const grpc::Status status = reader->Finish();
    cancellation->Disarm();
    return own.ok() ? ToStatus(status) : own;
  }

  absl::StatusOr<v1::GetRequestResponse> GetRequest(const std::string& request_id,
                                                    Cancellation* cancellation) override {
    v1::GetRequestRequest request;
    request.set_request_id(request_id);
    return Unary<v1::GetRequestResponse>(
        cancellation, [&](grpc::ClientContext* context, v1::GetRequestResponse* response) {
          return inspection_->GetRequest(context, request, response);
        });
  }

  absl::StatusOr<v1::DescribeModelResponse> DescribeModel(Cancellation* cancellation) override {
    return Unary<v1::DescribeModelResponse>(
        cancellation, [&](grpc::ClientContext* context, v1::DescribeModelResponse* response) {
          return control_->DescribeModel(context, {}, response);
        });
  }

  absl::StatusOr<v1::GetLoadResponse> GetLoad(Cancellation* cancellation) override {
    return Unary<v1::GetLoadResponse>(
        cancellation, [&](grpc::ClientContext* context, v1::GetLoadResponse* response) {
          return control_->GetLoad(context, {}, response);
        });
  }

  absl::StatusOr<grpc::health::v1::HealthCheckResponse> CheckHealth(
      const std::string& service, Cancellation* cancellation) override {
    grpc::health::v1::HealthCheckRequest request;
    request.set_service(service);
    return Unary<grpc::health::v1::HealthCheckResponse>(
        cancellation,
        [&](grpc::ClientContext* context, grpc::health::v1::HealthCheckResponse* response) {
          return health_->Check(context, request, response);
        });
  }

 private:
  template <typename Response, typename Rpc>
  absl::StatusOr<Response> Unary(Cancellation* cancellation, const Rpc& rpc) {
    grpc::ClientContext context;
    PrepareContext(options_, &context);
    Response response;
    cancellation->Arm([&context] { context.TryCancel(); });
    const grpc::Status status = rpc(&context, &response);
    cancellation->Disarm();
    if (!status.ok()) return ToStatus(status);
    return response;
  }

  const ConnectionOptions options_;
  const std::unique_ptr<v1::Generation::Stub> generation_;
  const std::unique_ptr<v1::Inspection::Stub> inspection_;
  const std::unique_ptr<v1::Control::Stub> control_;
  const std::unique_ptr<grpc::health::v1::Health::Stub> health_;
};

std::shared_ptr<grpc::ChannelCredentials> Credentials(const ConnectionOptions& options) {
  if (!options.tls) return grpc::InsecureChannelCredentials();
  grpc::SslCredentialsOptions ssl;
  ssl.pem_root_certs = options.tls_ca;
  ssl.pem_cert_chain = options.tls_cert;
  ssl.pem_private_key = options.tls_key;
  return grpc::SslCredentials(ssl);
}

// A proxy for the outer world, as the environment may name one, cannot reach this machine's own
// ports.
bool IsLoopback(std::string_view server) {
  return server.starts_with("127.") || server.starts_with("localhost:") ||
         server.starts_with("[::1]:");
}

// A channel's state does not say why it failed; a call on it does.
std::string WhyConnectingFailed(const std::shared_ptr<grpc::Channel>& channel) {
  grpc::ClientContext context;
  context.set_deadline(Clock::now() + std::chrono::seconds(1));
  grpc::health::v1::HealthCheckResponse response;
  return grpc::health::v1::Health::NewStub(channel)->Check(&context, {}, &response).error_message();
}

}  // namespace

absl::StatusOr<std::unique_ptr<GenerateClient>> ConnectToServer(const ConnectionOptions& options,
                                                                Cancellation* cancellation) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(kMaxMessageBytes);
  arguments.SetUserAgentPrefix("vitrine-client");
  // A connection for each client, also where several have the same server.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  if (IsLoopback(options.server)) arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  const std::shared_ptr<grpc::Channel> channel =
      grpc::CreateCustomChannel(options.server, Credentials(options), arguments);
  const Clock::time_point deadline =
      Clock::now() + std::min<std::chrono::nanoseconds>(options.timeout.value_or(kConnectTimeout),
                                                        kConnectTimeout);
  while (true) {
    if (cancellation->cancelled()) return absl::CancelledError("cancelled while connecting");
    const grpc_connectivity_state state = channel->GetState(/*try_to_connect=*/true);
    if (state == GRPC_CHANNEL_READY) break;
    if (state == GRPC_CHANNEL_TRANSIENT_FAILURE || state == GRPC_CHANNEL_SHUTDOWN) {
      return absl::UnavailableError(absl::StrCat("no server answers at ", options.server, ": ",
                                                 WhyConnectingFailed(channel)));
    }
    if (Clock::now() >= deadline) {
      return absl::UnavailableError(
          absl::StrCat("no server answers at ", options.server, ": timed out"));
    }
    channel->WaitForStateChange(state, std::min(deadline, Clock::now() + kCancelPoll));
  }
  return std::make_unique<GrpcClient>(channel, options);
}

}  // namespace vitrine::client
