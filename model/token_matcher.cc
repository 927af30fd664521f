#include "model/token_matcher.h"

#include <algorithm>
#include <iterator>

namespace vitrine {
namespace {

constexpr uint32_t kRoot = 0;
constexpr uint32_t kNoState = UINT32_MAX;

// Byte of a token text counted from its end.
uint8_t ByteFromEnd(std::string_view text, size_t depth) {
  return static_cast<uint8_t>(text[text.size() - 1 - depth]);
}

// A state whose edges are not built yet: the tokens whose texts end in it.
struct Unexpanded {
  size_t first_token;
  size_t last_token;
  uint32_t depth;
};

}  // namespace

TokenMatcher::TokenMatcher(const TokenTexts& tokens) : states_(1), from_root_(256, kRoot) {
  auto sorted = tokens;
  const auto by_byte = [](char a, char b) {
    return static_cast<uint8_t>(a) <=> static_cast<uint8_t>(b);
  };
  std::sort(sorted.begin(), sorted.end(), [&](const auto& a, const auto& b) {
    const auto order = std::lexicographical_compare_three_way(
        a.first.rbegin(), a.first.rend(), b.first.rbegin(), b.first.rend(), by_byte);
    return order != 0 ? order < 0 : a.second < b.second;
  });
  // Breadth first, so that the fallback of a state is complete before the state is.
  std::vector<Unexpanded> pending = {{0, sorted.size(), 0}};
  for (uint32_t state = 0; state < states_.size(); ++state) {
    auto [token, end, depth] = pending[state];
    const bool is_token = state != kRoot && sorted[token].first.size() == depth;
    const State& suffix = states_[states_[state].fallback];
    states_[state].longest_match = is_token ? depth : suffix.longest_match;
    states_[state].match_id = is_token ? sorted[token].second : suffix.match_id;
    while (token < end && sorted[token].first.size() == depth) ++token;
    states_[state].first_edge = static_cast<uint32_t>(edges_.size());
    while (token < end) {
      const uint8_t byte = ByteFromEnd(sorted[token].first, depth);
      const size_t first = token;
      while (token < end && ByteFromEnd(sorted[token].first, depth) == byte) ++token;
      const auto target = static_cast<uint32_t>(states_.size());
      states_.push_back({.fallback = state == kRoot ? kRoot : Step(states_[state].fallback, byte)});
      edges_.push_back({byte, target});
      pending.push_back({first, token, depth + 1});
      if (state == kRoot) from_root_[byte] = target;
    }
    states_[state].num_edges = static_cast<uint32_t>(edges_.size()) - states_[state].first_edge;
  }
}

uint32_t TokenMatcher::Target(uint32_t state, uint8_t byte) const {
  const auto first = edges_.begin() + states_[state].first_edge;
  const auto last = first + states_[state].num_edges;
  const auto edge =
      std::lower_bound(first, last, byte, [](const Edge& e, uint8_t b) { return e.byte < b; });
  return edge != last && edge->byte == byte ? edge->target : kNoState;
}

uint32_t TokenMatcher::Step(uint32_t state, uint8_t byte) const {
  while (state != kRoot) {
    if (const uint32_t target = Target(state, byte); target != kNoState) return target;
    state = states_[state].fallback;
  }
  return from_root_[byte];
}

std::vector<TokenMatch> TokenMatcher::Find(std::string_view text) const {
  std::vector<TokenMatch> candidates;  // The longest at each position, from the end of the text.
  uint32_t state = kRoot;
  for (size_t i = text.size(); i-- > 0;) {
    state = Step(state, static_cast<uint8_t>(text[i]));
    if (const size_t length = states_[state].longest_match; length > 0) {
      candidates.push_back({i, i + length, states_[state].match_id});
    }
  }
  std::vector<TokenMatch> matches;
  size_t free_from = 0;
  std::copy_if(candidates.rbegin(), candidates.rend(), std::back_inserter(matches),
               [&](const TokenMatch& candidate) {
                 if (candidate.begin < free_from) return false;
                 free_from = candidate.end;
                 return true;
               });
  return matches;
}

}  // namespace vitrine
