#include "server/request_archive.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace vitrine::server {
namespace {

absl::Status NotFound() {
  return absl::NotFoundError("request_id: no such request lives or is kept");
}

}  // namespace

std::shared_ptr<RequestRecord> RequestArchive::Open(std::string id,
                                                    const GenerationRequest& request) {
  auto record =
      std::make_shared<RequestRecord>(std::move(id), request, std::chrono::system_clock::now());
  std::lock_guard lock(mutex_);
  Forget();
  newest_first_.push_front(record->id());
  entries_[record->id()] = {
      .record = record, .place = newest_first_.begin(), .ended_place = ended_.end()};
  return record;
}

void RequestArchive::Close(const RequestRecord& record) {
  const int64_t bytes = record.bytes();
  std::lock_guard lock(mutex_);
  const auto found = entries_.find(record.id());
  if (found == entries_.end()) return;
  Entry& entry = found->second;
  entry.forget_us = clock_.NowMicros() + limits_.retention_us;
  entry.bytes = bytes;
  entry.ended_place = ended_.insert(ended_.end(), record.id());
  bytes_ += bytes;
  Forget();
}

void RequestArchive::Discard(const RequestRecord& record) {
  std::lock_guard lock(mutex_);
  Remove(record.id());
}

absl::StatusOr<std::shared_ptr<RequestRecord>> RequestArchive::Find(std::string_view id,
                                                                    std::string_view caller) {
  std::lock_guard lock(mutex_);
  Forget();
  const auto found = entries_.find(std::string(id));
  // Another's id and an unknown one look the same.
  if (found == entries_.end() || found->second.record->request().caller != caller) {
    return NotFound();
  }
  return found->second.record;
}

absl::StatusOr<std::vector<std::shared_ptr<RequestRecord>>> RequestArchive::List(
    std::string_view caller, std::string_view after, int count) {
  std::lock_guard lock(mutex_);
  Forget();
  auto place = newest_first_.begin();
  if (!after.empty()) {
    const auto found = entries_.find(std::string(after));
    if (found == entries_.end() || found->second.record->request().caller != caller) {
      return absl::NotFoundError("page_token: the record at which the page ended is gone");
    }
    place = std::next(found->second.place);
  }
  std::vector<std::shared_ptr<RequestRecord>> records;
  for (; place != newest_first_.end() && static_cast<int>(records.size()) < count; ++place) {
    const std::shared_ptr<RequestRecord>& record = entries_.at(*place).record;
    if (record->request().caller == caller) records.push_back(record);
  }
  return records;
}

int64_t RequestArchive::KeptFor(const RequestRecord& record) {
  std::lock_guard lock(mutex_);
  const auto found = entries_.find(record.id());
  if (found == entries_.end()) return 0;
  const int64_t forget_us = found->second.forget_us;
  return forget_us == kNever ? kNever : std::max<int64_t>(0, forget_us - clock_.NowMicros());
}

size_t RequestArchive::size() const {
  std::lock_guard lock(mutex_);
  return entries_.size();
}

void RequestArchive::Forget() {
  const int64_t now_us = clock_.NowMicros();
  while (!ended_.empty() &&
         (entries_.at(ended_.front()).forget_us <= now_us || bytes_ > limits_.max_bytes)) {
    Remove(std::string(ended_.front()));
  }
}

void RequestArchive::Remove(const std::string& id) {
  const auto found = entries_.find(id);
  if (found == entries_.end()) return;
  const Entry& entry = found->second;
  newest_first_.erase(entry.place);
  if (entry.forget_us != kNever) {
    ended_.erase(entry.ended_place);
    bytes_ -= entry.bytes;
  }
  entries_.erase(found);
}

}  // namespace vitrine::server
