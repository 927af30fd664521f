#include "model/kv_cache.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "kernels/check.h"

namespace vitrine {

BlockPool::BlockPool(int num_blocks)
    : num_blocks_(num_blocks), blocks_(static_cast<size_t>(num_blocks)) {
  free_list_.reserve(static_cast<size_t>(num_blocks));
  // Handed out from the back: a fresh pool gives ascending, neighbouring blocks, which lie next to
  // each other in memory.
  for (int block = num_blocks - 1; block >= 0; --block) free_list_.push_back(block);
}

BlockPool::BlockPool(int num_blocks, const SipHashKey& key) : BlockPool(num_blocks) {
  key_ = key;
  buckets_.assign(std::bit_ceil(2 * static_cast<size_t>(num_blocks) + 1), kNone);
}

bool BlockPool::Acquire(int count, std::vector<int32_t>& table) {
  if (count > available()) return false;
  for (int i = 0; i < count; ++i) {
    int32_t block;
    if (!free_list_.empty()) {
      block = free_list_.back();
      free_list_.pop_back();
    } else {
      block = oldest_;
      RemoveCached(block);
      Unpublish(block);
    }
    at(block).owners = 1;
    table.push_back(block);
  }
  return true;
}

void BlockPool::Share(std::span<const int32_t> blocks, std::vector<int32_t>& table) {
  for (const int32_t block : blocks) {
    VITRINE_CHECK(at(block).owners > 0);
    ++at(block).owners;
    table.push_back(block);
  }
}

void BlockPool::Release(std::vector<int32_t>& table) {
  // Last block first: a prefix stays longer than what was built on it, and without its prefix a
  // cached block cannot be found.
  for (size_t i = table.size(); i-- > 0;) {
    const int32_t block = table[i];
    VITRINE_CHECK(block >= 0 && block < num_blocks_ && at(block).owners > 0);
    if (--at(block).owners > 0) continue;
    if (at(block).content != 0) {
      AppendCached(block);
    } else {
      free_list_.push_back(block);
    }
  }
  table.clear();
}

PrefixChain BlockPool::RootChain(std::string_view salt) const {
  const auto bytes = std::as_bytes(std::span(salt));
  const SipHashKey other = {~key_[0], key_[1]};
  return {.partition = {SipHash24(key_, bytes), SipHash24(other, bytes)}};
}

PrefixMatch BlockPool::Match(PrefixChain chain, std::span<const TokenId> tokens) const {
  PrefixMatch match;
  if (!has_prefix_cache()) return match;
  while (tokens.size() >= kKvBlockTokens) {
    const int32_t block = Find(chain, tokens.first(kKvBlockTokens));
    if (block == kNone) break;
    ++match.blocks;
    if (at(block).owners > 0) ++match.owned_blocks;
    chain.parent = at(block).content;
    tokens = tokens.subspan(kKvBlockTokens);
  }
  return match;
}

bool BlockPool::AcquireCached(std::span<const TokenId> tokens, PrefixChain& chain,
                              std::vector<int32_t>& table) {
  if (!has_prefix_cache()) return false;
  const int32_t block = Find(chain, tokens);
  if (block == kNone) return false;
  if (at(block).owners++ == 0) RemoveCached(block);
  chain.parent = at(block).content;
  table.push_back(block);
  return true;
}

void BlockPool::Publish(int32_t block, std::span<const TokenId> tokens, PrefixChain& chain) {
  if (!has_prefix_cache()) return;
  VITRINE_CHECK(at(block).owners > 0 && at(block).content == 0);
  if (const int32_t equal = Find(chain, tokens); equal != kNone) {
    chain.parent = at(equal).content;
    return;
  }
  Block& published = at(block);
  published.chain = chain;
  std::ranges::copy(tokens, published.tokens.begin());
  published.content = next_content_++;
  int32_t& head = buckets_[BucketOf(chain, tokens)];
  published.next_in_bucket = head;
  head = block;
  chain.parent = published.content;
}

void BlockPool::DropCached() {
  while (oldest_ != kNone) {
    const int32_t block = oldest_;
    RemoveCached(block);
    Unpublish(block);
    free_list_.push_back(block);
  }
}

size_t BlockPool::BucketOf(const PrefixChain& chain, std::span<const TokenId> tokens) const {
  VITRINE_CHECK_EQ(tokens.size(), size_t{kKvBlockTokens});
  std::array<std::byte, sizeof(PrefixChain) + sizeof(TokenId) * kKvBlockTokens> bytes = {};
  std::memcpy(bytes.data(), &chain, sizeof(PrefixChain));
  std::memcpy(bytes.data() + sizeof(PrefixChain), tokens.data(), tokens.size_bytes());
  return SipHash24(key_, bytes) & (buckets_.size() - 1);
}

int32_t BlockPool::Find(const PrefixChain& chain, std::span<const TokenId> tokens) const {
  int32_t block = buckets_[BucketOf(chain, tokens)];
  while (block != kNone &&
         !(at(block).chain == chain && std::ranges::equal(at(block).tokens, tokens))) {
    block = at(block).next_in_bucket;
  }
  return block;
}

void BlockPool::AppendCached(int32_t block) {
  at(block).older = newest_;
  at(block).newer = kNone;
  (newest_ == kNone ? oldest_ : at(newest_).newer) = block;
  newest_ = block;
  ++cached_;
}

void BlockPool::RemoveCached(int32_t block) {
  const Block& removed = at(block);
  (removed.older == kNone ? oldest_ : at(removed.older).newer) = removed.newer;
  (removed.newer == kNone ? newest_ : at(removed.newer).older) = removed.older;
  --cached_;
}

void BlockPool::Unpublish(int32_t block) {
  Block& old = at(block);
  int32_t* link = &buckets_[BucketOf(old.chain, old.tokens)];
  while (*link != block) link = &at(*link).next_in_bucket;
  *link = old.next_in_bucket;
  old.next_in_bucket = kNone;
  old.content = 0;
}

}  // namespace vitrine
