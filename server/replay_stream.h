// One GetAttention call: computes a kept request again, choice after choice, and streams the rows.
// Like GenerateStream it has one write in flight, finishes once, and owns itself until OnDone.
#pragma once

#include <grpcpp/server_context.h>
#include <grpcpp/support/server_callback.h>

#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "server/clock.h"
#include "server/request.h"
#include "server/request_queue.h"
#include "server/stream_set.h"
#include "server/token_sink.h"
#include "vitrine/v1/inspection.grpc.pb.h"

namespace vitrine::server {

class ReplayStream final : public grpc::ServerWriteReactor<v1::AttentionChunk>,
                           public TokenSink,
                           public WatchedStream {
 public:
  struct Parts {
    StreamSet& set;
    RequestQueue& queue;
    const Clock& clock;
  };
  // All parts must outlive the stream; `context` lives until OnDone. `request_id` is that of the
  // request looked at.
  static std::shared_ptr<ReplayStream> Create(grpc::CallbackServerContext* context,
                                              std::string request_id, const Parts& parts);

  // Computes `requests`, which have their times, one after the other. Instead of Refuse.
  void Start(std::vector<GenerationRequest> requests);
  void Refuse(const absl::Status& status);

  // Delivery thread.
  void OnPromptLogprobs(std::span<const PromptToken> /*prompt*/) override {}
  void OnToken(const AnswerToken& /*token*/) override {}
  void OnAttention(TraceChunk chunk) override;
  void OnEnd(const AnswerEnd& end) override;

  // Any thread. The call is cancelled and will end with RESOURCE_EXHAUSTED.
  void EndIfStalled(int64_t now_us, int64_t limit_us) override;

 private:
  struct Message {
    v1::AttentionChunk chunk;
    CreditHold hold;
  };

  ReplayStream(grpc::CallbackServerContext* context, std::string request_id, const Parts& parts)
      : context_(context), request_id_(std::move(request_id)), parts_(parts) {
    origin_.is_replay = true;
  }

  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

  // Callers hold mutex_.
  void SubmitNext();
  void End(const absl::Status& status);
  void Advance();

  grpc::CallbackServerContext* const context_;
  const std::string request_id_;
  const Parts parts_;

  std::mutex mutex_;  // Guards all below.
  std::shared_ptr<ReplayStream> self_;
  std::deque<GenerationRequest> requests_;  // Still to be computed.
  std::shared_ptr<ActiveRequest> active_;
  std::deque<Message> waiting_;
  v1::AttentionChunk in_flight_;
  TraceEnd total_ = {.is_complete = true};
  float max_row_sum_error_ = 0.0f;
  float max_lse_delta_ = 0.0f;
  TraceOrigin origin_;
  uint64_t next_sequence_number_ = 0;
  int64_t write_began_us_ = kNever;  // kNever: no write is in flight.
  bool is_dead_ = false;             // The client is gone.
  bool is_stalled_ = false;
  bool has_end_ = false;  // final_status_ follows waiting_.
  bool is_finished_ = false;
  absl::Status final_status_;
};

}  // namespace vitrine::server
