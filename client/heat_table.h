// A table of numbers as a picture: a row per query, layer or token, a column per key, head or span.
#pragma once

#include <string>
#include <vector>

#include "client/heat_scale.h"

namespace vitrine::client {

struct HeatRow {
  std::string label;
  std::vector<float> values;            // One per column; NaN: nothing there.
  std::string note = {};                // Behind the row; of the first block of columns only.
  std::vector<std::string> texts = {};  // Printed instead of the numbers; one per column, or none.
};

struct HeatTable {
  std::vector<std::string> columns;  // Headings, visible text.
  std::vector<HeatRow> rows;
  std::string label_heading;  // Above the labels.
  // Prints the numbers with this many digits behind the point where all columns fit; -1: never.
  int digits = -1;
};

// Lines of at most style.width columns, but for notes; more columns than fit go to further blocks.
std::string DrawHeatTable(const HeatTable& table, const HeatScale& scale, const HeatStyle& style);

}  // namespace vitrine::client
