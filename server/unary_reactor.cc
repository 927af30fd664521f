#include "server/unary_reactor.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "server/answer_messages.h"
#include "server/grpc_deadline.h"
#include "server/grpc_status.h"

namespace vitrine::server {

std::shared_ptr<UnaryReactor> UnaryReactor::Create(const grpc::CallbackServerContext& context,
                                                   v1::GenerateResponse* response,
                                                   const TransportLimits& limits) {
  std::shared_ptr<UnaryReactor> reactor(new UnaryReactor(context, response, limits));
  std::lock_guard lock(reactor->mutex_);
  reactor->self_ = reactor;
  return reactor;
}

void UnaryReactor::Attach(std::shared_ptr<ActiveRequest> request, bool with_prompt_ids) {
  std::lock_guard lock(mutex_);
  request_ = std::move(request);
  *response_->mutable_accepted() = MakeAccepted(*request_, with_prompt_ids);
  for (int i = 0; i < request_->request.num_choices; ++i) {
    response_->add_choices()->set_index(static_cast<uint32_t>(i));
  }
  bytes_.resize(static_cast<size_t>(request_->request.num_choices));
}

void UnaryReactor::Refuse(const grpc::Status& status) {
  std::lock_guard lock(mutex_);
  FinishOnce(status);
}

void UnaryReactor::OnPromptLogprobs(std::span<const PromptToken> prompt) {
  std::lock_guard lock(mutex_);
  if (!is_finished_) AddPromptLogprobs(prompt, *response_->mutable_accepted());
}

void UnaryReactor::OnToken(const AnswerToken& token) {
  std::lock_guard lock(mutex_);
  if (is_finished_) return;
  v1::Choice& choice = *response_->mutable_choices(token.choice);
  v1::Token& message = *choice.add_tokens();
  message = MakeToken(token);
  choice.mutable_text()->append(message.text());
  message.clear_text();
  bytes_[static_cast<size_t>(token.choice)].append(token.bytes);
}

void UnaryReactor::OnEnd(const AnswerEnd& end) {
  std::lock_guard lock(mutex_);
  if (is_finished_) return;
  if (const absl::Status status = StatusOf(end); !status.ok()) {
    FinishOnce(ToGrpcStatus(status));
    return;
  }
  const GenerationRequest& request = request_->request;
  for (const ChoiceEnd& choice_end : end.choices) {
    v1::Choice& choice = *response_->mutable_choices(choice_end.choice);
    std::string& bytes = bytes_[static_cast<size_t>(choice_end.choice)];
    bytes.resize(static_cast<size_t>(choice_end.answer_bytes));
    choice.set_bytes(std::move(bytes));
    choice.mutable_text()->append(choice_end.tail_text);
    v1::ChoiceFinished& finished = *choice.mutable_finished();
    finished = MakeChoiceFinished(choice_end, request.stop);
    finished.clear_tail_text();
    finished.clear_tail_bytes();
  }
  *response_->mutable_done() = MakeDone(end, static_cast<int>(request.prompt.size()));
  const size_t size = response_->ByteSizeLong();
  if (size > static_cast<size_t>(limits_.max_unary_bytes)) {
    FinishOnce(ToGrpcStatus(absl::ResourceExhaustedError(
        absl::StrCat("the answer has ", size, " bytes, at most ", limits_.max_unary_bytes,
                     " fit one message: use Generate"))));
    return;
  }
  FinishOnce(grpc::Status::OK);
}

void UnaryReactor::OnCancel() {
  std::lock_guard lock(mutex_);
  if (request_ != nullptr) request_->cancelled = true;
  if (is_finished_) return;
  FinishOnce(StatusOfCancelled(context_));
}

void UnaryReactor::OnDone() {
  // Outlives the lock: it may be the last owner of the mutex.
  std::shared_ptr<UnaryReactor> last_reference;
  std::lock_guard lock(mutex_);
  last_reference.swap(self_);
}

void UnaryReactor::FinishOnce(const grpc::Status& status) {
  is_finished_ = true;
  Finish(status);
}

}  // namespace vitrine::server
