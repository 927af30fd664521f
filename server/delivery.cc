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

// After tokens of a choice may have gone to the sink: keeps them, and hands over the rows that led
// to them.
void Delivery::NoteTokens(ActiveRequest& request, int choice) {
  const std::vector<TokenId>& ids = request.answers->ids(choice);
  if (request.record != nullptr) request.record->AddTokens(choice, ids, tokenizer_);
  if (request.trace == nullptr || request.cancelled) return;
  const size_t end = request.request.prompt.size() + ids.size();
  request.trace->Release(choice, static_cast<int64_t>(end), *request.sink);
}

void Delivery::EndChoice(ActiveRequest& request, int choice) {
  const ChoiceEnding& ending = request.endings[static_cast<size_t>(choice)];
  const ChoiceEnd& end = request.answers->EndChoice(choice, ending, *request.sink);
  // Known here only: a failure behind a text stop did not happen.
  if (end.ending == Ending::kFailed) request.failed = true;
  NoteTokens(request, choice);
  if (request.record != nullptr) request.record->EndChoice(end);
  if (request.trace == nullptr) return;
  // The last row led to no token of the answer, unless it led to the one that ended it.
  const bool is_cut = end.reason == FinishReason::kStopString ||
                      (end.ending != Ending::kFinished && end.ending != Ending::kShutDown);
  request.trace->EndChoice(choice, is_cut, *request.sink);
}

void Delivery::EndRequest(ActiveRequest& request) {
  AnswerEnd end = request.answers->TakeEnd(request.timeline);
  if (request.trace != nullptr) {
    request.trace->Finish(*request.sink);
    end.attention_bytes = request.trace->bytes();
  }
  // Counted and kept first, so that a client that has seen the end also sees it there.
  counters_.CountEnd(end.ending);
  if (request.record != nullptr) {
    request.record->End(end);
    if (options_.archive != nullptr) options_.archive->Close(*request.record);
  }
  if (options_.log_requests) LogRequestEnd(request, end);
  request.sink->OnEnd(end);
  request.sink.reset();
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
  if (event.prompt_logprobs != nullptr) {
    if (!request.cancelled) request.answers->ScorePrompt(*event.prompt_logprobs, *request.sink);
    return;
  }
  if (event.is_end) {
    EndChoice(request, event.choice);
    if (request.answers->is_complete()) EndRequest(request);
    return;
  }
  if (!request.cancelled && !request.answers->Append(event.choice, event.token,
                                                     std::move(event.logprobs), *request.sink)) {
    request.text_stops |= 1u << event.choice;
  }
  NoteTokens(request, event.choice);
}

}  // namespace vitrine::server
