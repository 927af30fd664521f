// Token bytes to text, incrementally: releases whole characters only and holds back a tail that can
// still become one (at most three bytes). Ill-formed bytes become one U+FFFD per maximal invalid
// subsequence as soon as it is certain that they are ill-formed (Unicode 15, section 3.9, D93b).
// A cut surrogate (ED, then A0 to BF) is bad already and still waits for its third byte: so does
// CPython's incremental decoder, which texts are compared with. One small state per answer; not
// thread-safe.
#pragma once

#include <string>
#include <string_view>

namespace vitrine {

class Utf8Stream {
 public:
  // Feeds the bytes of one token and returns the text that is certain now.
  std::string Append(std::string_view bytes);

  // The end of the answer: what was held back becomes U+FFFD, one per maximal subsequence.
  std::string Flush();

  size_t held_bytes() const { return held_.size(); }

 private:
  std::string held_;
};

// Whether `text` is well-formed UTF-8; returns the offset of the first bad byte, or npos.
size_t FindInvalidUtf8(std::string_view text);

}  // namespace vitrine
