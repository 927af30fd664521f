#include "server/generate_stream.h"

#include <optional>
#include <utility>

#include "server/answer_messages.h"
#include "server/grpc_deadline.h"
#include "server/grpc_status.h"

namespace vitrine::server {

std::shared_ptr<GenerateStream> GenerateStream::Create(grpc::CallbackServerContext* context,
                                                       StreamSet& set, const Clock& clock,
                                                       const TransportLimits& limits) {
  std::shared_ptr<GenerateStream> stream(new GenerateStream(context, set, clock, limits));
  {
    std::lock_guard lock(stream->mutex_);
    stream->self_ = stream;
  }
  set.Add(stream.get());
  return stream;
}

GenerateStream::GenerateStream(grpc::CallbackServerContext* context, StreamSet& set,
                               const Clock& clock, const TransportLimits& limits)
    : context_(context),
      set_(set),
      clock_(clock),
      messages_(static_cast<size_t>(limits.max_event_bytes)) {}

void GenerateStream::Attach(std::shared_ptr<ActiveRequest> request, bool with_prompt_ids) {
  std::lock_guard lock(mutex_);
  request_ = std::move(request);
  messages_.Accept(*request_, with_prompt_ids);
}

void GenerateStream::Open() {
  std::lock_guard lock(mutex_);
  is_open_ = true;
  Advance();
}

void GenerateStream::Refuse(const grpc::Status& status) {
  std::lock_guard lock(mutex_);
  is_open_ = true;
  has_end_ = true;
  messages_.Clear();
  final_status_ = status;
  Advance();
}

void GenerateStream::OnPromptLogprobs(std::span<const PromptToken> prompt) {
  std::lock_guard lock(mutex_);
  if (is_dead_) return;
  messages_.AddPromptLogprobs(prompt);
  Advance();
}

void GenerateStream::OnToken(const AnswerToken& token) {
  std::lock_guard lock(mutex_);
  if (is_dead_) return;
  messages_.AddToken(token);
  Advance();
}

void GenerateStream::OnChoiceEnd(const ChoiceEnd& end) {
  std::lock_guard lock(mutex_);
  if (is_dead_) return;
  messages_.EndChoice(end, request_->request.stop);
  Advance();
}

void GenerateStream::OnAttention(TraceChunk chunk) {
  std::lock_guard lock(mutex_);
  if (is_dead_) return;
  messages_.AddAttention(std::move(chunk), *request_);
  Advance();
}

void GenerateStream::OnEnd(const AnswerEnd& end) {
  std::lock_guard lock(mutex_);
  if (is_dead_) return;
  const absl::Status status = StatusOf(end);
  if (status.ok()) messages_.Finish(end, request_->request);
  has_end_ = true;
  final_status_ = ToGrpcStatus(status);
  Advance();
}

void GenerateStream::EndIfStalled(int64_t now_us, int64_t limit_us) {
  {
    std::lock_guard lock(mutex_);
    if (is_stalled_ || write_began_us_ == kNever || now_us - write_began_us_ < limit_us) return;
    is_stalled_ = true;
  }
  // Not under the lock: it may call back. The stalled bytes cannot be taken back, so the client
  // sees CANCELLED if it ever reads again.
  context_->TryCancel();
}

void GenerateStream::OnWriteDone(bool ok) {
  std::lock_guard lock(mutex_);
  write_began_us_ = kNever;
  if (!ok) {
    is_dead_ = true;
    if (request_ != nullptr) request_->cancelled = true;
  }
  Advance();
}

void GenerateStream::OnCancel() {
  std::lock_guard lock(mutex_);
  is_dead_ = true;
  if (request_ != nullptr) request_->cancelled = true;
  Advance();
}

void GenerateStream::OnDone() {
  set_.Remove(this);
  // Outlives the lock: it may be the last owner of the mutex.
  std::shared_ptr<GenerateStream> last_reference;
  std::lock_guard lock(mutex_);
  last_reference.swap(self_);
}

void GenerateStream::Advance() {
  if (!is_open_ || is_finished_ || write_began_us_ != kNever) return;
  if (is_dead_) {
    messages_.Clear();
    if (is_stalled_) {
      FinishOnce({grpc::StatusCode::RESOURCE_EXHAUSTED, "the client reads too slowly"});
    } else {
      FinishOnce(StatusOfCancelled(*context_));
    }
    return;
  }
  if (std::optional<v1::GenerateEvent> next = messages_.Take()) {
    in_flight_ = *std::move(next);
    write_began_us_ = clock_.NowMicros();
    StartWrite(&in_flight_);
    return;
  }
  if (has_end_) FinishOnce(final_status_);
}

void GenerateStream::FinishOnce(const grpc::Status& status) {
  is_finished_ = true;
  Finish(status);
}

}  // namespace vitrine::server
