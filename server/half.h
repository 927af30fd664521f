// IEEE binary16, the format in which weights travel.
#pragma once

#include <bit>
#include <cstdint>

namespace vitrine::server {

// Rounds to nearest, ties to even; too large becomes infinity, NaN stays NaN.
inline uint16_t ToHalf(float value) {
  constexpr uint32_t kInfinity = 0x7F800000u;
  constexpr uint32_t kOverflow = 0x47800000u;  // 2^16
  constexpr uint32_t kNormal = 0x38800000u;    // 2^-14
  const auto bits = std::bit_cast<uint32_t>(value);
  const uint32_t magnitude = bits & 0x7FFFFFFFu;
  const auto sign = static_cast<uint16_t>((bits >> 16) & 0x8000u);
  uint32_t half;
  if (magnitude >= kOverflow) {
    half = magnitude > kInfinity ? 0x7E00u : 0x7C00u;
  } else if (magnitude < kNormal) {
    // At 0.5 the last bit of a float is worth 2^-24, the smallest half: the addition rounds.
    half = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - 0x3F000000u;
  } else {
    const uint32_t odd = (magnitude >> 13) & 1u;
    half = (magnitude - (112u << 23) + 0xFFFu + odd) >> 13;
  }
  return static_cast<uint16_t>(sign | half);
}

}  // namespace vitrine::server
