// One GetAttention call: computes a kept request again, choice after choice, and streams the rows.
// Like GenerateStream it has one write in flight, finishes once, and owns itself until OnDone.
#pragma once

#include <grpcpp/server_context.h>
#include <grpcpp/support/server_callback.h>

#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "server/clock.h"
#include "server/request.h"
#include "server/request_queue.h"
#include "server/token_sink.h"
#include "vitrine/v1/inspection.grpc.pb.h"

namespace vitrine::server {

class ReplayStream final : public grpc::ServerWriteReactor<v1::AttentionChunk>, public TokenSink {
 public:
  // `queue` and `clock` must outlive the stream. `request_id` is that of the request looked at.
  static std::shared_ptr<ReplayStream> Create(std::string request_id, RequestQueue& queue,
                                              const Clock& clock);

  // Computes `requests`, which have their times, one after the other. Instead of Refuse.
  void Start(std::vector<GenerationRequest> requests);
  void Refuse(const absl::Status& status);

  // Delivery thread.
  void OnToken(const AnswerToken& /*token*/) override {}
  void OnAttention(TraceChunk chunk) override;
  void OnEnd(const AnswerEnd& end) override;

 private:
  struct Message {
    v1::AttentionChunk chunk;
    CreditHold hold;
  };

  ReplayStream(std::string request_id, RequestQueue& queue, const Clock& clock)
      : request_id_(std::move(request_id)), queue_(queue), clock_(clock) {}

  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

  // Callers hold mutex_.
  void SubmitNext();
  void End(const absl::Status& status);
  void Advance();

  const std::string request_id_;
  RequestQueue& queue_;
  const Clock& clock_;

  std::mutex mutex_;  // Guards all below.
  std::shared_ptr<ReplayStream> self_;
  std::deque<GenerationRequest> requests_;  // Still to be computed.
  std::shared_ptr<ActiveRequest> active_;
  std::deque<Message> waiting_;
  v1::AttentionChunk in_flight_;
  TraceEnd total_ = {.is_complete = true};
  float max_row_sum_error_ = 0.0f;
  float max_lse_delta_ = 0.0f;
  TraceOrigin origin_ = {.is_replay = true};
  uint64_t next_sequence_number_ = 0;
  bool is_writing_ = false;
  bool is_dead_ = false;  // The client is gone.
  bool has_end_ = false;  // final_status_ follows waiting_.
  bool is_finished_ = false;
  absl::Status final_status_;
};

}  // namespace vitrine::server
