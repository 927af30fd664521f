// Ends the RPC under way from another thread.
#pragma once

#include <functional>
#include <mutex>

namespace vitrine::client {

// Thread-safe. Sticky: once cancelled, everything armed later is cancelled at once, until Reset.
class Cancellation {
 public:
  void Cancel();
  void Reset();
  bool cancelled() const;

  // While armed, Cancel calls `cancel`, which must be thread-safe and must not block. One at a
  // time.
  void Arm(std::function<void()> cancel);
  // After it returns, `cancel` is neither running nor called again.
  void Disarm();

 private:
  mutable std::mutex mutex_;
  bool cancelled_ = false;
  std::function<void()> cancel_;
};

}  // namespace vitrine::client
