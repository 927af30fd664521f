#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "model/kv_cache.h"

namespace vitrine {
namespace {

constexpr SipHashKey kKey = {1, 2};

std::vector<TokenId> Tokens(int first) {
  std::vector<TokenId> tokens(kKvBlockTokens);
  for (int i = 0; i < kKvBlockTokens; ++i) tokens[static_cast<size_t>(i)] = first + i;
  return tokens;
}

void ExpectAccounted(const BlockPool& pool, int owned) {
  EXPECT_EQ(pool.owned(), owned);
  EXPECT_EQ(pool.free() + pool.owned() + pool.cached(), pool.num_blocks());
}

TEST(SipHash, ReferenceVector) {
  // Appendix A of the paper: key 00 .. 0f, input 00 .. 0e.
  std::vector<std::byte> input(15);
  for (size_t i = 0; i < input.size(); ++i) input[i] = static_cast<std::byte>(i);
  EXPECT_EQ(SipHash24({0x0706050403020100u, 0x0f0e0d0c0b0a0908u}, input), 0xa129ca6149be45e5u);
}

TEST(BlockPool, WithoutPrefixCacheNothingIsCached) {
  BlockPool pool(4);
  std::vector<int32_t> table;
  ASSERT_TRUE(pool.Acquire(3, table));
  ExpectAccounted(pool, 3);
  EXPECT_FALSE(pool.Acquire(2, table));
  EXPECT_EQ(table.size(), 3u);
  PrefixChain chain = pool.RootChain("");
  pool.Publish(table[0], Tokens(0), chain);
  pool.Release(table);
  EXPECT_EQ(pool.free(), 4);
  EXPECT_EQ(pool.cached(), 0);
}

TEST(BlockPool, HitNeedsEqualTokensEqualPrefixAndEqualSalt) {
  BlockPool pool(8, kKey);
  std::vector<int32_t> table;
  ASSERT_TRUE(pool.Acquire(2, table));
  const std::vector<int32_t> blocks = table;
  PrefixChain chain = pool.RootChain("a");
  pool.Publish(table[0], Tokens(0), chain);
  const PrefixChain after_first = chain;
  pool.Publish(table[1], Tokens(100), chain);
  pool.Release(table);
  EXPECT_EQ(pool.cached(), 2);

  std::vector<TokenId> both = Tokens(0);
  std::ranges::copy(Tokens(100), std::back_inserter(both));
  EXPECT_EQ(pool.Match(pool.RootChain("a"), both).blocks, 2);
  EXPECT_EQ(pool.Match(pool.RootChain("b"), both).blocks, 0);
  // The second block alone: equal tokens after another prefix.
  EXPECT_EQ(pool.Match(pool.RootChain("a"), std::span(both).subspan(kKvBlockTokens)).blocks, 0);
  both[3] = 7;
  EXPECT_EQ(pool.Match(pool.RootChain("a"), both).blocks, 0);

  PrefixChain walk = pool.RootChain("a");
  ASSERT_TRUE(pool.AcquireCached(Tokens(0), walk, table));
  EXPECT_EQ(table.front(), blocks.front());
  EXPECT_EQ(walk, after_first);
  EXPECT_FALSE(pool.AcquireCached(Tokens(1), walk, table));
  ExpectAccounted(pool, 1);
  pool.Release(table);
}

TEST(BlockPool, LeastRecentlyUsedGoesFirstAndTheTailBeforeItsPrefix) {
  BlockPool pool(4, kKey);
  std::vector<int32_t> table;
  ASSERT_TRUE(pool.Acquire(3, table));
  PrefixChain chain = pool.RootChain("");
  for (int i = 0; i < 3; ++i) {
    pool.Publish(table[static_cast<size_t>(i)], Tokens(100 * i), chain);
  }
  pool.Release(table);
  std::vector<TokenId> all;
  for (int i = 0; i < 3; ++i) std::ranges::copy(Tokens(100 * i), std::back_inserter(all));
  ASSERT_TRUE(pool.Acquire(2, table));  // One free block, one cached.
  EXPECT_EQ(pool.Match(pool.RootChain(""), all).blocks, 2);
  ASSERT_TRUE(pool.Acquire(1, table));
  EXPECT_EQ(pool.Match(pool.RootChain(""), all).blocks, 1);
  pool.Release(table);
}

TEST(BlockPool, EqualBlocksPublishOnceAndShareTheChain) {
  BlockPool pool(4, kKey);
  std::vector<int32_t> first;
  std::vector<int32_t> second;
  ASSERT_TRUE(pool.Acquire(1, first));
  ASSERT_TRUE(pool.Acquire(1, second));
  PrefixChain first_chain = pool.RootChain("");
  PrefixChain second_chain = pool.RootChain("");
  pool.Publish(first[0], Tokens(0), first_chain);
  pool.Publish(second[0], Tokens(0), second_chain);
  EXPECT_EQ(first_chain, second_chain);
  pool.Release(second);
  EXPECT_EQ(pool.cached(), 0);  // The duplicate is simply free.
  pool.Release(first);
  EXPECT_EQ(pool.cached(), 1);
}

TEST(BlockPool, SharedBlockStaysOwnedUntilTheLastOwnerLeaves) {
  BlockPool pool(2, kKey);
  std::vector<int32_t> first;
  std::vector<int32_t> second;
  ASSERT_TRUE(pool.Acquire(1, first));
  PrefixChain chain = pool.RootChain("");
  pool.Publish(first[0], Tokens(0), chain);
  PrefixChain other = pool.RootChain("");
  ASSERT_TRUE(pool.AcquireCached(Tokens(0), other, second));
  pool.Release(first);
  ExpectAccounted(pool, 1);
  EXPECT_TRUE(pool.Acquire(1, first));
  EXPECT_FALSE(pool.Acquire(1, first));
  pool.Release(first);
  pool.Release(second);
  ExpectAccounted(pool, 0);
  pool.DropCached();
  EXPECT_EQ(pool.free(), 2);
}

TEST(BlockPool, SharedBlocksAreFreeOnceAllHaveReleasedThem) {
  for (const bool prefix_cache : {false, true}) {
    BlockPool pool = prefix_cache ? BlockPool(4, kKey) : BlockPool(4);
    std::vector<int32_t> first;
    std::vector<int32_t> second;
    ASSERT_TRUE(pool.Acquire(3, first));
    pool.Share(std::span(first).first(2), second);
    EXPECT_EQ(second, std::vector<int32_t>(first.begin(), first.begin() + 2));
    EXPECT_EQ(pool.owned(), 3);
    pool.Release(first);
    EXPECT_EQ(pool.owned(), 2);
    EXPECT_EQ(pool.available(), 2);
    pool.Release(second);
    EXPECT_EQ(pool.owned(), 0);
    EXPECT_EQ(pool.free(), 4);
  }
}

TEST(BlockPool, RandomUseKeepsTheAccountsAndNeverGivesForeignContent) {
  std::mt19937 random(5);
  BlockPool pool(12, kKey);
  std::vector<std::vector<TokenId>> content(12);  // Of published blocks, chain included.
  struct User {
    std::vector<int32_t> table;
    std::vector<TokenId> tokens;
    PrefixChain chain;
  };
  std::vector<User> users;
  for (int turn = 0; turn < 20'000; ++turn) {
    if (users.size() < 4 && random() % 2 == 0) {
      users.push_back({.table = {}, .tokens = {}, .chain = pool.RootChain("")});
    }
    if (users.empty()) continue;
    User& user = users[random() % users.size()];
    const std::vector<TokenId> tokens = Tokens(static_cast<int>(random() % 2));
    if (random() % 5 == 0) {
      pool.Release(user.table);
      user = std::move(users.back());
      users.pop_back();
    } else if (pool.AcquireCached(tokens, user.chain, user.table)) {
      std::ranges::copy(tokens, std::back_inserter(user.tokens));
      ASSERT_EQ(content[static_cast<size_t>(user.table.back())], user.tokens);
    } else if (pool.Acquire(1, user.table)) {
      std::ranges::copy(tokens, std::back_inserter(user.tokens));
      content[static_cast<size_t>(user.table.back())] = user.tokens;
      pool.Publish(user.table.back(), tokens, user.chain);
    }
    ASSERT_EQ(pool.free() + pool.owned() + pool.cached(), pool.num_blocks());
  }
}

}  // namespace
}  // namespace vitrine
