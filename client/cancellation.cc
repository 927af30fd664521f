#include "client/cancellation.h"

#include <functional>
#include <mutex>
#include <utility>

namespace vitrine::client {

void Cancellation::Cancel() {
  const std::lock_guard lock(mutex_);
  cancelled_ = true;
  if (cancel_) cancel_();
}

void Cancellation::Reset() {
  const std::lock_guard lock(mutex_);
  cancelled_ = false;
}

bool Cancellation::cancelled() const {
  const std::lock_guard lock(mutex_);
  return cancelled_;
}

void Cancellation::Arm(std::function<void()> cancel) {
  const std::lock_guard lock(mutex_);
  cancel_ = std::move(cancel);
  if (cancelled_) cancel_();
}

void Cancellation::Disarm() {
  const std::lock_guard lock(mutex_);
  cancel_ = nullptr;
}

}  // namespace vitrine::client
