// Unicode general categories (Unicode 15.0), for the scanners that split text before it is encoded.
// Thread-safe.
#pragma once

#include <cstdint>

namespace vitrine {

// UnicodeData.txt field 2. kCcSpace are the six control characters with property White_Space; they
// stand apart so that white space is a set of categories as well.
enum class GeneralCategory : uint8_t {
  kLu,
  kLl,
  kLt,
  kLm,
  kLo,
  kMn,
  kMc,
  kMe,
  kNd,
  kNl,
  kNo,
  kPc,
  kPd,
  kPs,
  kPe,
  kPi,
  kPf,
  kPo,
  kSm,
  kSc,
  kSk,
  kSo,
  kZs,
  kZl,
  kZp,
  kCc,
  kCcSpace,
  kCf,
  kCs,
  kCo,
  kCn,
};

// A set of categories: bit i stands for the category with that number.
using CategorySet = uint32_t;

constexpr CategorySet SetOf(GeneralCategory category) {
  return CategorySet{1} << static_cast<uint8_t>(category);
}
template <class... Categories>
constexpr CategorySet SetOf(GeneralCategory first, Categories... rest) {
  return SetOf(first) | SetOf(rest...);
}

inline constexpr CategorySet kLetter =
    SetOf(GeneralCategory::kLu, GeneralCategory::kLl, GeneralCategory::kLt, GeneralCategory::kLm,
          GeneralCategory::kLo);
inline constexpr CategorySet kMark =
    SetOf(GeneralCategory::kMn, GeneralCategory::kMc, GeneralCategory::kMe);
inline constexpr CategorySet kNumber =
    SetOf(GeneralCategory::kNd, GeneralCategory::kNl, GeneralCategory::kNo);
inline constexpr CategorySet kPunctuation =
    SetOf(GeneralCategory::kPc, GeneralCategory::kPd, GeneralCategory::kPs, GeneralCategory::kPe,
          GeneralCategory::kPi, GeneralCategory::kPf, GeneralCategory::kPo);
inline constexpr CategorySet kSymbol =
    SetOf(GeneralCategory::kSm, GeneralCategory::kSc, GeneralCategory::kSk, GeneralCategory::kSo);
// Exactly the property White_Space.
inline constexpr CategorySet kWhiteSpace = SetOf(GeneralCategory::kZs, GeneralCategory::kZl,
                                                 GeneralCategory::kZp, GeneralCategory::kCcSpace);

inline constexpr uint32_t kCodePoints = 0x110000;

// The category of every code point, [kCodePoints]; built on first use and kept for ever.
const GeneralCategory* GeneralCategories();

}  // namespace vitrine
