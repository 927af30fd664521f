// A text that was made from another one, and where in that one each of its bytes comes from.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace vitrine {

struct AlignedText {
  std::string bytes;
  std::vector<uint32_t> sources;  // [bytes.size()], never falling.

  void Reserve(size_t size) {
    bytes.reserve(size);
    sources.reserve(size);
  }
  // Appends text all of which comes from the byte at `source`.
  void Append(std::string_view text, uint32_t source) {
    bytes += text;
    sources.insert(sources.end(), text.size(), source);
  }
  // Appends bytes [begin, end) of another text as they are.
  void AppendSame(const AlignedText& other, size_t begin, size_t end) {
    bytes.append(other.bytes, begin, end - begin);
    sources.insert(sources.end(), other.sources.begin() + static_cast<ptrdiff_t>(begin),
                   other.sources.begin() + static_cast<ptrdiff_t>(end));
  }
};

}  // namespace vitrine
