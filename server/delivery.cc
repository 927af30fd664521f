#include "server/delivery.h"

#include <iterator>
#include <utility>

#include "server/answer_assembler.h"
#include "server/request_log.h"
#include "server/token_sink.h"

namespace vitrine::server {

ActiveRequest::ActiveRequest(std::string request_id, GenerationRequest valid_request,
                             std::shared_ptr<TokenSink> consumer)
    : id(std::move(request_id)), request(std::move(valid_request)), sink(std::move(consumer)) {}

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
  if (request.assembler == nullptr) {
    request.assembler = std::make_unique<AnswerAssembler>(tokenizer_, request.request);
  }
  if (!event.is_end) {
    if (!request.cancelled && !request.assembler->Append(event.token, *request.sink)) {
      request.text_stop = true;
    }
    return;
  }
  const AnswerEnd end = request.assembler->Finish(request.end, *request.sink);
  // Counted first, so that a client that has seen the end also sees it counted.
  counters_.CountEnd(end.ending);
  if (options_.log_requests) LogRequestEnd(request, end);
  request.sink->OnEnd(end);
  request.sink.reset();
}

}  // namespace vitrine::server
