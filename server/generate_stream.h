// One Generate call: a reactor that streams an answer as events.
//
// One write is in flight at a time; what comes meanwhile gathers in the next messages, so a slow
// client delays nobody and loses nothing, and memory per stream is bounded by its answer. Finish is
// called exactly once. The stream owns itself until OnDone; delivery shares it until the end.
#pragma once

#include <grpcpp/server_context.h>
#include <grpcpp/support/server_callback.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>

#include "server/clock.h"
#include "server/options.h"
#include "server/request.h"
#include "server/stream_messages.h"
#include "server/stream_set.h"
#include "server/token_sink.h"
#include "vitrine/v1/generation.grpc.pb.h"

namespace vitrine::server {

class GenerateStream final : public grpc::ServerWriteReactor<v1::GenerateEvent>,
                             public TokenSink,
                             public WatchedStream {
 public:
  // `set` and `clock` must outlive the stream; `context` lives until OnDone.
  static std::shared_ptr<GenerateStream> Create(grpc::CallbackServerContext* context,
                                                StreamSet& set, const Clock& clock,
                                                const TransportLimits& limits);

  // Before the request is queued, since its tokens may come at once. Sends nothing.
  void Attach(std::shared_ptr<ActiveRequest> request, bool with_prompt_ids);
  // The request is queued: sends Accepted, then whatever has come already.
  void Open();
  // The request was refused, before or after Attach: sends only this. Instead of Open.
  void Refuse(const grpc::Status& status);

  // Delivery thread.
  void OnPromptLogprobs(std::span<const PromptToken> prompt) override;
  void OnToken(const AnswerToken& token) override;
  void OnChoiceEnd(const ChoiceEnd& end) override;
  void OnAttention(TraceChunk chunk) override;
  void OnEnd(const AnswerEnd& end) override;

  // Any thread. Whether a write has been in flight for longer than `limit_us`; if so the call is
  // cancelled and will end with RESOURCE_EXHAUSTED.
  void EndIfStalled(int64_t now_us, int64_t limit_us) override;

 private:
  GenerateStream(grpc::CallbackServerContext* context, StreamSet& set, const Clock& clock,
                 const TransportLimits& limits);

  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

  // Callers hold mutex_.
  void Advance();
  void FinishOnce(const grpc::Status& status);

  grpc::CallbackServerContext* const context_;
  StreamSet& set_;
  const Clock& clock_;

  std::mutex mutex_;  // Guards all below: callbacks of one call may run at the same time.
  std::shared_ptr<GenerateStream> self_;
  std::shared_ptr<ActiveRequest> request_;
  StreamMessages messages_;
  v1::GenerateEvent in_flight_;
  int64_t write_began_us_ = kNever;  // kNever: no write is in flight.
  bool is_open_ = false;
  bool has_end_ = false;  // final_status_ follows messages_.
  bool is_dead_ = false;  // No further write: cancelled, or a write failed.
  bool is_stalled_ = false;
  bool is_finished_ = false;  // Finish was called.
  grpc::Status final_status_;
};

}  // namespace vitrine::server
