#include "server/attention_lab_report.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace vitrine::server {
namespace {

constexpr int kBarColumns = 40;     // Of a weight of 1.
constexpr int kTableColumns = 12;   // Keys per table; wider ones are cut into several.
constexpr int kVectorElements = 8;  // Shown of a vector.

// Code points, which is how many columns most scripts take.
size_t Width(std::string_view text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0u) != 0x80u;
  }));
}

std::string Padded(std::string_view text, size_t width) {
  return std::string(text) + std::string(width - std::min(width, Width(text)), ' ');
}

std::string RightAligned(std::string_view text, size_t width) {
  return std::string(width - std::min(width, Width(text)), ' ') + std::string(text);
}

std::string Vector(const LabMatrix& matrix, int row) {
  std::string text = "(";
  for (int c = 0; c < std::min(matrix.columns, kVectorElements); ++c) {
    absl::StrAppendFormat(&text, "%s%.4g", c == 0 ? "" : ", ", matrix.at(row, c));
  }
  return text + (matrix.columns > kVectorElements ? ", ...)" : ")");
}

// Columns with a heading, each as wide as its widest cell.
class Table {
 public:
  explicit Table(std::vector<std::string> headings) { rows_.push_back(std::move(headings)); }
  void Add(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }

  // The first `left` columns are aligned to the left, and so is the last when `bars`.
  std::string Text(size_t left, bool bars = false) const {
    std::vector<size_t> widths(rows_[0].size());
    for (const std::vector<std::string>& row : rows_) {
      for (size_t c = 0; c < row.size(); ++c) widths[c] = std::max(widths[c], Width(row[c]));
    }
    std::string text;
    for (const std::vector<std::string>& row : rows_) {
      std::string line;
      for (size_t c = 0; c < row.size(); ++c) {
        const bool to_left = c < left || (bars && c + 1 == row.size());
        absl::StrAppend(&line, "  ",
                        to_left ? Padded(row[c], widths[c]) : RightAligned(row[c], widths[c]));
      }
      line.erase(line.find_last_not_of(' ') + 1);
      absl::StrAppend(&text, line, "\n");
    }
    return text;
  }

 private:
  std::vector<std::vector<std::string>> rows_;
};

std::string Number(float value, int digits) {
  return std::isinf(value) ? "masked" : absl::StrFormat("%.*f", digits, value);
}

std::string TopKeyNames(const LabSetup& setup, const LabResult& result, int row) {
  std::vector<std::string> names;
  for (const int key : LabTopKeys(result, row)) {
    names.push_back(setup.tokens[static_cast<size_t>(key)]);
  }
  return absl::StrJoin(names, " and ");
}

// [tokens, tokens] with the tokens on both sides.
std::string Grid(const LabSetup& setup, const LabMatrix& matrix, int digits) {
  std::string text;
  for (int begin = 0; begin < matrix.columns; begin += kTableColumns) {
    const int end = std::min(begin + kTableColumns, matrix.columns);
    std::vector<std::string> headings = {""};
    for (int c = begin; c < end; ++c) headings.push_back(setup.tokens[static_cast<size_t>(c)]);
    Table table(std::move(headings));
    for (int r = 0; r < matrix.rows; ++r) {
      std::vector<std::string> cells = {setup.tokens[static_cast<size_t>(r)]};
      for (int c = begin; c < end; ++c) cells.push_back(Number(matrix.at(r, c), digits));
      table.Add(std::move(cells));
    }
    absl::StrAppend(&text, table.Text(1), end < matrix.columns ? "\n" : "");
  }
  return text;
}

std::string JsonString(std::string_view text) {
  std::string json = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      json += '\\';
      json += c;
    } else if (byte < 0x20) {
      absl::StrAppendFormat(&json, "\\u%04x", byte);
    } else {
      json += c;
    }
  }
  return json + "\"";
}

// %.9g brings every float back.
std::string JsonNumber(float value) {
  return std::isinf(value) ? "null" : absl::StrFormat("%.9g", value);
}

std::string JsonMatrix(const LabMatrix& matrix) {
  std::string json = "[";
  for (int r = 0; r < matrix.rows; ++r) {
    absl::StrAppend(&json, r == 0 ? "[" : ",[");
    for (int c = 0; c < matrix.columns; ++c) {
      absl::StrAppend(&json, c == 0 ? "" : ",", JsonNumber(matrix.at(r, c)));
    }
    json += "]";
  }
  return json + "]";
}

std::string JsonSaturation(const Saturation& saturation) {
  return absl::StrFormat("{\"entropy\":%.9g,\"max_weight\":%.9g,\"gradient\":%.9g}",
                         saturation.entropy, saturation.max_weight, saturation.gradient);
}

}  // namespace

std::vector<int> LabTopKeys(const LabResult& result, int row) {
  std::vector<int> keys;
  const float largest = result.rows[static_cast<size_t>(row)].max_weight;
  for (int key = 0; key < result.weights.columns; ++key) {
    if (result.weights.at(row, key) == largest) keys.push_back(key);
  }
  return keys;
}

std::string LabInputText(const LabSetup& setup) {
  std::string text =
      absl::StrCat("attention lab: ", setup.name, ", ", setup.summary, "\n", setup.tokens.size(),
                   " tokens, d = ", setup.k.columns, ", scale ", setup.ScaleText(),
                   ", causal mask ", setup.causal ? "on" : "off", "\n");
  if (!setup.features.empty()) {
    absl::StrAppend(&text, "columns: ", absl::StrJoin(setup.features, ", "), "\n");
  }
  Table table({"", "token", "q asks", "k offers", "v passes on"});
  for (size_t t = 0; t < setup.tokens.size(); ++t) {
    const auto row = static_cast<int>(t);
    table.Add({absl::StrCat(t), setup.tokens[t], Vector(setup.q, row), Vector(setup.k, row),
               Vector(setup.v, row)});
  }
  return text + "\n" + table.Text(5);
}

std::string LabQueryText(const LabSetup& setup, const LabResult& result, int query) {
  const LabRow& row = result.rows[static_cast<size_t>(query)];
  std::string text = absl::StrFormat(
      "\"%s\" (token %d) looks: score = q.k, scaled = score x scale, weight = softmax(scaled)\n\n",
      setup.tokens[static_cast<size_t>(query)], query);
  Table table({"", "key", "score", "scaled", "weight", ""});
  for (int key = 0; key < result.weights.columns; ++key) {
    const float weight = result.weights.at(query, key);
    const auto bar = static_cast<size_t>(std::lround(kBarColumns * std::clamp(weight, 0.f, 1.f)));
    table.Add({absl::StrCat(key), setup.tokens[static_cast<size_t>(key)],
               Number(result.scores.at(query, key), 4), Number(result.scaled.at(query, key), 4),
               Number(weight, 6), std::string(bar, '#')});
  }
  absl::StrAppend(&text, table.Text(2, /*bars=*/true));
  absl::StrAppendFormat(&text,
                        "\ntop key  %s, weight %.6f; equal weights would be %.6f\n"
                        "entropy  %.4f nats of at most ln %d = %.4f\n"
                        "output   %s = sum of weight x v\n"
                        "uniform  %s = mean of the visible v\n",
                        TopKeyNames(setup, result, query), row.max_weight, 1.0 / row.visible_keys,
                        row.entropy, row.visible_keys, row.uniform_entropy,
                        Vector(result.output, query), Vector(result.uniform_output, query));
  return text;
}

std::string LabTablesText(const LabSetup& setup, const LabResult& result) {
  std::string text = absl::StrCat(
      "step 1  scores: q of the row's token times k of the column's\n",
      Grid(setup, result.scores, 4), "\nstep 2  scaled scores: x ", setup.ScaleText(),
      setup.causal ? ", later keys masked" : "", "\n", Grid(setup, result.scaled, 4),
      "\nstep 3  weights: softmax of each row\n", Grid(setup, result.weights, 6), "\n");
  Table table({"", "sum", "entropy", "uniform", "top weight", "top key"});
  Table output({"", "output", "uniform attention"});
  for (int r = 0; r < result.weights.rows; ++r) {
    const LabRow& row = result.rows[static_cast<size_t>(r)];
    double sum = 0;
    for (int key = 0; key < result.weights.columns; ++key) sum += result.weights.at(r, key);
    const std::string& token = setup.tokens[static_cast<size_t>(r)];
    table.Add({token, absl::StrFormat("%.6f", sum), absl::StrFormat("%.4f", row.entropy),
               absl::StrFormat("ln %d = %.4f", row.visible_keys, row.uniform_entropy),
               absl::StrFormat("%.6f", row.max_weight), TopKeyNames(setup, result, r)});
    output.Add({token, Vector(result.output, r), Vector(result.uniform_output, r)});
  }
  absl::StrAppend(&text, table.Text(1, /*bars=*/true),
                  "\nstep 4  output: each row's weights times v, beside equal weights times v\n",
                  output.Text(3));
  return text;
}

std::string LabSweepText(const std::vector<SweepRow>& sweep) {
  std::string text = absl::StrFormat(
      "random q and k, %d keys: what happens to the weights as d grows\n"
      "entropy of equal weights: ln %d = %.4f nats; gradient: sum of w (1 - w), 0 when saturated\n"
      "\n",
      kSweepKeys, kSweepKeys, std::log(static_cast<double>(kSweepKeys)));
  Table table(
      {"d", "entropy", "max weight", "gradient", " | no scale: entropy", "max weight", "gradient"});
  for (const SweepRow& row : sweep) {
    std::vector<std::string> cells = {absl::StrCat(row.d)};
    for (const Saturation* one : {&row.scaled, &row.unscaled}) {
      for (const double value : {one->entropy, one->max_weight, one->gradient}) {
        cells.push_back(absl::StrFormat("%.4f", value));
      }
    }
    table.Add(std::move(cells));
  }
  return text + table.Text(0);
}

std::string LabJson(const LabSetup& setup, const LabResult& result) {
  const LabInput input = setup.Input();
  std::string json = absl::StrCat("{\"example\":", JsonString(setup.name), ",\"tokens\":[");
  for (size_t t = 0; t < setup.tokens.size(); ++t) {
    absl::StrAppend(&json, t == 0 ? "" : ",", JsonString(setup.tokens[t]));
  }
  absl::StrAppend(&json, "],\"d\":", setup.k.columns, ",\"scale\":", JsonNumber(input.scale),
                  ",\"causal\":", input.causal ? "true" : "false");
  const std::pair<const char*, const LabMatrix*> matrices[] = {
      {"q", &input.q},
      {"k", &input.k},
      {"v", &input.v},
      {"scores", &result.scores},
      {"scaled_scores", &result.scaled},
      {"weights", &result.weights},
      {"output", &result.output},
      {"uniform_output", &result.uniform_output}};
  for (const auto& [name, matrix] : matrices) {
    absl::StrAppend(&json, ",\"", name, "\":", JsonMatrix(*matrix));
  }
  json += ",\"rows\":[";
  for (size_t r = 0; r < result.rows.size(); ++r) {
    const LabRow& row = result.rows[r];
    absl::StrAppendFormat(
        &json,
        "%s{\"token\":%s,\"log_sum_exp\":%s,\"entropy\":%s,"
        "\"uniform_entropy\":%s,\"max_weight\":%s,\"top_keys\":[%s],"
        "\"visible_keys\":%d}",
        r == 0 ? "" : ",", JsonString(setup.tokens[r]), JsonNumber(row.log_sum_exp),
        JsonNumber(row.entropy), JsonNumber(row.uniform_entropy), JsonNumber(row.max_weight),
        absl::StrJoin(LabTopKeys(result, static_cast<int>(r)), ","), row.visible_keys);
  }
  return json + "]}\n";
}

std::string LabSweepJson(const std::vector<SweepRow>& sweep) {
  std::string json = absl::StrCat("{\"keys\":", kSweepKeys, ",\"sweep\":[");
  for (size_t i = 0; i < sweep.size(); ++i) {
    absl::StrAppend(&json, i == 0 ? "" : ",", "{\"d\":", sweep[i].d,
                    ",\"scaled\":", JsonSaturation(sweep[i].scaled),
                    ",\"unscaled\":", JsonSaturation(sweep[i].unscaled), "}");
  }
  return json + "]}\n";
}

}  // namespace vitrine::server
