#include "model/prefix_trie.h"

#include <algorithm>

namespace vitrine {
namespace {

// The texts of a node whose children are not built yet.
struct Unexpanded {
  size_t first;
  size_t last;
  size_t depth;
};

}  // namespace

PrefixTrie::PrefixTrie(Entries entries) : nodes_(1) {
  std::sort(entries.begin(), entries.end());
  std::vector<Unexpanded> pending = {{0, entries.size(), 0}};
  for (uint32_t node = 0; node < nodes_.size(); ++node) {
    auto [entry, end, depth] = pending[node];
    if (depth > 0 && entries[entry].first.size() == depth) {
      nodes_[node].number = entries[entry].second;
    }
    while (entry < end && entries[entry].first.size() == depth) ++entry;
    nodes_[node].first_child = static_cast<uint32_t>(nodes_.size());
    uint16_t num_children = 0;
    while (entry < end) {
      const char byte = entries[entry].first[depth];
      const size_t first = entry;
      while (entry < end && entries[entry].first[depth] == byte) ++entry;
      Node child;
      child.byte = static_cast<uint8_t>(byte);
      nodes_.push_back(child);
      pending.push_back({first, entry, depth + 1});
      ++num_children;
    }
    nodes_[node].num_children = num_children;
  }
}

uint32_t PrefixTrie::Child(uint32_t node, uint8_t byte) const {
  const auto first = nodes_.begin() + nodes_[node].first_child;
  const auto last = first + nodes_[node].num_children;
  const auto child = std::lower_bound(
      first, last, byte, [](const Node& candidate, uint8_t b) { return candidate.byte < b; });
  return child != last && child->byte == byte ? static_cast<uint32_t>(child - nodes_.begin()) : 0;
}

}  // namespace vitrine
