// Element types of weights and caches, as files store them.
//
// Quantised types store blocks of consecutive columns of one row; the layouts are those of the
// GGUF specification (ggml block formats) and are decoded by `block_formats.h`.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace vitrine {

enum class DType : uint8_t {
  kF32,
  kF16,
  kBF16,
  kQ4_0,
  kQ4_1,
  kQ5_0,
  kQ5_1,
  kQ8_0,
  kQ2_K,
  kQ3_K,
  kQ4_K,
  kQ5_K,
  kQ6_K,
  kIQ4_NL,
  kIQ4_XS,
};

struct DTypeTraits {
  std::string_view name;  // As GGUF tools print it: "F32", "Q4_1".
  int block_columns;      // Columns per block; 1 for plain floats.
  int block_bytes;        // Bytes per block.
};

constexpr DTypeTraits TraitsOf(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return {"F32", 1, 4};
    case DType::kF16:
      return {"F16", 1, 2};
    case DType::kBF16:
      return {"BF16", 1, 2};
    case DType::kQ4_0:
      return {"Q4_0", 32, 18};
    case DType::kQ4_1:
      return {"Q4_1", 32, 20};
    case DType::kQ5_0:
      return {"Q5_0", 32, 22};
    case DType::kQ5_1:
      return {"Q5_1", 32, 24};
    case DType::kQ8_0:
      return {"Q8_0", 32, 34};
    case DType::kQ2_K:
      return {"Q2_K", 256, 84};
    case DType::kQ3_K:
      return {"Q3_K", 256, 110};
    case DType::kQ4_K:
      return {"Q4_K", 256, 144};
    case DType::kQ5_K:
      return {"Q5_K", 256, 176};
    case DType::kQ6_K:
      return {"Q6_K", 256, 210};
    case DType::kIQ4_NL:
      return {"IQ4_NL", 32, 18};
    case DType::kIQ4_XS:
      return {"IQ4_XS", 256, 136};
  }
  return {"?", 0, 0};
}

constexpr bool IsFloat(DType dtype) { return TraitsOf(dtype).block_columns == 1; }

// Bytes of one row; `columns` must be a multiple of the block.
constexpr size_t RowBytes(DType dtype, int64_t columns) {
  const DTypeTraits traits = TraitsOf(dtype);
  return static_cast<size_t>(columns / traits.block_columns) *
         static_cast<size_t>(traits.block_bytes);
}

// bfloat16 is the upper half of a float; rounding is to nearest, ties to even. NaN stays NaN.
constexpr float FloatFromBf16(uint16_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

constexpr uint16_t Bf16FromFloat(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((bits >> 16) | 0x40u);
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

// IEEE 754 binary16, subnormals, infinities and NaN included.
constexpr float FloatFromF16(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000u) << 16;
  const uint32_t exponent = (bits >> 10) & 0x1fu;
  const uint32_t mantissa = bits & 0x3ffu;
  if (exponent == 0) {
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
    return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(magnitude));
  }
  const uint32_t wide = exponent == 31 ? 0xffu : exponent + 112;
  return std::bit_cast<float>(sign | (wide << 23) | (mantissa << 13));
}

// Rounds to nearest, ties to even.
uint16_t F16FromFloat(float value);

}  // namespace vitrine
