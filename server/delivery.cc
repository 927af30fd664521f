#include "server/delivery.h"

#include <iterator>
#include <utility>

#include "server/answer_set.h"
#include "server/request_log.h"
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

void Delivery::Handle(StepEvent& event) {
  ActiveRequest& request = *event.request;
  if (request.answers == nullptr) {
    request.answers = std::make_unique<AnswerSet>(tokenizer_, request.request);
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
    return;
  }
  const ChoiceEnding& ending = request.endings[static_cast<size_t>(event.choice)];
  // Known here only: a failure behind a text stop did not happen.
  if (answers.EndChoice(event.choice, ending, *request.sink).ending == Ending::kFailed) {
    request.failed = true;
  }
  if (!answers.is_complete()) return;
  const AnswerEnd end = answers.TakeEnd(request.timeline);
  // Counted first, so that a client that has seen the end also sees it counted.
  counters_.CountEnd(end.ending);
  if (options_.log_requests) LogRequestEnd(request, end);
  request.sink->OnEnd(end);
  request.sink.reset();
}

}  // namespace vitrine::server
