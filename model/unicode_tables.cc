#include "model/unicode_tables.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <memory>

namespace vitrine {
namespace {

using enum GeneralCategory;

struct CategoryRange {
  uint32_t first;
  GeneralCategory category;
};

constexpr CategoryRange kRanges[] = {
#include "model/unicode_categories.inc"
};

using CategoryTable = std::array<GeneralCategory, kCodePoints>;

const CategoryTable* BuildTable() {
  auto table = std::make_unique<CategoryTable>();
  for (size_t i = 0; i < std::size(kRanges); ++i) {
    const uint32_t end = i + 1 < std::size(kRanges) ? kRanges[i + 1].first : kCodePoints;
    std::fill(table->begin() + kRanges[i].first, table->begin() + end, kRanges[i].category);
  }
  return table.release();
}

}  // namespace

const GeneralCategory* GeneralCategories() {
  static const CategoryTable* const table = BuildTable();
  return table->data();
}

}  // namespace vitrine
