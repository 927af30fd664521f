// Texts with a number each, and a search for those that a text begins with. Const and thread-safe
// once built.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

namespace vitrine {

class PrefixTrie {
 public:
  using Entries = std::vector<std::pair<std::string_view, int32_t>>;

  // Texts are not empty, numbers not negative; of equal texts the lowest number counts.
  explicit PrefixTrie(Entries entries = {});

  // Calls visit(length, number) for every text that `text` begins with, the shortest first.
  template <class Visit>
  void ForEachPrefix(std::string_view text, Visit visit) const {
    uint32_t node = 0;
    for (size_t i = 0; i < text.size(); ++i) {
      node = Child(node, static_cast<uint8_t>(text[i]));
      if (node == 0) return;
      if (nodes_[node].number >= 0) visit(i + 1, nodes_[node].number);
    }
  }

 private:
  struct Node {
    uint32_t first_child = 0;  // Children lie side by side, in the order of their bytes.
    uint16_t num_children = 0;
    uint8_t byte = 0;
    int32_t number = -1;  // -1: no text ends here.
  };

  // 0, the root, when there is none.
  uint32_t Child(uint32_t node, uint8_t byte) const;

  std::vector<Node> nodes_;
};

}  // namespace vitrine
