#include "server/grpc_server.h"

#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/resource_quota.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server_builder.h>

#include <chrono>
#include <fstream>
#include <future>
#include <iterator>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "model/status.h"
#include "server/metrics_text.h"

namespace vitrine::server {
namespace {

constexpr char kServiceName[] = "vitrine.v1.Generation";
constexpr auto kWatchInterval = std::chrono::milliseconds(100);
// After the last request has ended: for clients to read what is on its way.
constexpr auto kLastWrites = std::chrono::seconds(2);
constexpr size_t kTransportMemory = size_t{512} << 20;

SipHashKey FreshKey() {
  std::random_device entropy;
  const auto word = [&] { return (uint64_t{entropy()} << 32) | entropy(); };
  return {word(), word()};
}

EngineOptions MakeEngineOptions(const ServerOptions& options) {
  return {
      .scheduler = options.scheduler, .prefix_cache = options.prefix_cache, .hash_key = FreshKey()};
}

std::unique_ptr<RequestArchive> MakeArchive(const ServerOptions& options, const Clock& clock) {
  if (!options.allow_inspection) return nullptr;
  return std::make_unique<RequestArchive>(
      RequestArchive::Limits{.retention_us = options.inspection_retention_us,
                             .max_bytes = options.inspection_bytes},
      clock);
}

absl::StatusOr<std::string> ReadPem(const std::string& path, absl::string_view flag) {
  std::ifstream file(path, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  if (!file.good() || text.find("-----BEGIN") == std::string::npos) {
    return absl::InvalidArgumentError(absl::StrCat("--", flag, " is not a readable PEM file"));
  }
  return text;
}

absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> MakeCredentials(const TlsFiles& files) {
  if (!files.enabled()) return grpc::InsecureServerCredentials();
  grpc::SslServerCredentialsOptions tls(
      files.client_ca.empty() ? GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE
                              : GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  VITRINE_ASSIGN_OR_RETURN(std::string certificate, ReadPem(files.certificate, "tls_cert"));
  VITRINE_ASSIGN_OR_RETURN(std::string key, ReadPem(files.key, "tls_key"));
  tls.pem_key_cert_pairs.push_back({std::move(key), std::move(certificate)});
  if (!files.client_ca.empty()) {
    VITRINE_ASSIGN_OR_RETURN(tls.pem_root_certs, ReadPem(files.client_ca, "tls_client_ca"));
  }
  return grpc::SslServerCredentials(tls);
}

void SetLimits(const ServerOptions& options, grpc::ServerBuilder& builder) {
  const TransportLimits& limits = options.transport;
  builder.SetMaxReceiveMessageSize(options.request.max_request_bytes);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, limits.max_concurrent_streams);
  builder.AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, limits.max_metadata_bytes);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_IDLE_MS,
                             static_cast<int>(limits.max_connection_idle_ms));
  builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, 10'000);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, 60'000);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 20'000);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 30'000);
  // Two servers on one port would each get a part of the requests.
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  // Some bytes on the wire may be many in memory.
  builder.SetCompressionAlgorithmSupportStatus(GRPC_COMPRESS_GZIP, false);
  builder.SetCompressionAlgorithmSupportStatus(GRPC_COMPRESS_DEFLATE, false);
  grpc::ResourceQuota quota("vitrine");
  quota.Resize(kTransportMemory);
  builder.SetResourceQuota(quota);
}

// The consumer of the warm-up's answer.
class WarmUpSink final : public TokenSink {
 public:
  void OnPromptLogprobs(std::span<const PromptToken> /*prompt*/) override {}
  void OnToken(const AnswerToken& /*token*/) override {}
  void OnEnd(const AnswerEnd& end) override { ending_.set_value(end.ending); }
  std::future<Ending> ending() { return ending_.get_future(); }

 private:
  std::promise<Ending> ending_;
};

}  // namespace

GrpcServer::GrpcServer(const ServerOptions& options, std::unique_ptr<const CallerTable> callers,
                       const ServedModel& model, Runner& runner, const Clock& clock)
    : options_(options),
      callers_(std::move(callers)),
      model_(model),
      clock_(clock),
      queue_(options.queue, counters_),
      archive_(MakeArchive(options, clock)),
      delivery_(*model.tokenizer, counters_,
                {.log_requests = options.log_requests, .archive = archive_.get()}),
      engine_(MakeEngineOptions(options), runner, queue_, delivery_, clock),
      inference_({.model = model,
                  .request_limits = options_.request,
                  .transport_limits = options_.transport,
                  .queue = queue_,
                  .archive = archive_.get(),
                  .counters = counters_,
                  .clock = clock,
                  .callers = callers_.get()}),
      inspection_({.model = model,
                   .request_limits = options.request,
                   .queue = queue_,
                   .archive = archive_.get(),
                   .clock = clock,
                   .callers = callers_.get()}),
      control_({.model = model,
                .options = options_,
                .queue = queue_,
                .engine = engine_,
                .counters = counters_,
                .clock = clock,
                .callers = callers_.get()}) {}

GrpcServer::~GrpcServer() {
  Drain([] { return true; });
}

absl::StatusOr<std::unique_ptr<GrpcServer>> GrpcServer::Start(const ServerOptions& options,
                                                              const ServedModel& model,
                                                              Runner& runner, const Clock& clock) {
  std::unique_ptr<const CallerTable> callers;
  if (!options.auth_tokens_file.empty()) {
    VITRINE_ASSIGN_OR_RETURN(CallerTable table,
                             CallerTable::Load(options.auth_tokens_file, FreshKey()));
    callers = std::make_unique<const CallerTable>(std::move(table));
  }
  std::unique_ptr<GrpcServer> server(
      new GrpcServer(options, std::move(callers), model, runner, clock));
  server->delivery_.Start();
  server->engine_.Start();
  VITRINE_RETURN_IF_ERROR(server->Listen());
  VITRINE_RETURN_IF_ERROR(server->WarmUp());
  VITRINE_RETURN_IF_ERROR(server->OfferMetrics());
  server->SetServing(true);
  server->watch_ = std::thread([raw = server.get()] { raw->Watch(); });
  return server;
}

absl::Status GrpcServer::Listen() {
  VITRINE_ASSIGN_OR_RETURN(const auto credentials, MakeCredentials(options_.tls));
  grpc::EnableDefaultHealthCheckService(true);
  if (options_.reflection) grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort(options_.listen, credentials, &port);
  SetLimits(options_, builder);
  builder.RegisterService(&inference_);
  builder.RegisterService(&inspection_);
  builder.RegisterService(&control_);
  server_ = builder.BuildAndStart();
  if (server_ == nullptr || port <= 0) {
    return absl::UnavailableError(absl::StrCat("cannot listen on ", options_.listen,
                                               ": the address is in use or not of this machine"));
  }
  SetServing(false);
  address_ = options_.listen;
  if (address_.rfind("unix:", 0) != 0) {
    address_ = absl::StrCat(address_.substr(0, address_.rfind(':')), ":", port);
  }
  return absl::OkStatus();
}

absl::Status GrpcServer::OfferMetrics() {
  if (options_.metrics_listen.empty()) return absl::OkStatus();
  const auto text = [this] {
    MetricsView view = {.requests = counters_.Read(),
                        .queue = queue_.load(),
                        .engine = engine_.load(),
                        .now_us = clock_.NowMicros()};
    std::lock_guard lock(watch_mutex_);
    view.is_draining = is_draining_;
    return MetricsText(view);
  };
  VITRINE_ASSIGN_OR_RETURN(metrics_,
                           MetricsServer::Start(options_.metrics_listen, callers_.get(), text));
  return absl::OkStatus();
}

absl::Status GrpcServer::WarmUp() {
  constexpr int kTokens = 2;
  const auto sink = std::make_shared<WarmUpSink>();
  GenerationRequest request;
  request.prompt.push_back(std::max(0, model_.tokenizer->bos_id()));
  request.stop.max_length =
      std::min(model_.context_length, static_cast<int>(request.prompt.size()) + kTokens);
  request.stop.ignore_eos = true;
  request.arrival_us = clock_.NowMicros();
  std::future<Ending> ending = sink->ending();
  VITRINE_RETURN_IF_ERROR(queue_.Push(
      std::make_shared<ActiveRequest>("warm-up", std::move(request), sink), clock_.NowMicros()));
  const Ending how = ending.get();
  VITRINE_RETURN_IF_ERROR(engine_.status());
  if (how != Ending::kFinished) {
    return absl::InternalError("the warm-up generation failed: the model gives no finite logits");
  }
  // Counters are of clients' requests.
  --counters_.accepted;
  --counters_.finished;
  return absl::OkStatus();
}

void GrpcServer::SetServing(bool is_serving) {
  grpc::HealthCheckServiceInterface* const health = server_->GetHealthCheckService();
  health->SetServingStatus(kServiceName, is_serving);
  health->SetServingStatus("", is_serving);
}

void GrpcServer::Watch() {
  bool was_serving = true;
  std::unique_lock lock(watch_mutex_);
  while (!watch_changed_.wait_for(lock, kWatchInterval, [this] { return is_watch_over_; })) {
    const bool is_serving =
        !is_draining_ && engine_.status().ok() && engine_.BusyMicros() < options_.stall_us;
    if (is_serving != was_serving) SetServing(is_serving);
    was_serving = is_serving;
    const int64_t now_us = clock_.NowMicros();
    inference_.streams().EndStalled(now_us, options_.transport.no_progress_us);
    inspection_.streams().EndStalled(now_us, options_.transport.no_progress_us);
  }
}

bool GrpcServer::IsQuiet() const { return counters_.live() == 0; }

void GrpcServer::Drain(absl::FunctionRef<bool()> stop_now) {
  if (std::exchange(is_drained_, true)) return;
  if (server_ != nullptr) {
    std::lock_guard lock(watch_mutex_);
    is_draining_ = true;
    SetServing(false);
    control_.SetDraining();
  }
  queue_.Close(absl::UnavailableError("the server is draining"));
  constexpr auto kPoll = std::chrono::milliseconds(5);
  const int64_t deadline_us = clock_.NowMicros() + options_.drain_us;
  while (!IsQuiet() && clock_.NowMicros() < deadline_us && !stop_now()) {
    std::this_thread::sleep_for(kPoll);
  }
  engine_.Stop();
  // Every request has its end now; delivery is handing out the last of them.
  while (!IsQuiet()) std::this_thread::sleep_for(kPoll);
  if (server_ != nullptr) {
    const auto last_writes = std::chrono::system_clock::now() + kLastWrites;
    while (open_streams() > 0 && std::chrono::system_clock::now() < last_writes) {
      std::this_thread::sleep_for(kPoll);
    }
    server_->Shutdown(last_writes);
    server_->Wait();
  }
  {
    std::lock_guard lock(watch_mutex_);
    is_watch_over_ = true;
  }
  watch_changed_.notify_one();
  if (watch_.joinable()) watch_.join();
}

std::shared_ptr<grpc::Channel> GrpcServer::InProcessChannel() {
  return server_->InProcessChannel({});
}

}  // namespace vitrine::server
