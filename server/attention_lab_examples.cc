#include "server/attention_lab_examples.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace vitrine::server {
namespace {

LabMatrix Matrix(int columns, std::vector<float> values) {
  return {.rows = static_cast<int>(values.size()) / columns,
          .columns = columns,
          .values = std::move(values)};
}

LabSetup Toy() {
  const LabMatrix x = Matrix(4, {1, 0, 1, 0, 0, 2, 0, 2, 1, 1, 1, 1});
  return {.name = "toy",
          .summary = "three tokens that ask for, offer and pass on the same vector",
          .tokens = {"A", "B", "C"},
          .q = x,
          .k = x,
          .v = x};
}

// Raschka, "Build a Large Language Model (From Scratch)", chapter 3.
LabSetup Journey() {
  const LabMatrix x = Matrix(3, {0.43f, 0.15f, 0.89f, 0.55f, 0.87f, 0.66f, 0.57f, 0.85f, 0.64f,
                                 0.22f, 0.58f, 0.33f, 0.77f, 0.25f, 0.10f, 0.05f, 0.80f, 0.55f});
  return {.name = "journey",
          .summary = "six words of Raschka's book with q = k = v",
          .tokens = {"Your", "journey", "starts", "with", "one", "step"},
          .q = x,
          .k = x,
          .v = x,
          .causal = true};
}

// The sentences of the transformer's announcement (Uszkoreit, 2017). The vectors are made by hand:
// the query of "it" is what earlier layers would have put there after reading the last word.
LabSetup Sentence(std::string name, const std::string& last_word, bool is_about_animal) {
  const float to_animal = is_about_animal ? 2.5f : 0.5f;
  const float to_street = is_about_animal ? 0.5f : 2.5f;
  const LabMatrix q = Matrix(4, {0.5f,      0,         0, 0,    // The
                                 0,         0,         0, 1,    // animal
                                 0,         0,         2, 0,    // didn't
                                 2,         2,         0, 0,    // cross
                                 0,         0.5f,      0, 0,    // the
                                 0,         0,         0, 1,    // street
                                 0,         0,         1, 0,    // because
                                 to_animal, to_street, 0, 0,    // it
                                 0,         0,         0, 2,    // was
                                 0,         0,         0, 2,    // too
                                 to_animal, to_street, 0, 0});  // tired, wide
  const LabMatrix k = Matrix(4, {0, 0, 0, 0,                    //
                                 3, 0, 0, 0,                    //
                                 0, 0, 1, 0,                    //
                                 0, 0, 3, 0,                    //
                                 0, 0, 0, 0,                    //
                                 0, 3, 0, 0,                    //
                                 0, 0, 1, 0,                    //
                                 1, 1, 0, 0,                    //
                                 0, 0, 1, 0,                    //
                                 0, 0, 0, 1,                    //
                                 0, 0, 0, 3});                  //
  const LabMatrix v = Matrix(4, {0,    0,    0,    0,           //
                                 1,    0,    0,    0,           //
                                 0,    0,    0.5f, 0,           //
                                 0,    0,    1,    0,           //
                                 0,    0,    0,    0,           //
                                 0,    1,    0,    0,           //
                                 0,    0,    0.5f, 0,           //
                                 0.5f, 0.5f, 0,    0,           //
                                 0,    0,    0.5f, 0,           //
                                 0,    0,    0,    0.5f,        //
                                 0,    0,    0,    1});         //
  return {.name = std::move(name),
          .summary = absl::StrCat("what \"it\" means when it was too ", last_word,
                                  " (vectors made by hand)"),
          .tokens = {"The", "animal", "didn't", "cross", "the", "street", "because", "it", "was",
                     "too", last_word},
          .q = q,
          .k = k,
          .v = v,
          .query = 7,
          .features = {"living", "place", "action", "quality"}};
}

}  // namespace

LabInput LabSetup::Input() const {
  LabInput input = {.tokens = tokens, .q = q, .k = k, .v = v, .causal = causal};
  if (scale == LabScale::kSqrtD) input.scale = DefaultScale(k.columns);
  if (scale == LabScale::kNumber) input.scale = scale_number;
  return input;
}

std::string LabSetup::ScaleText() const {
  if (scale == LabScale::kOff) return "1 (off)";
  if (scale == LabScale::kNumber) return absl::StrFormat("%g", scale_number);
  return absl::StrFormat("1/sqrt(%d) = %.4g", k.columns, DefaultScale(k.columns));
}

const std::vector<LabSetup>& LabExamples() {
  static const auto* const kExamples = new std::vector<LabSetup>{
      Toy(), Sentence("animal", "tired", true), Sentence("street", "wide", false), Journey()};
  return *kExamples;
}

absl::StatusOr<LabSetup> FindLabExample(std::string_view name) {
  std::vector<std::string> names;
  for (const LabSetup& example : LabExamples()) {
    if (example.name == name) return example;
    names.push_back(example.name);
  }
  return absl::InvalidArgumentError(absl::StrCat("the examples are ", absl::StrJoin(names, ", ")));
}

absl::StatusOr<LabMatrix> ParseLabMatrix(std::string_view text) {
  LabMatrix matrix;
  while (true) {
    const size_t end = text.find_first_of(";\n");
    std::string_view row = text.substr(0, end);
    int columns = 0;
    while (true) {
      row.remove_prefix(std::min(row.find_first_not_of(", \t"), row.size()));
      if (row.empty()) break;
      const std::string_view word = row.substr(0, row.find_first_of(", \t"));
      float value = 0;
      const auto [parsed, error] = std::from_chars(word.data(), word.data() + word.size(), value);
      if (error != std::errc() || parsed != word.data() + word.size() || !std::isfinite(value)) {
        return absl::InvalidArgumentError(
            absl::StrCat("row ", matrix.rows, " holds something that is no number"));
      }
      matrix.values.push_back(value);
      if (++columns > kMaxLabColumns) {
        return absl::InvalidArgumentError(
            absl::StrCat("a row takes at most ", kMaxLabColumns, " numbers"));
      }
      row.remove_prefix(word.size());
    }
    if (columns == 0 || (matrix.rows > 0 && columns != matrix.columns)) {
      return absl::InvalidArgumentError(
          absl::StrCat("row ", matrix.rows, " has ", columns, " numbers, row 0 has ",
                       matrix.rows == 0 ? columns : matrix.columns,
                       columns == 0 ? ": a row takes at least one" : ""));
    }
    matrix.columns = columns;
    if (++matrix.rows > kMaxLabTokens) {
      return absl::InvalidArgumentError(absl::StrCat("takes at most ", kMaxLabTokens, " rows"));
    }
    if (end == std::string_view::npos) return matrix;
    text.remove_prefix(end + 1);
  }
}

absl::Status ParseLabScale(std::string_view text, LabSetup& setup) {
  if (text == "sqrt_d" || text == "off") {
    setup.scale = text == "off" ? LabScale::kOff : LabScale::kSqrtD;
    return absl::OkStatus();
  }
  float value = 0;
  const auto [parsed, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  // Written so that NaN fails.
  const bool in_range = value > 0 && value <= kMaxLabScore;
  if (error != std::errc() || parsed != text.data() + text.size() || !in_range) {
    return absl::InvalidArgumentError(
        absl::StrFormat("takes sqrt_d, off or a number above 0, at most %g", kMaxLabScore));
  }
  setup.scale = LabScale::kNumber;
  setup.scale_number = value;
  return absl::OkStatus();
}

absl::StatusOr<int> FindLabToken(const LabSetup& setup, std::string_view name) {
  std::vector<int> found;
  for (size_t t = 0; t < setup.tokens.size(); ++t) {
    if (setup.tokens[t] == name) found.push_back(static_cast<int>(t));
  }
  if (found.size() == 1) return found[0];
  int index = -1;
  const auto [parsed, error] = std::from_chars(name.data(), name.data() + name.size(), index);
  const auto tokens = static_cast<int>(setup.tokens.size());
  if (error == std::errc() && parsed == name.data() + name.size() && index >= 0 && index < tokens) {
    return index;
  }
  return absl::InvalidArgumentError(
      absl::StrCat(found.empty() ? "no such token: takes " : "there are several: takes ",
                   found.empty() ? "a token's text or " : "", "an index from 0 to ", tokens - 1));
}

}  // namespace vitrine::server
