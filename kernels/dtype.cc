#include "kernels/dtype.h"

namespace vitrine {

uint16_t F16FromFloat(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (bits >> 16) & 0x8000u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  uint32_t half = 0;
  if (magnitude > 0x7f800000u) {
    half = 0x7e00u | ((magnitude >> 13) & 0x3ffu);
  } else if (magnitude >= 0x477ff000u) {  // 65520 and above round to infinity.
    half = 0x7c00u;
  } else if (magnitude >= 0x38800000u) {  // Normal; a carry out of the mantissa is what we want.
    half = (magnitude - 0x38000000u + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
  } else {
    // The lowest mantissa bit of 0.5 weighs 2^-24, as that of a subnormal half: adding rounds.
    half = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - 0x3f000000u;
  }
  return static_cast<uint16_t>(sign | half);
}

}  // namespace vitrine
