// How much of a trace is on its way between the engine and its reader. Whoever carries bytes has a
// hold on them; while too many are on their way the engine computes other requests.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

namespace vitrine::server {

// Thread-safe.
class TraceCredit {
 public:
  // `wake` is called, from any thread, when a full trace has room again.
  TraceCredit(int64_t limit_bytes, std::function<void()> wake)
      : limit_bytes_(limit_bytes), wake_(std::move(wake)) {}

  int64_t limit_bytes() const { return limit_bytes_; }
  int64_t bytes() const { return bytes_; }
  bool is_full() const { return bytes_ >= limit_bytes_; }

  void Take(int64_t bytes) { bytes_ += bytes; }
  void Give(int64_t bytes) {
    const int64_t before = bytes_.fetch_sub(bytes);
    if (before >= limit_bytes_ && before - bytes < limit_bytes_) wake_();
  }

 private:
  const int64_t limit_bytes_;
  const std::function<void()> wake_;
  std::atomic<int64_t> bytes_ = 0;
};

// Bytes of a trace, counted while this lives. Move-only.
class CreditHold {
 public:
  CreditHold() = default;
  CreditHold(std::shared_ptr<TraceCredit> credit, int64_t bytes)
      : credit_(std::move(credit)), bytes_(bytes) {
    if (credit_ != nullptr) credit_->Take(bytes_);
  }
  CreditHold(CreditHold&& other) noexcept = default;
  CreditHold& operator=(CreditHold&& other) noexcept {
    Release();
    credit_ = std::move(other.credit_);
    bytes_ = other.bytes_;
    return *this;
  }
  CreditHold(const CreditHold&) = delete;
  CreditHold& operator=(const CreditHold&) = delete;
  ~CreditHold() { Release(); }

  void Release() {
    if (credit_ != nullptr) credit_->Give(bytes_);
    credit_.reset();
  }

 private:
  std::shared_ptr<TraceCredit> credit_;
  int64_t bytes_ = 0;
};

}  // namespace vitrine::server
