// SIGTERM and SIGINT as plain state.
#pragma once

#include <atomic>
#include <thread>

#include "absl/functional/function_ref.h"

namespace vitrine::server {

// Create it in main before any other thread: it blocks both signals for all later ones.
class SignalWatcher {
 public:
  SignalWatcher();
  ~SignalWatcher();
  SignalWatcher(const SignalWatcher&) = delete;
  SignalWatcher& operator=(const SignalWatcher&) = delete;

  // Until then a signal ends the process with exit code 0: nothing has been promised to anybody.
  void StartServing() { is_serving_ = true; }

  // Returns at the first signal, or soon after `is_over` holds.
  void WaitForFirst(absl::FunctionRef<bool()> is_over) const;
  bool HasSecond() const { return count_ >= 2; }

 private:
  void Run();

  std::atomic<bool> is_serving_ = false;
  std::atomic<bool> is_over_ = false;
  std::atomic<int> count_ = 0;
  std::thread thread_;
};

}  // namespace vitrine::server
