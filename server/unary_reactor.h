// One GenerateUnary call: collects an answer and sends it as one message. Same work and same text
// as the stream. It owns itself until OnDone; delivery shares it until the end.
#pragma once

#include <grpcpp/support/server_callback.h>

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "server/options.h"
#include "server/request.h"
#include "server/token_sink.h"
#include "vitrine/v1/generation.grpc.pb.h"

namespace vitrine::server {

class UnaryReactor final : public grpc::ServerUnaryReactor, public TokenSink {
 public:
  // `context` and `response` live until OnDone.
  static std::shared_ptr<UnaryReactor> Create(const grpc::CallbackServerContext& context,
                                              v1::GenerateResponse* response,
                                              const TransportLimits& limits);

  // Before the request is queued.
  void Attach(std::shared_ptr<ActiveRequest> request, bool with_prompt_ids);
  // The request was refused. Nothing else comes.
  void Refuse(const grpc::Status& status);

  void OnPromptLogprobs(std::span<const PromptToken> prompt) override;
  void OnToken(const AnswerToken& token) override;
  void OnEnd(const AnswerEnd& end) override;

 private:
  UnaryReactor(const grpc::CallbackServerContext& context, v1::GenerateResponse* response,
               const TransportLimits& limits)
      : context_(context), response_(response), limits_(limits) {}

  void OnCancel() override;
  void OnDone() override;
  void FinishOnce(const grpc::Status& status);  // The caller holds mutex_.

  const grpc::CallbackServerContext& context_;
  v1::GenerateResponse* const response_;
  const TransportLimits limits_;

  std::mutex mutex_;  // Guards all below, and *response_ until Finish.
  std::shared_ptr<UnaryReactor> self_;
  std::shared_ptr<ActiveRequest> request_;
  std::vector<std::string> bytes_;  // [num_choices]
  bool is_finished_ = false;
};

}  // namespace vitrine::server
