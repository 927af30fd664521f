#include "client/heat_scale.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace vitrine::client {
namespace {

constexpr std::string_view kShades = ".:-=+*#%@";
constexpr int kLegendCells = 24;
// Below this the terminal's own background shows, so that a cold cell is quiet on any theme.
constexpr double kColdest = 0.08;

struct Colour {
  double red;
  double green;
  double blue;
};

// Dark violet over red and orange to pale yellow: brightness grows all the way, so the order also
// survives a printer and colour blindness.
constexpr std::array<Colour, 7> kStops = {{{40, 20, 80},
                                           {90, 20, 110},
                                           {150, 40, 100},
                                           {205, 65, 65},
                                           {240, 110, 30},
                                           {250, 175, 40},
                                           {252, 250, 160}}};

Colour ColourAt(double level) {
  const double place = level * static_cast<double>(kStops.size() - 1);
  const size_t below = std::min(static_cast<size_t>(place), kStops.size() - 2);
  const double share = place - static_cast<double>(below);
  const Colour& a = kStops[below];
  const Colour& b = kStops[below + 1];
  return {a.red + share * (b.red - a.red), a.green + share * (b.green - a.green),
          a.blue + share * (b.blue - a.blue)};
}

}  // namespace

HeatScale::HeatScale(double low, double high, bool is_log)
    : low_(is_log ? std::log(low) : low), high_(is_log ? std::log(high) : high), is_log_(is_log) {}

double HeatScale::Level(double value) const {
  const double place = is_log_ ? std::log(value) : value;
  // A scale of one number: it is hot. Written so that NaN is cold.
  if (!(high_ > low_)) return place >= high_ ? 1.0 : 0.0;
  const double level = (place - low_) / (high_ - low_);
  return level > 0.0 ? std::min(level, 1.0) : 0.0;
}

std::string HeatScale::Paint(std::string_view text, double value) const {
  const double level = Level(value);
  if (level < kColdest) return std::string(text);
  const Colour colour = ColourAt(level);
  const double brightness = 0.3 * colour.red + 0.59 * colour.green + 0.11 * colour.blue;
  return absl::StrFormat("\x1b[48;2;%.0f;%.0f;%.0fm\x1b[38;2;%sm%s\x1b[0m", colour.red,
                         colour.green, colour.blue, brightness > 120 ? "0;0;0" : "255;255;255",
                         std::string(text));
}

char HeatScale::Shade(double value) const {
  const auto last = static_cast<double>(kShades.size() - 1);
  return kShades[static_cast<size_t>(std::lround(Level(value) * last))];
}

std::string HeatScale::Legend(const HeatStyle& style) const {
  const auto value_at = [this](double level) {
    const double place = low_ + level * (high_ - low_);
    return is_log_ ? std::exp(place) : place;
  };
  std::string middle = absl::StrCat("[", std::string(kShades), "]");
  if (style.colour) {
    middle.clear();
    for (int cell = 0; cell < kLegendCells; ++cell) {
      absl::StrAppend(&middle, Paint(" ", value_at((cell + 0.5) / kLegendCells)));
    }
  }
  return absl::StrFormat("scale %.4g %s %.4g%s", value_at(0), middle, value_at(1),
                         is_log_ ? ", logarithmic" : "");
}

}  // namespace vitrine::client
