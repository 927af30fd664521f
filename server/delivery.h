// The thread that turns step events into text and calls the consumers, so that neither costs the
// engine time: the engine posts one vector of events per step.
#pragma once

#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "model/tokenizer.h"
#include "server/metrics.h"
#include "server/request.h"
#include "server/request_archive.h"
#include "server/token_sink.h"

namespace vitrine::server {

struct DeliveryOptions {
  bool log_requests = false;          // One line to stderr per ended request.
  RequestArchive* archive = nullptr;  // Told of the ends of requests with a record.
};

class Delivery {
 public:
  // All must outlive the object.
  Delivery(const Tokenizer& tokenizer, RequestCounters& counters, DeliveryOptions options);
  ~Delivery();  // Stops the thread after everything posted has been handled.
  Delivery(const Delivery&) = delete;
  Delivery& operator=(const Delivery&) = delete;

  // Starts the thread. Without it, Deliver does the work on the caller's.
  void Start();

  // Takes over `events` and leaves it empty. Any thread; never waits for a consumer.
  void Post(std::vector<StepEvent>& events);

  // Handles everything posted so far. Only where Start was not called.
  void Deliver();

 private:
  void Run();
  void Handle(StepEvent& event);
  void NoteTokens(ActiveRequest& request, int choice);
  void EndChoice(ActiveRequest& request, int choice);
  void EndRequest(ActiveRequest& request);
  void HandleAll();

  const Tokenizer& tokenizer_;
  RequestCounters& counters_;
  const DeliveryOptions options_;

  std::mutex mutex_;
  std::condition_variable posted_changed_;
  std::vector<StepEvent> posted_;  // Guarded by mutex_.
  bool stopping_ = false;          // Guarded by mutex_.

  std::vector<StepEvent> taken_;  // Delivery thread.
  std::thread thread_;
};

}  // namespace vitrine::server
