#include "model/bpe_merges.h"

#include <algorithm>
#include <array>
#include <functional>

namespace vitrine {
namespace {

constexpr uint32_t kNone = UINT32_MAX;

// Up to this many symbols, which is nearly every word, looking at all of them for each merge is
// faster than keeping a heap.
constexpr size_t kMaxSearched = 32;

uint64_t PairKey(TokenId left, TokenId right) {
  return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
}

}  // namespace

void BpeMerges::Add(TokenId left, TokenId right, int32_t rank, TokenId merged) {
  rules_.try_emplace(PairKey(left, right), Rule{.rank = rank, .merged = merged});
}

BpeMerges::Rule BpeMerges::Find(TokenId left, TokenId right) const {
  const auto found = rules_.find(PairKey(left, right));
  return found == rules_.end() ? Rule{} : found->second;
}

void BpeMerges::Apply(std::vector<PlacedToken>& symbols, Workspace& workspace) const {
  if (symbols.size() <= kMaxSearched) {
    ApplyBySearch(symbols);
  } else {
    ApplyByHeap(symbols, workspace);
  }
}

void BpeMerges::ApplyBySearch(std::vector<PlacedToken>& symbols) const {
  std::array<Rule, kMaxSearched> rules;  // [i]: for symbols i and i + 1.
  size_t pairs = symbols.empty() ? 0 : symbols.size() - 1;
  for (size_t i = 0; i < pairs; ++i) rules[i] = Find(symbols[i].id, symbols[i + 1].id);
  while (pairs > 0) {
    const auto best =
        std::min_element(rules.begin(), rules.begin() + pairs,
                         [](const Rule& a, const Rule& b) { return a.rank < b.rank; });
    if (best->rank == kNoRank) return;
    const size_t i = best - rules.begin();
    symbols[i].id = best->merged;
    symbols.erase(symbols.begin() + i + 1);
    std::copy(best + 1, rules.begin() + pairs, best);
    --pairs;
    if (i < pairs) rules[i] = Find(symbols[i].id, symbols[i + 1].id);
    if (i > 0) rules[i - 1] = Find(symbols[i - 1].id, symbols[i].id);
  }
}

// Looks up what the symbol at `index` and its successor merge to, and makes it a candidate.
void BpeMerges::Refresh(uint32_t index, Workspace& workspace) const {
  Node& node = workspace.nodes[index];
  node.rule =
      node.next == kNone ? Rule{} : Find(node.token.id, workspace.nodes[node.next].token.id);
  if (node.rule.rank == kNoRank) return;
  workspace.heap.push_back(static_cast<uint64_t>(node.rule.rank) << 32 | index);
  std::push_heap(workspace.heap.begin(), workspace.heap.end(), std::greater<>());
}

void BpeMerges::ApplyByHeap(std::vector<PlacedToken>& symbols, Workspace& workspace) const {
  std::vector<Node>& nodes = workspace.nodes;
  std::vector<uint64_t>& heap = workspace.heap;
  const auto count = static_cast<uint32_t>(symbols.size());
  nodes.resize(count);
  heap.clear();
  for (uint32_t i = 0; i < count; ++i) {
    nodes[i] = {.token = symbols[i],
                .previous = i == 0 ? kNone : i - 1,
                .next = i + 1 == count ? kNone : i + 1,
                .rule = {}};
  }
  for (uint32_t i = 0; i < count; ++i) Refresh(i, workspace);

  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), std::greater<>());
    const auto index = static_cast<uint32_t>(heap.back());
    const auto rank = static_cast<int32_t>(heap.back() >> 32);
    heap.pop_back();
    Node& node = nodes[index];
    // Candidates are not withdrawn when one of their symbols is merged away: the node tells.
    if (node.rule.rank != rank) continue;
    Node& merged_away = nodes[node.next];
    node.token.id = node.rule.merged;
    node.next = merged_away.next;
    if (node.next != kNone) nodes[node.next].previous = index;
    merged_away.rule = {};
    Refresh(index, workspace);
    if (node.previous != kNone) Refresh(node.previous, workspace);
  }

  symbols.clear();
  for (uint32_t i = 0; i != kNone; i = nodes[i].next) symbols.push_back(nodes[i].token);
}

}  // namespace vitrine
