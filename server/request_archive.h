// The records of requests that live or ended lately, for those who look at them. Records of ended
// requests go when their time is over or, oldest first, when all together take too much room. A
// record is found by its unguessable id and by its own caller only. Thread-safe.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "absl/status/statusor.h"
#include "server/clock.h"
#include "server/request_record.h"

namespace vitrine::server {

class RequestArchive {
 public:
  struct Limits {
    int64_t retention_us = 0;  // After the end.
    int64_t max_bytes = 0;     // Of ended requests.
  };
  // `clock` must outlive the archive.
  RequestArchive(const Limits& limits, const Clock& clock) : limits_(limits), clock_(clock) {}

  const Limits& limits() const { return limits_; }

  // A request that is about to be queued; Close or Discard follows.
  std::shared_ptr<RequestRecord> Open(std::string id, const GenerationRequest& request);
  void Close(const RequestRecord& record);    // It has ended.
  void Discard(const RequestRecord& record);  // It was refused.

  // NOT_FOUND: unknown, forgotten, or another caller's.
  absl::StatusOr<std::shared_ptr<RequestRecord>> Find(std::string_view id, std::string_view caller);
  // Up to `count` records of a caller, newest first, from behind the record `after` on; all where
  // it is empty. NOT_FOUND: `after` is gone.
  absl::StatusOr<std::vector<std::shared_ptr<RequestRecord>>> List(std::string_view caller,
                                                                   std::string_view after,
                                                                   int count);
  // Microseconds until a record is forgotten; kNever while the request lives.
  int64_t KeptFor(const RequestRecord& record);

  size_t size() const;

 private:
  struct Entry {
    std::shared_ptr<RequestRecord> record;
    int64_t forget_us = kNever;  // kNever: alive.
    int64_t bytes = 0;           // Counted once it has ended.
    std::list<std::string>::iterator place;
    std::list<std::string>::iterator ended_place;
  };

  void Forget();                       // What is over. Callers hold mutex_.
  void Remove(const std::string& id);  // Callers hold mutex_.

  const Limits limits_;
  const Clock& clock_;
  mutable std::mutex mutex_;
  std::unordered_map<std::string, Entry> entries_;
  std::list<std::string> newest_first_;
  std::list<std::string> ended_;  // In the order in which they ended.
  int64_t bytes_ = 0;
};

}  // namespace vitrine::server
