// Philox4x32-10, the counter-based generator of Salmon, Moraes, Dror and Shaw (SC 2011): random
// bits are a pure function of (key, counter), so that a draw depends on neither batch nor order.
#pragma once

#include <array>
#include <cstdint>

namespace vitrine {

constexpr std::array<uint32_t, 4> Philox4x32(std::array<uint32_t, 4> counter, uint64_t key) {
  uint32_t key0 = static_cast<uint32_t>(key);
  uint32_t key1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t{0xD2511F53u} * counter[0];
    const uint64_t b = uint64_t{0xCD9E8D57u} * counter[2];
    counter = {static_cast<uint32_t>(b >> 32) ^ counter[1] ^ key0, static_cast<uint32_t>(b),
               static_cast<uint32_t>(a >> 32) ^ counter[3] ^ key1, static_cast<uint32_t>(a)};
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  return counter;
}

// 64 random bits for the token at `position` of answer `choice` of a request with `seed`.
constexpr uint64_t RandomBits(uint64_t seed, int64_t position, uint32_t choice) {
  const uint64_t p = static_cast<uint64_t>(position);
  const std::array<uint32_t, 4> x =
      Philox4x32({static_cast<uint32_t>(p), static_cast<uint32_t>(p >> 32), choice, 0}, seed);
  return (static_cast<uint64_t>(x[1]) << 32) | x[0];
}

}  // namespace vitrine
