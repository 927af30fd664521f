#include "server/stream_set.h"

namespace vitrine::server {

void StreamSet::Add(WatchedStream* stream) {
  std::lock_guard lock(mutex_);
  streams_.insert(stream);
}

void StreamSet::Remove(WatchedStream* stream) {
  std::lock_guard lock(mutex_);
  streams_.erase(stream);
}

size_t StreamSet::size() const {
  std::lock_guard lock(mutex_);
  return streams_.size();
}

void StreamSet::EndStalled(int64_t now_us, int64_t limit_us) {
  // Under the lock, so that no stream, nor the context that it points to, dies meanwhile.
  std::lock_guard lock(mutex_);
  for (WatchedStream* stream : streams_) stream->EndIfStalled(now_us, limit_us);
}

}  // namespace vitrine::server
