#include "server/replay_stream.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "server/answer_messages.h"
#include "server/attention_messages.h"
#include "server/grpc_deadline.h"
#include "server/grpc_status.h"

namespace vitrine::server {

std::shared_ptr<ReplayStream> ReplayStream::Create(grpc::CallbackServerContext* context,
                                                   std::string request_id, const Parts& parts) {
  std::shared_ptr<ReplayStream> stream(new ReplayStream(context, std::move(request_id), parts));
  {
    std::lock_guard lock(stream->mutex_);
    stream->self_ = stream;
  }
  parts.set.Add(stream.get());
  return stream;
}

void ReplayStream::Start(std::vector<GenerationRequest> requests) {
  std::lock_guard lock(mutex_);
  requests_.assign(std::make_move_iterator(requests.begin()),
                   std::make_move_iterator(requests.end()));
  SubmitNext();
  Advance();
}

void ReplayStream::Refuse(const absl::Status& status) {
  std::lock_guard lock(mutex_);
  End(status);
  Advance();
}

void ReplayStream::SubmitNext() {
  if (is_dead_ || requests_.empty()) {
    // All is sent, or there was nothing to show.
    TraceChunk end;
    end.sequence_number = next_sequence_number_++;
    end.end = total_;
    end.max_row_sum_error = max_row_sum_error_;
    end.max_lse_delta = max_lse_delta_;
    waiting_.push_back({.chunk = MakeAttentionChunk(end, request_id_, origin_), .hold = {}});
    End(absl::OkStatus());
    return;
  }
  origin_ = requests_.front().trace->origin;
  active_ = std::make_shared<ActiveRequest>(NewRequestId(), std::move(requests_.front()), self_);
  requests_.pop_front();
  if (const absl::Status status = parts_.queue.Push(active_, parts_.clock.NowMicros());
      !status.ok()) {
    active_->sink.reset();
    End(status);
  }
}

void ReplayStream::End(const absl::Status& status) {
  has_end_ = true;
  final_status_ = status;
}

void ReplayStream::OnAttention(TraceChunk chunk) {
  std::lock_guard lock(mutex_);
  if (is_dead_) return;
  if (chunk.end.has_value()) {
    // Of one choice; the client sees one end of all.
    total_.is_complete = total_.is_complete && chunk.end->is_complete;
    total_.rows += chunk.end->rows;
    total_.bytes += chunk.end->bytes;
    total_.added_us += chunk.end->added_us;
    max_row_sum_error_ = std::max(max_row_sum_error_, chunk.max_row_sum_error);
    max_lse_delta_ = std::max(max_lse_delta_, chunk.max_lse_delta);
    return;
  }
  chunk.sequence_number = next_sequence_number_++;
  CreditHold hold = std::move(chunk.hold);
  waiting_.push_back(
      {.chunk = MakeAttentionChunk(chunk, request_id_, origin_), .hold = std::move(hold)});
  Advance();
}

void ReplayStream::OnEnd(const AnswerEnd& end) {
  std::lock_guard lock(mutex_);
  if (const absl::Status status = StatusOf(end); !status.ok()) {
    End(status);
  } else {
    SubmitNext();
  }
  Advance();
}

void ReplayStream::OnWriteDone(bool ok) {
  std::lock_guard lock(mutex_);
  write_began_us_ = kNever;
  if (!ok) {
    is_dead_ = true;
    if (active_ != nullptr) active_->cancelled = true;
  }
  Advance();
}

void ReplayStream::OnCancel() {
  std::lock_guard lock(mutex_);
  is_dead_ = true;
  if (active_ != nullptr) active_->cancelled = true;
  Advance();
}

void ReplayStream::EndIfStalled(int64_t now_us, int64_t limit_us) {
  {
    std::lock_guard lock(mutex_);
    if (is_stalled_ || write_began_us_ == kNever || now_us - write_began_us_ < limit_us) return;
    is_stalled_ = true;
  }
  // Not under the lock: it may call back.
  context_->TryCancel();
}

void ReplayStream::OnDone() {
  parts_.set.Remove(this);
  // Outlives the lock: it may be the last owner of the mutex.
  std::shared_ptr<ReplayStream> last_reference;
  std::lock_guard lock(mutex_);
  last_reference.swap(self_);
}

void ReplayStream::Advance() {
  if (is_finished_ || write_began_us_ != kNever) return;
  if (is_dead_) {
    waiting_.clear();
    is_finished_ = true;
    Finish(is_stalled_
               ? grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED, "the client reads too slowly")
               : StatusOfCancelled(*context_));
    return;
  }
  if (!waiting_.empty()) {
    in_flight_ = std::move(waiting_.front().chunk);
    waiting_.pop_front();
    write_began_us_ = parts_.clock.NowMicros();
    StartWrite(&in_flight_);
    return;
  }
  if (!has_end_) return;
  is_finished_ = true;
  Finish(ToGrpcStatus(final_status_));
}

}  // namespace vitrine::server
