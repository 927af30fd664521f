#include "tests/client/fake_server.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "vitrine/v1/generation.pb.h"

namespace vitrine::client {
namespace {

constexpr uint32_t kPromptTokens = 3;

// Writes a stream in the protocol's order.
class Script {
 public:
  explicit Script(grpc::ServerWriter<v1::GenerateEvent>* writer,
                  uint32_t prompt_tokens = kPromptTokens,
                  const std::vector<uint32_t>& prompt_token_ids = {})
      : writer_(writer), prompt_tokens_(prompt_tokens) {
    v1::GenerateEvent event;
    event.mutable_accepted()->set_request_id("r-1");
    event.mutable_accepted()->set_prompt_token_count(prompt_tokens_);
    event.mutable_accepted()->set_seed(18446744073709551615u);
    event.mutable_accepted()->mutable_prompt_token_ids()->Assign(prompt_token_ids.begin(),
                                                                 prompt_token_ids.end());
    Write(std::move(event));
  }

  bool Token(uint32_t choice, uint32_t id, const std::string& text) {
    ids_.resize(std::max<size_t>(ids_.size(), choice + 1));
    v1::GenerateEvent event;
    v1::Token* token = event.mutable_tokens()->add_tokens();
    token->set_choice(choice);
    token->set_position(prompt_tokens_ + static_cast<uint32_t>(ids_[choice].size()));
    token->set_id(id);
    token->set_bytes(text);
    token->set_text(text);
    ids_[choice].push_back(id);
    return Write(std::move(event));
  }

  void Attention(v1::AttentionChunk chunk) {
    v1::GenerateEvent event;
    *event.mutable_attention() = std::move(chunk);
    Write(std::move(event));
  }

  void Finish(uint32_t choice, v1::FinishReason reason, const std::string& tail) {
    v1::GenerateEvent event;
    event.mutable_choice_finished()->set_choice(choice);
    event.mutable_choice_finished()->set_reason(reason);
    event.mutable_choice_finished()->set_tail_text(tail);
    Write(std::move(event));
  }

  void Done(uint64_t hash_change = 0) {
    std::vector<uint32_t> all;
    for (const auto& ids : ids_) all.insert(all.end(), ids.begin(), ids.end());
    v1::GenerateEvent event;
    v1::Usage* usage = event.mutable_done()->mutable_usage();
    usage->set_prompt_tokens(prompt_tokens_);
    usage->set_completion_tokens(static_cast<uint32_t>(all.size()));
    event.mutable_done()->mutable_timings()->set_decode_us(1000);
    event.mutable_done()->set_token_hash(TokenHash(all) + hash_change);
    Write(std::move(event));
  }

  void SkipNumber() { ++next_; }

 private:
  bool Write(v1::GenerateEvent event) {
    event.set_sequence_number(next_++);
    return writer_->Write(event);
  }

  grpc::ServerWriter<v1::GenerateEvent>* writer_;
  uint32_t prompt_tokens_;
  uint64_t next_ = 0;
  std::vector<std::vector<uint32_t>> ids_;
};

template <typename Detail>
grpc::Status ErrorWith(grpc::StatusCode code, const std::string& message, const Detail& detail) {
  google::rpc::Status details;
  details.set_code(code);
  details.set_message(message);
  details.add_details()->PackFrom(detail);
  return grpc::Status(code, message, details.SerializeAsString());
}

grpc::Status Refusal() {
  google::rpc::BadRequest bad_request;
  google::rpc::BadRequest::FieldViolation* violation = bad_request.add_field_violations();
  violation->set_field("sampling.top_p");
  violation->set_description("2 is not in (0, 1]");
  return ErrorWith(grpc::StatusCode::INVALID_ARGUMENT, "bad request", bad_request);
}

grpc::Status Overload() {
  google::rpc::RetryInfo retry;
  retry.mutable_retry_delay()->set_seconds(2);
  return ErrorWith(grpc::StatusCode::RESOURCE_EXHAUSTED, "the queue is full", retry);
}

void PlayTwoChoices(Script* script) {
  script->Token(1, 21, "B1");
  script->Token(0, 11, "A1");
  script->Finish(1, v1::FINISH_REASON_EOS, "");
  script->Token(0, 12, "A2");
  script->Finish(0, v1::FINISH_REASON_MAX_TOKENS, "");
  script->Done();
}

void PlayHello(Script* script, std::chrono::milliseconds pause, uint64_t hash_change) {
  const std::pair<uint32_t, const char*> tokens[] = {{5, "Hello"}, {6, ", "}, {7, "world"}};
  for (const auto& [id, text] : tokens) {
    std::this_thread::sleep_for(pause);
    script->Token(0, id, text);
  }
  script->Finish(0, v1::FINISH_REASON_STOP_STRING, "!");
  script->Done(hash_change);
}

grpc::Status Play(const std::string& prompt, grpc::ServerContext* context, Script* script) {
  if (prompt == "two") {
    PlayTwoChoices(script);
  } else if (prompt == "break") {
    script->Token(0, 5, "partial");
    return grpc::Status(grpc::StatusCode::UNAVAILABLE, "draining");
  } else if (prompt == "gap") {
    script->Token(0, 5, "one");
    script->SkipNumber();
    script->Token(0, 6, "three");
    script->Done();
  } else if (prompt == "no end") {
    script->Token(0, 5, "one");
  } else if (prompt == "endless") {
    while (script->Token(0, 5, "more ") && !context->IsCancelled()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return grpc::Status::CANCELLED;
  } else {
    PlayHello(script, std::chrono::milliseconds(prompt == "slow" ? 20 : 0),
              prompt == "wrong hash" ? 1 : 0);
  }
  return grpc::Status::OK;
}

grpc::Status PlayAttention(const v1::GenerateRequest& request,
                           grpc::ServerWriter<v1::GenerateEvent>* writer) {
  if (request.text() == "off") {
    return grpc::Status(grpc::StatusCode::FAILED_PRECONDITION, "attention: inspection is off");
  }
  std::vector<uint32_t> ids(request.token_ids().ids().begin(), request.token_ids().ids().end());
  for (const char c : request.text()) ids.push_back(static_cast<unsigned char>(c));
  const auto prompt_tokens = static_cast<uint32_t>(ids.size());
  Script script(writer, prompt_tokens, ids);
  script.Token(0, 300, " on");
  script.Token(0, 301, " the");
  script.Token(0, 302, " mat\n");
  std::vector<v1::AttentionChunk> chunks =
      FakeTrace(request.attention(), "r-1", prompt_tokens, prompt_tokens + 3);
  if (request.text() == "lost") chunks.erase(chunks.begin());
  for (v1::AttentionChunk& chunk : chunks) script.Attention(std::move(chunk));
  script.Finish(0, v1::FINISH_REASON_MAX_TOKENS, "");
  script.Done();
  return grpc::Status::OK;
}

}  // namespace

uint64_t TokenHash(const std::vector<uint32_t>& ids) {
  uint64_t hash = 14695981039346656037u;
  for (const uint32_t id : ids) {
    for (uint32_t byte = 0; byte < 4; ++byte) {
      hash ^= (id / (1u << (8 * byte))) % 256;
      hash *= 1099511628211u;
    }
  }
  return hash;
}

grpc::Status FakeGeneration::Generate(grpc::ServerContext* context,
                                      const v1::GenerateRequest* request,
                                      grpc::ServerWriter<v1::GenerateEvent>* writer) {
  {
    const std::lock_guard lock(mutex_);
    last_request_ = *request;
    ++requests_;
    most_at_once_ = std::max(most_at_once_, ++running_);
    peers_.insert(context->peer());
    const auto found = context->client_metadata().find("authorization");
    last_authorization_ = found == context->client_metadata().end()
                              ? ""
                              : std::string(found->second.data(), found->second.size());
  }
  const std::string& prompt =
      request->has_chat() ? request->chat().messages().rbegin()->content() : request->text();
  grpc::Status status;
  if (prompt == "refuse") {
    status = Refusal();
  } else if (prompt == "overload") {
    status = Overload();
  } else if (request->has_attention()) {
    status = PlayAttention(*request, writer);
  } else {
    Script script(writer);
    status = Play(prompt, context, &script);
  }
  const std::lock_guard lock(mutex_);
  --running_;
  if (context->IsCancelled()) {
    cancelled_ = true;
    cancelled_changed_.notify_all();
  }
  return status;
}

grpc::Status FakeGeneration::GenerateUnary(grpc::ServerContext*, const v1::GenerateRequest* request,
                                           v1::GenerateResponse* response) {
  if (request->text() == "refuse") return Refusal();
  v1::Choice* choice = response->add_choices();
  choice->set_text("Hello, world!");
  choice->set_bytes("Hello, world!");
  choice->mutable_finished()->set_reason(v1::FINISH_REASON_STOP_STRING);
  response->mutable_done()->mutable_usage()->set_completion_tokens(3);
  return grpc::Status::OK;
}

grpc::Status FakeGeneration::Tokenize(grpc::ServerContext*, const v1::TokenizeRequest* request,
                                      v1::TokenizeResponse* response) {
  response->add_byte_offsets(0);
  for (const char c : request->text()) {
    response->add_token_ids(static_cast<unsigned char>(c));
    response->add_byte_offsets(static_cast<uint32_t>(response->token_ids_size()));
  }
  response->set_token_count(static_cast<uint32_t>(request->text().size()));
  return grpc::Status::OK;
}

grpc::Status FakeGeneration::Detokenize(grpc::ServerContext*, const v1::DetokenizeRequest* request,
                                        v1::DetokenizeResponse* response) {
  for (const uint32_t id : request->token_ids()) {
    response->mutable_text()->push_back(static_cast<char>(id));
  }
  return grpc::Status::OK;
}

v1::GenerateRequest FakeGeneration::last_request() {
  const std::lock_guard lock(mutex_);
  return last_request_;
}

std::string FakeGeneration::last_authorization() {
  const std::lock_guard lock(mutex_);
  return last_authorization_;
}

int FakeGeneration::requests() {
  const std::lock_guard lock(mutex_);
  return requests_;
}

int FakeGeneration::most_at_once() {
  const std::lock_guard lock(mutex_);
  return most_at_once_;
}

size_t FakeGeneration::connections() {
  const std::lock_guard lock(mutex_);
  return peers_.size();
}

bool FakeGeneration::WaitUntilCancelled() {
  std::unique_lock lock(mutex_);
  return cancelled_changed_.wait_for(lock, std::chrono::minutes(1), [this] { return cancelled_; });
}

grpc::Status FakeControl::DescribeModel(grpc::ServerContext*, const v1::DescribeModelRequest*,
                                        v1::DescribeModelResponse* response) {
  response->set_model("tiny");
  response->set_vocabulary_size(300);
  for (int layer = 0; layer < 3; ++layer) response->add_layers()->set_window(0);
  response->mutable_limits()->set_context_length(64);
  response->mutable_limits()->mutable_inspection_retention()->set_seconds(600);
  return grpc::Status::OK;
}

grpc::Status FakeControl::GetLoad(grpc::ServerContext*, const v1::GetLoadRequest*,
                                  v1::GetLoadResponse* response) {
  response->set_kv_blocks_free(9);
  response->set_steps(18446744073709551615u);
  return grpc::Status::OK;
}

grpc::Status FakeHealth::Check(grpc::ServerContext*,
                               const grpc::health::v1::HealthCheckRequest* request,
                               grpc::health::v1::HealthCheckResponse* response) {
  using grpc::health::v1::HealthCheckResponse;
  if (request->service().empty()) {
    response->set_status(HealthCheckResponse::SERVING);
  } else if (request->service() == "stuck") {
    response->set_status(HealthCheckResponse::NOT_SERVING);
  } else {
    return grpc::Status(grpc::StatusCode::NOT_FOUND, "no such service");
  }
  return grpc::Status::OK;
}

FakeServer::FakeServer() {
  grpc::ServerBuilder builder;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
  builder.RegisterService(&generation_);
  builder.RegisterService(&inspection_);
  builder.RegisterService(&control_);
  builder.RegisterService(&health_);
  server_ = builder.BuildAndStart();
}

FakeServer::~FakeServer() {
  server_->Shutdown(std::chrono::system_clock::now() + std::chrono::seconds(1));
}

}  // namespace vitrine::client
