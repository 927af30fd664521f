#include "server/stop_matcher.h"

#include <algorithm>

namespace vitrine::server {

StopMatcher::Candidate StopMatcher::MatchAt(size_t offset) const {
  Candidate candidate;
  const std::string_view rest = std::string_view(held_).substr(offset);
  size_t longest = 0;
  for (size_t i = 0; i < stops_.size(); ++i) {
    const std::string_view stop = stops_[i];
    const size_t length = std::min(stop.size(), rest.size());
    if (stop.substr(0, length) != rest.substr(0, length)) continue;
    if (length < stop.size()) {
      candidate.may_grow = true;
    } else if (length > longest) {
      longest = length;
      candidate.stop = static_cast<int>(i);
    }
  }
  return candidate;
}

std::string StopMatcher::Append(std::string_view bytes) {
  if (stops_.empty()) {
    held_begin_ += static_cast<int64_t>(bytes.size());
    return std::string(bytes);
  }
  held_.append(bytes);
  candidate_end_ = -1;
  size_t first_open = held_.size();  // Where a match may still grow.
  for (size_t offset = 0; offset < held_.size(); ++offset) {
    const Candidate candidate = MatchAt(offset);
    if (candidate.may_grow) first_open = std::min(first_open, offset);
    if (candidate.stop < 0) continue;
    if (first_open == held_.size()) return Decide(offset, candidate.stop);
    const size_t length = stops_[static_cast<size_t>(candidate.stop)].size();
    candidate_end_ = held_begin_ + static_cast<int64_t>(offset + length);
    break;
  }
  return Release(first_open);
}

std::string StopMatcher::Flush() {
  for (size_t offset = 0; offset < held_.size(); ++offset) {
    const Candidate candidate = MatchAt(offset);
    if (candidate.stop >= 0) return Decide(offset, candidate.stop);
  }
  return Release(held_.size());
}

std::string StopMatcher::Release(size_t count) {
  std::string released = held_.substr(0, count);
  held_.erase(0, count);
  held_begin_ += static_cast<int64_t>(count);
  return released;
}

std::string StopMatcher::Decide(size_t offset, int stop) {
  std::string released = Release(offset);
  matched_ = stop;
  match_end_ = held_begin_ + static_cast<int64_t>(stops_[static_cast<size_t>(stop)].size());
  candidate_end_ = -1;
  held_.clear();
  return released;
}

}  // namespace vitrine::server
