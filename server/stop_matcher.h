// Finds stop strings in a stream of bytes that arrives in arbitrary pieces. The result is that of a
// search in the whole stream: the match that starts earliest wins, of those the longest, wherever
// the pieces are cut. One per answer; not thread-safe.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace vitrine::server {

class StopMatcher {
 public:
  // `stops`, none of them empty, must outlive the matcher.
  explicit StopMatcher(std::span<const std::string> stops) : stops_(stops) {}

  // Takes the next piece and returns the bytes that no match can contain any more: they precede
  // the match, if there is one. Nothing may be appended after a match.
  std::string Append(std::string_view bytes);

  // The end of the stream: decides for what is there, and returns the rest unless it matched.
  std::string Flush();

  int matched() const { return matched_; }          // Index of the stop string; -1: none.
  int64_t match_end() const { return match_end_; }  // Offset in the stream; with a match.

  // Where the stream would end if it stopped here and a complete match were waiting only for a
  // longer or earlier one to fail; else -1.
  int64_t candidate_end() const { return candidate_end_; }

 private:
  struct Candidate {
    int stop = -1;          // The longest complete match at the offset.
    bool may_grow = false;  // A longer stop string may still match there.
  };

  Candidate MatchAt(size_t offset) const;
  std::string Release(size_t count);
  std::string Decide(size_t offset, int stop);

  std::span<const std::string> stops_;
  std::string held_;
  int64_t held_begin_ = 0;  // Offset of held_ in the stream.
  int matched_ = -1;
  int64_t match_end_ = -1;
  int64_t candidate_end_ = -1;
};

}  // namespace vitrine::server
