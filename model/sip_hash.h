// SipHash-2-4, a keyed hash whose collisions cannot be made without the key (Aumasson, Bernstein:
// "SipHash: a fast short-input PRF", INDOCRYPT 2012).
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace vitrine {

using SipHashKey = std::array<uint64_t, 2>;

inline uint64_t SipHash24(const SipHashKey& key, std::span<const std::byte> data) {
  uint64_t v0 = key[0] ^ 0x736f6d6570736575u;
  uint64_t v1 = key[1] ^ 0x646f72616e646f6du;
  uint64_t v2 = key[0] ^ 0x6c7967656e657261u;
  uint64_t v3 = key[1] ^ 0x7465646279746573u;
  const auto round = [&] {
    v0 += v1;
    v2 += v3;
    v1 = std::rotl(v1, 13) ^ v0;
    v3 = std::rotl(v3, 16) ^ v2;
    v0 = std::rotl(v0, 32) + v3;
    v2 += v1;
    v3 = std::rotl(v3, 21) ^ v0;
    v1 = std::rotl(v1, 17) ^ v2;
    v2 = std::rotl(v2, 32);
  };
  const auto absorb = [&](uint64_t word) {
    v3 ^= word;
    round();
    round();
    v0 ^= word;
  };
  size_t offset = 0;
  for (; offset + 8 <= data.size(); offset += 8) {
    uint64_t word;
    std::memcpy(&word, data.data() + offset, 8);
    absorb(word);
  }
  uint64_t last = static_cast<uint64_t>(data.size()) << 56;
  for (size_t i = 0; offset + i < data.size(); ++i) {
    last |= std::to_integer<uint64_t>(data[offset + i]) << (8 * i);
  }
  absorb(last);
  v2 ^= 0xff;
  for (int i = 0; i < 4; ++i) round();
  return v0 ^ v1 ^ v2 ^ v3;
}

}  // namespace vitrine
