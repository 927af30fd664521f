// Who owns which block of the KV storage, and which blocks hold a prefix that others may reuse:
// pure bookkeeping on the host, no device memory.
//
// A block is free (no content), owned (by one sequence, or shared and then read-only), or cached
// (owned by nobody, content kept until the space is needed, least recently used first).
// Invariant: free() + owned() + cached() == num_blocks(). Nothing allocates after construction but
// the callers' own tables. Not thread-safe; the engine thread owns it.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "kernels/buffer.h"
#include "model/batch.h"
#include "model/sip_hash.h"

namespace vitrine {

// Where a sequence stands in the tree of cached prefixes: its partition and the last full block.
// Two chains are equal exactly when salt and all tokens so far are (the salt up to a collision of
// a 128-bit keyed hash).
struct PrefixChain {
  std::array<uint64_t, 2> partition = {};
  uint64_t parent = 0;  // Content id of the last full block; 0: none yet.

  bool operator==(const PrefixChain&) const = default;
};

struct PrefixMatch {
  int blocks = 0;        // Leading blocks that are in the cache.
  int owned_blocks = 0;  // Those of them that a running sequence owns already.
};

class BlockPool {
 public:
  // Without a prefix cache: nothing is ever cached.
  explicit BlockPool(int num_blocks);
  // With one. `key` is random per process, so that nobody can construct collisions.
  BlockPool(int num_blocks, const SipHashKey& key);

  int num_blocks() const { return num_blocks_; }
  int free() const { return static_cast<int>(free_list_.size()); }
  int cached() const { return cached_; }
  int owned() const { return num_blocks_ - free() - cached_; }
  int available() const { return free() + cached_; }  // What Acquire can hand out.
  bool has_prefix_cache() const { return !buckets_.empty(); }

  // Appends `count` writable blocks to `table`; false and unchanged when fewer are available.
  bool Acquire(int count, std::vector<int32_t>& table);

  // Appends `blocks`, owned, completely computed and never written again, to `table`, shared.
  void Share(std::span<const int32_t> blocks, std::vector<int32_t>& table);

  // Gives up all blocks of `table` and clears it. Published blocks that nobody else owns become
  // cached. A block that is not owned is a bug and aborts.
  void Release(std::vector<int32_t>& table);

  // The start of a chain in the partition of `salt`.
  PrefixChain RootChain(std::string_view salt) const;

  // How far the cache covers `tokens` from `chain` on, in whole blocks. Changes nothing.
  PrefixMatch Match(PrefixChain chain, std::span<const TokenId> tokens) const;

  // Where the next kKvBlockTokens `tokens` after `chain` are in the cache: appends that block to
  // `table`, shared, advances `chain` and returns true.
  bool AcquireCached(std::span<const TokenId> tokens, PrefixChain& chain,
                     std::vector<int32_t>& table);

  // Offers an owned block, completely computed and never written again, to others. Advances
  // `chain`. When an equal block is published already, that one stays and `block` remains private.
  void Publish(int32_t block, std::span<const TokenId> tokens, PrefixChain& chain);

  // Forgets the content of all cached blocks.
  void DropCached();

 private:
  static constexpr int32_t kNone = -1;

  struct Block {
    int32_t owners = 0;
    int32_t next_in_bucket = kNone;
    int32_t newer = kNone;  // Neighbours in the list of cached blocks.
    int32_t older = kNone;
    uint64_t content = 0;  // 0: not published. Never used twice, so a stale parent matches nothing.
    PrefixChain chain;     // Before this block.
    std::array<TokenId, kKvBlockTokens> tokens = {};
  };

  Block& at(int32_t block) { return blocks_[static_cast<size_t>(block)]; }
  const Block& at(int32_t block) const { return blocks_[static_cast<size_t>(block)]; }
  size_t BucketOf(const PrefixChain& chain, std::span<const TokenId> tokens) const;
  int32_t Find(const PrefixChain& chain, std::span<const TokenId> tokens) const;
  void AppendCached(int32_t block);
  void RemoveCached(int32_t block);
  void Unpublish(int32_t block);

  int num_blocks_;
  SipHashKey key_ = {};
  std::vector<Block> blocks_;
  std::vector<int32_t> free_list_;
  std::vector<int32_t> buckets_;  // Heads of chains; a power of two. Empty: no prefix cache.
  int cached_ = 0;
  int32_t newest_ = kNone;
  int32_t oldest_ = kNone;
  uint64_t next_content_ = 1;
};

// Blocks that hold `tokens` tokens.
constexpr int BlocksFor(int64_t tokens) {
  return static_cast<int>((tokens + kKvBlockTokens - 1) / kKvBlockTokens);
}

}  // namespace vitrine
