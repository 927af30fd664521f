// Known answers, read from tests/data/ops. Numbers that JSON cannot hold are the strings "inf",
// "-inf" and "nan". A missing key or a wrong type throws.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "nlohmann/json_fwd.hpp"

namespace vitrine::testing {

class GoldenValue {
 public:
  explicit GoldenValue(const std::string& file);  // For instance "rope.json".

  GoldenValue operator[](const std::string& key) const;
  GoldenValue operator[](size_t index) const;
  size_t size() const;
  bool Has(const std::string& key) const;
  bool IsNull() const;
  bool Bool() const;
  double Number() const;
  int Int() const { return static_cast<int>(Number()); }
  std::string Text() const;
  std::vector<double> Doubles() const;  // Of nested arrays too, in order.
  std::vector<float> Floats() const;
  std::string Base64() const;  // The decoded bytes.

 private:
  GoldenValue(std::shared_ptr<const nlohmann::json> root, const nlohmann::json* value)
      : root_(std::move(root)), value_(value) {}

  std::shared_ptr<const nlohmann::json> root_;
  const nlohmann::json* value_;
};

}  // namespace vitrine::testing
