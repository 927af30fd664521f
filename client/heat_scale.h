// Numbers as colours, or as characters where there are no colours.
#pragma once

#include <string>
#include <string_view>

namespace vitrine::client {

struct HeatStyle {
  bool colour = false;  // 24-bit ANSI colours; else ASCII.
  int width = 100;      // Columns of a line.
};

class HeatScale {
 public:
  // `low` and below look cold, `high` and above hot. With `is_log` equal factors look equally far
  // apart; then `low` must be above 0.
  HeatScale(double low, double high, bool is_log);

  // 0 to 1.
  double Level(double value) const;

  // `text` on the value's colour; on the terminal's own background where it is cold.
  std::string Paint(std::string_view text, double value) const;
  // One of ". : - = + * # % @", from cold to hot.
  char Shade(double value) const;

  // "scale 0.000 [.:-=+*#%@] 0.310", the middle in colours where there are any.
  std::string Legend(const HeatStyle& style) const;

 private:
  double low_;
  double high_;
  bool is_log_;
};

}  // namespace vitrine::client
