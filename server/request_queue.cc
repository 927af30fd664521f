#include "server/request_queue.h"

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>

#include "absl/strings/cord.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace vitrine::server {
namespace {

constexpr char kRetryAfter[] = "vitrine/retry-after-micros";
constexpr int64_t kMinRetryMicros = 100'000;
constexpr int64_t kMaxRetryMicros = 30'000'000;
// Weight of the newest interval between two starts.
constexpr double kSmoothing = 0.2;

absl::Status Full(const std::string& message, int64_t expected_wait_us) {
  absl::Status status = absl::ResourceExhaustedError(message);
  SetRetryAfter(status, std::clamp(expected_wait_us, kMinRetryMicros, kMaxRetryMicros));
  return status;
}

}  // namespace

absl::Status RequestQueue::Push(std::shared_ptr<ActiveRequest> request, int64_t now_us) {
  std::lock_guard lock(mutex_);
  if (absl::Status status = Admissible(request->request, now_us); !status.ok()) {
    ++counters_.refused;
    return status;
  }
  ++counters_.accepted;
  ++load_.requests;
  load_.prompt_tokens += static_cast<int64_t>(request->request.prompt.size());
  arrived_.push_back(std::move(request));
  arrived_changed_.notify_one();
  return absl::OkStatus();
}

absl::Status RequestQueue::Admissible(const GenerationRequest& request, int64_t now_us) const {
  if (!closed_.ok()) return closed_;
  if (request.deadline_us <= now_us) return absl::DeadlineExceededError("the deadline passed");
  const auto wait_us = static_cast<int64_t>(start_interval_us_ * load_.requests);
  if (load_.requests >= limits_.max_requests) {
    return Full(absl::StrCat("the queue is full: ", load_.requests, " of ", limits_.max_requests,
                             " requests wait"),
                wait_us);
  }
  const auto prompt_tokens = static_cast<int64_t>(request.prompt.size());
  if (load_.prompt_tokens + prompt_tokens > limits_.max_prompt_tokens) {
    return Full(absl::StrCat("the queue is full: ", load_.prompt_tokens, " prompt tokens wait, ",
                             prompt_tokens, " more would exceed ", limits_.max_prompt_tokens),
                wait_us);
  }
  if (request.deadline_us != kNever && wait_us > request.deadline_us - now_us) {
    return Full(absl::StrCat("the expected wait of ", static_cast<double>(wait_us) / 1e3,
                             " ms is longer than the deadline allows"),
                wait_us);
  }
  return absl::OkStatus();
}

void RequestQueue::Take(std::vector<std::shared_ptr<ActiveRequest>>& requests) {
  std::lock_guard lock(mutex_);
  for (auto& request : arrived_) requests.push_back(std::move(request));
  arrived_.clear();
  woken_ = false;
}

void RequestQueue::Wait(int64_t limit_us) {
  std::unique_lock lock(mutex_);
  const auto is_over = [this] { return woken_ || !arrived_.empty(); };
  if (limit_us == kNever) {
    arrived_changed_.wait(lock, is_over);
  } else {
    arrived_changed_.wait_for(lock, std::chrono::microseconds(limit_us), is_over);
  }
}

void RequestQueue::Wake() {
  std::lock_guard lock(mutex_);
  woken_ = true;
  arrived_changed_.notify_one();
}

void RequestQueue::Leave(const ActiveRequest& request, bool started, int64_t now_us) {
  std::lock_guard lock(mutex_);
  --load_.requests;
  load_.prompt_tokens -= static_cast<int64_t>(request.request.prompt.size());
  if (!started) return;
  if (last_start_us_ >= 0) {
    const auto interval = static_cast<double>(now_us - last_start_us_);
    start_interval_us_ = start_interval_us_ == 0.0
                             ? interval
                             : start_interval_us_ + kSmoothing * (interval - start_interval_us_);
  }
  last_start_us_ = load_.requests > 0 ? now_us : -1;
}

void RequestQueue::Close(absl::Status why) {
  std::lock_guard lock(mutex_);
  if (closed_.ok()) closed_ = std::move(why);
}

RequestQueue::Load RequestQueue::load() const {
  std::lock_guard lock(mutex_);
  return load_;
}

void SetRetryAfter(absl::Status& status, int64_t micros) {
  const std::string text = absl::StrCat(micros);
  status.SetPayload(kRetryAfter, absl::Cord(text));
}

std::optional<int64_t> RetryAfterMicros(const absl::Status& status) {
  const absl::optional<absl::Cord> payload = status.GetPayload(kRetryAfter);
  int64_t micros = 0;
  if (!payload.has_value() || !absl::SimpleAtoi(std::string(*payload), &micros)) return {};
  return micros;
}

}  // namespace vitrine::server
