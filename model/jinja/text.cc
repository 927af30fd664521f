#include "model/jinja/text.h"

#include <algorithm>

namespace vitrine::jinja {

Text::Text(std::string bytes, Source source) : bytes_(std::move(bytes)) { Extend(source); }

// Gives the bytes after the last run to `source`.
void Text::Extend(Source source) {
  const auto end = static_cast<uint32_t>(bytes_.size());
  if (end == (runs_.empty() ? 0 : runs_.back().end)) return;
  if (!runs_.empty() && runs_.back().source == source) {
    runs_.back().end = end;
  } else {
    runs_.push_back({end, source});
  }
}

Source Text::source() const {
  if (runs_.empty()) return kTemplate;
  return runs_.size() == 1 ? runs_.front().source : kData;
}

bool Text::IsTemplate(size_t begin, size_t end) const {
  size_t run_begin = 0;
  for (const Run& run : runs_) {
    if (run.source != kTemplate && run.end > begin && run_begin < end) return false;
    run_begin = run.end;
  }
  return true;
}

void Text::Append(const Text& other, size_t begin, size_t end) {
  const auto after = [](size_t offset, const Run& run) { return offset < run.end; };
  for (auto run = std::upper_bound(other.runs_.begin(), other.runs_.end(), begin, after);
       run != other.runs_.end() && begin < end; ++run) {
    const size_t run_end = std::min<size_t>(run->end, end);
    bytes_.append(other.bytes_, begin, run_end - begin);
    Extend(run->source);
    begin = run_end;
  }
}

void Text::Append(std::string_view bytes, Source source) {
  bytes_ += bytes;
  Extend(source);
}

Text Text::Substr(size_t begin, size_t end) const {
  Text part;
  part.Append(*this, begin, end);
  return part;
}

}  // namespace vitrine::jinja
