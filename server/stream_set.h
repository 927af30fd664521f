// The streams that are open, so that one whose client reads nothing can be ended.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <set>

namespace vitrine::server {

class WatchedStream {
 public:
  // Any thread. Ends the stream if a write has been in flight for longer than `limit_us`.
  virtual void EndIfStalled(int64_t now_us, int64_t limit_us) = 0;

 protected:
  ~WatchedStream() = default;
};

// Thread-safe.
class StreamSet {
 public:
  void Add(WatchedStream* stream);
  void Remove(WatchedStream* stream);
  size_t size() const;

  // Ends the streams whose client has accepted nothing for `limit_us`.
  void EndStalled(int64_t now_us, int64_t limit_us);

 private:
  mutable std::mutex mutex_;
  std::set<WatchedStream*> streams_;  // Guarded by mutex_.
};

}  // namespace vitrine::server
