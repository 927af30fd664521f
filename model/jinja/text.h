// Strings of templates: UTF-8 bytes that remember where they came from, so that a prompt can be
// tokenized with control tokens only where the template itself wrote them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace vitrine::jinja {

// Who wrote a byte. From kFirstContent on: the content of message number (source - kFirstContent).
using Source = int32_t;
inline constexpr Source kTemplate = 0;  // The template, or a value that the model's files give.
inline constexpr Source kData = 1;      // The conversation: never more than plain text.
inline constexpr Source kFirstContent = 2;

// Less than 4 GiB; the budget of a rendering sees to that.
class Text {
 public:
  // Bytes up to `end` that have one source.
  struct Run {
    uint32_t end;
    Source source;
  };
  using Runs = std::vector<Run>;

  Text() = default;
  Text(std::string bytes, Source source);

  std::string_view view() const { return bytes_; }
  const std::string& bytes() const { return bytes_; }
  size_t size() const { return bytes_.size(); }
  bool empty() const { return bytes_.empty(); }
  const Runs& runs() const { return runs_; }

  // The source of all bytes; kData when there are several, kTemplate when there are no bytes.
  Source source() const;
  // Whether the template wrote bytes [begin, end), all of them.
  bool IsTemplate(size_t begin, size_t end) const;

  void Append(const Text& other) { Append(other, 0, other.size()); }
  // Bytes [begin, end) of `other`.
  void Append(const Text& other, size_t begin, size_t end);
  void Append(std::string_view bytes, Source source);

  Text Substr(size_t begin, size_t end) const;
  // `bytes` made of this text by an operation that loses track of single bytes.
  Text Derive(std::string bytes) const { return {std::move(bytes), source()}; }

 private:
  void Extend(Source source);

  std::string bytes_;
  Runs runs_;  // Ascending ends, the last is size(); neighbours differ in source.
};

}  // namespace vitrine::jinja
