#include "server/delivery.h"

#include <iterator>
#include <utility>

#include "server/answer_set.h"
#include "server/request_log.h"
#include "server/request_trace.h"
#include "server/token_sink.h"

namespace vitrine::server {

ActiveRequest::ActiveRequest(std::string request_id, GenerationRequest valid_request,
                             std::shared_ptr<TokenSink> consumer)
    : id(std::move(request_id)),
      request(std::move(valid_request)),
      endings(static_cast<size_t>(request.num_choices)),
      progress{.open_choices = request.num_choices},
      sink(std::move(consumer)) {}

ActiveRequest::~ActiveRequest() = default;

Delivery::Delivery(const Tokenizer& tokenizer, RequestCounters& counters, DeliveryOptions options)
    : tokenizer_(tokenizer), counters_(counters), options_(options) {}

Delivery::~Delivery() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  posted_changed_.notify_one();
  if (thread_.joinable()) thread_.join();
}

void Delivery::Start() {
  thread_ = std::thread([this] { Run(); });
}

void Delivery::Post(std::vector<StepEvent>& events) {
  if (events.empty()) return;
  {
    std::lock_guard lock(mutex_);
    if (posted_.empty()) {
      posted_.swap(events);
    } else {
      posted_.insert(posted_.end(), std::make_move_iterator(events.begin()),
                     std::make_move_iterator(events.end()));
    }
  }
  events.clear();
  posted_changed_.notify_one();
}

void Delivery::Deliver() {
  {
    std::lock_guard lock(mutex_);
    taken_.swap(posted_);
  }
  HandleAll();
}

void Delivery::Run() {
  for (;;) {
    {
      std::unique_lock lock(mutex_);
      posted_changed_.wait(lock, [this] { return stopping_ || !posted_.empty(); });
      if (posted_.empty()) return;
      taken_.swap(posted_);
    }
    HandleAll();
  }
}

void Delivery::HandleAll() {
  for (StepEvent& event : taken_) Handle(event);
  taken_.clear();
}

// The rows that led to tokens which the sink has got.
void Delivery::ReleaseRows(ActiveRequest& request, int choice) {
  if (request.trace == nullptr || request.cancelled) return;
  const int64_t end = static_cast<int64_t>(request.request.prompt.size()) +
                      request.answers->completion_tokens(choice);
  request.trace->Release(choice, end, *request.sink);
}

void Delivery::EndRows(ActiveRequest& request, const ChoiceEnd& end) {
  if (request.trace == nullptr) return;
  ReleaseRows(request, end.choice);
  const bool is_cut = end.reason == FinishReason::kStopString;
  request.trace->EndChoice(end.choice, is_cut, *request.sink);
}

void Delivery::Handle(StepEvent& event) {
  ActiveRequest& request = *event.request;
  if (request.answers == nullptr) {
    request.answers = std::make_unique<AnswerSet>(tokenizer_, request.request);
    if (request.request.trace != nullptr) {
      request.trace = std::make_unique<RequestTrace>(*request.request.trace, request.trace_credit);
    }
  }
  if (event.traced != nullptr) {
    if (!request.cancelled) request.trace->Add(std::move(*event.traced), *request.sink);
    return;
  }
  AnswerSet& answers = *request.answers;
  if (event.prompt_logprobs != nullptr) {
    if (!request.cancelled) answers.ScorePrompt(*event.prompt_logprobs, *request.sink);
    return;
  }
  if (!event.is_end) {
    if (!request.cancelled && !answers.Append(event.choice, event.token, std::move(event.logprobs),
                                              *request.sink)) {
      request.text_stops |= 1u << event.choice;
    }
    ReleaseRows(request, event.choice);
    return;
  }
  const ChoiceEnding& ending = request.endings[static_cast<size_t>(event.choice)];
  const ChoiceEnd& choice_end = answers.EndChoice(event.choice, ending, *request.sink);
  // Known here only: a failure behind a text stop did not happen.
  if (choice_end.ending == Ending::kFailed) request.failed = true;
  EndRows(request, choice_end);
  if (!answers.is_complete()) return;
  AnswerEnd end = answers.TakeEnd(request.timeline);
  if (request.trace != nullptr) {
    request.trace->Finish(*request.sink);
    end.attention_bytes = request.trace->bytes();
  }
  // Counted first, so that a client that has seen the end also sees it counted.
  counters_.CountEnd(end.ending);
  if (options_.log_requests) LogRequestEnd(request, end);
  request.sink->OnEnd(end);
  request.sink.reset();
}

}  // namespace vitrine::server
