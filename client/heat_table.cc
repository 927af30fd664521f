#include "client/heat_table.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/heat_scale.h"
#include "client/visible_text.h"

namespace vitrine::client {
namespace {

constexpr size_t kMaxHeadingHeight = 12;
constexpr size_t kMaxLabelWidth = 32;

std::string WithoutTrailingSpaces(std::string line) {
  line.erase(line.find_last_not_of(' ') + 1);
  return line;
}

class TablePainter {
 public:
  TablePainter(const HeatTable& table, const HeatScale& scale, const HeatStyle& style)
      : table_(table), scale_(scale), style_(style) {
    label_width_ = DisplayWidth(table.label_heading);
    for (const HeatRow& row : table.rows) {
      label_width_ = std::max(label_width_, DisplayWidth(row.label));
    }
    label_width_ = std::min(label_width_, kMaxLabelWidth);
    const size_t room = static_cast<size_t>(std::max(style.width, 40)) - label_width_ - 2;
    cell_width_ = style.colour ? 2 : 1;
    if (table.digits >= 0) {
      const size_t number_width = NumberWidth() + 1;
      if (number_width * table.columns.size() <= room) {
        cell_width_ = number_width;
        has_numbers_ = true;
      }
    }
    per_block_ = std::max<size_t>(1, room / cell_width_);
  }

  std::string Draw() const {
    std::string picture;
    for (size_t begin = 0; begin < table_.columns.size(); begin += per_block_) {
      const size_t end = std::min(begin + per_block_, table_.columns.size());
      if (begin > 0) picture += "\n";
      absl::StrAppend(&picture, has_numbers_ ? FlatHeadings(begin, end) : TallHeadings(begin, end));
      for (const HeatRow& row : table_.rows) {
        if (begin > 0 && IsEmpty(row, begin, end)) continue;
        std::string line = absl::StrCat(FitWidth(row.label, label_width_, !style_.colour), "  ");
        for (size_t c = begin; c < end; ++c) line += Cell(row, c);
        if (begin == 0 && !row.note.empty()) absl::StrAppend(&line, "  ", row.note);
        absl::StrAppend(&picture, WithoutTrailingSpaces(std::move(line)), "\n");
      }
    }
    return picture;
  }

 private:
  static bool IsEmpty(const HeatRow& row, size_t begin, size_t end) {
    const auto first = row.values.begin();
    return std::all_of(first + static_cast<std::ptrdiff_t>(begin),
                       first + static_cast<std::ptrdiff_t>(end),
                       [](float value) { return std::isnan(value); });
  }

  size_t NumberWidth() const {
    size_t width = 3;
    for (const HeatRow& row : table_.rows) {
      for (size_t c = 0; c < row.values.size(); ++c) {
        width = std::max(width, Number(row, c).size());
      }
    }
    for (const std::string& column : table_.columns) {
      width = std::max(width, std::min<size_t>(DisplayWidth(column), 8));
    }
    return width;
  }

  std::string Number(const HeatRow& row, size_t column) const {
    if (!row.texts.empty()) return row.texts[column];
    const float value = row.values[column];
    return std::isnan(value) ? "" : absl::StrFormat("%.*f", table_.digits, value);
  }

  std::string Cell(const HeatRow& row, size_t column) const {
    const float value = row.values[column];
    std::string text(cell_width_, ' ');
    if (has_numbers_) {
      text = absl::StrFormat("%*s", static_cast<int>(cell_width_), Number(row, column));
    }
    if (std::isnan(value)) return text;
    if (style_.colour) return scale_.Paint(text, value);
    if (!has_numbers_) text[0] = scale_.Shade(value);
    return text;
  }

  std::string FlatHeadings(size_t begin, size_t end) const {
    std::string line =
        absl::StrCat(FitWidth(table_.label_heading, label_width_, !style_.colour), "  ");
    for (size_t c = begin; c < end; ++c) {
      const std::string fitted =
          FitWidth(table_.columns[c], std::min(cell_width_ - 1, DisplayWidth(table_.columns[c])),
                   !style_.colour);
      absl::StrAppend(&line, std::string(cell_width_ - DisplayWidth(fitted), ' '), fitted);
    }
    return WithoutTrailingSpaces(std::move(line)) + "\n";
  }

  // Each heading runs downwards, one character per line, and ends right above its column.
  std::string TallHeadings(size_t begin, size_t end) const {
    std::vector<std::vector<std::string>> columns;
    size_t height = 1;
    for (size_t c = begin; c < end; ++c) {
      columns.push_back(Characters(table_.columns[c]));
      height = std::max(height, columns.back().size());
    }
    std::string lines;
    for (size_t row = 0; row < height; ++row) {
      const bool is_last = row + 1 == height;
      std::string line = absl::StrCat(
          FitWidth(is_last ? table_.label_heading : "", label_width_, !style_.colour), "  ");
      for (const std::vector<std::string>& characters : columns) {
        const size_t above = height - characters.size();
        absl::StrAppend(&line,
                        row < above ? std::string(cell_width_, ' ') : characters[row - above]);
      }
      absl::StrAppend(&lines, WithoutTrailingSpaces(std::move(line)), "\n");
    }
    return lines;
  }

  // Each as wide as a cell.
  std::vector<std::string> Characters(std::string_view text) const {
    std::vector<std::string> characters;
    while (!text.empty() && characters.size() < kMaxHeadingHeight) {
      const std::string_view character = FirstCharacter(text);
      text.remove_prefix(character.size());
      const size_t width = DisplayWidth(character);
      if (width == 0) continue;
      characters.push_back(width > cell_width_ ? std::string(cell_width_, '?')
                                               : FitWidth(character, cell_width_, true));
    }
    if (!text.empty()) {
      characters.back() = FitWidth(style_.colour ? "\u2026" : "~", cell_width_, true);
    }
    return characters;
  }

  const HeatTable& table_;
  const HeatScale& scale_;
  const HeatStyle& style_;
  size_t label_width_ = 0;
  size_t cell_width_ = 1;
  size_t per_block_ = 1;
  bool has_numbers_ = false;
};

}  // namespace

std::string DrawHeatTable(const HeatTable& table, const HeatScale& scale, const HeatStyle& style) {
  return TablePainter(table, scale, style).Draw();
}

}  // namespace vitrine::client
