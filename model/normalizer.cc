#include "model/normalizer.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "model/categorized_text.h"

namespace vitrine {
namespace {

void PutInFront(std::string_view prefix, AlignedText& text) {
  text.sources.insert(text.sources.begin(), prefix.size(), text.sources.front());
  text.bytes.insert(0, prefix);
}

// The start of the run of white space at the end of `text`.
size_t TrimmedEnd(const CategorizedText& text) {
  size_t end = 0;
  for (size_t i = 0; i < text.size(); i = text.Next(i)) {
    if (!text.Is(i, kWhiteSpace)) end = text.Next(i);
  }
  return end;
}

}  // namespace

NormalizerStep Prepend(std::string prefix) {
  return [prefix = std::move(prefix)](AlignedText& text, bool /*is_start*/) {
    if (!text.bytes.empty()) PutInFront(prefix, text);
  };
}

NormalizerStep PrependUnlessThere(std::string prefix, PrependWhere where) {
  return [prefix = std::move(prefix), where](AlignedText& text, bool is_start) {
    if (text.bytes.empty() || text.bytes.starts_with(prefix)) return;
    if (is_start || where == PrependWhere::kEverywhere) PutInFront(prefix, text);
  };
}

NormalizerStep Replace(std::string from, std::string to) {
  return [from = std::move(from), to = std::move(to)](AlignedText& text, bool /*is_start*/) {
    size_t match = text.bytes.find(from);
    if (match == std::string::npos) return;
    AlignedText result;
    result.Reserve(text.bytes.size());
    size_t begin = 0;
    for (; match != std::string::npos; match = text.bytes.find(from, begin)) {
      result.AppendSame(text, begin, match);
      result.Append(to, text.sources[match]);
      begin = match + from.size();
    }
    result.AppendSame(text, begin, text.bytes.size());
    text = std::move(result);
  };
}

NormalizerStep ReplaceRunsOfSpaces(std::string to) {
  return [to = std::move(to)](AlignedText& text, bool /*is_start*/) {
    AlignedText result;
    result.Reserve(text.bytes.size());
    size_t begin = 0;
    for (size_t run = text.bytes.find("  "); run != std::string::npos;
         run = text.bytes.find("  ", begin)) {
      result.AppendSame(text, begin, run);
      result.Append(to, text.sources[run]);
      begin = std::min(text.bytes.find_first_not_of(' ', run), text.bytes.size());
    }
    result.AppendSame(text, begin, text.bytes.size());
    text = std::move(result);
  };
}

NormalizerStep MarkWords(std::string mark) {
  return [mark = std::move(mark)](AlignedText& text, bool /*is_start*/) {
    const CategorizedText characters(text.bytes);
    AlignedText result;
    result.Reserve(text.bytes.size() + text.bytes.size() / 4);
    size_t begin = characters.SkipRun(0, kWhiteSpace);
    while (begin < text.bytes.size()) {
      const size_t end = characters.SkipRun(begin, ~kWhiteSpace);
      const bool is_marked = std::string_view(text.bytes).substr(begin).starts_with(mark);
      if (!is_marked) result.Append(mark, text.sources[begin]);
      result.AppendSame(text, begin, end);
      begin = characters.SkipRun(end, kWhiteSpace);
    }
    text = std::move(result);
  };
}

NormalizerStep Strip(bool left, bool right) {
  return [left, right](AlignedText& text, bool /*is_start*/) {
    const CategorizedText characters(text.bytes);
    const size_t end = right ? TrimmedEnd(characters) : text.bytes.size();
    const size_t begin = left ? characters.Prefix(end).SkipRun(0, kWhiteSpace) : 0;
    AlignedText result;
    result.AppendSame(text, begin, end);
    text = std::move(result);
  };
}

}  // namespace vitrine
