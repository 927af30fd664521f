#include "tests/kernels/golden.h"

#include <cstdint>
#include <fstream>
#include <limits>
#include <stdexcept>

#include "nlohmann/json.hpp"
#include "tests/test_data.h"

namespace vitrine::testing {
namespace {

double NumberOf(const nlohmann::json& value) {
  if (!value.is_string()) return value.get<double>();
  if (value == "inf") return std::numeric_limits<double>::infinity();
  if (value == "-inf") return -std::numeric_limits<double>::infinity();
  if (value == "nan") return std::numeric_limits<double>::quiet_NaN();
  throw std::runtime_error("not a number: " + value.get<std::string>());
}

void Flatten(const nlohmann::json& value, std::vector<double>& numbers) {
  if (!value.is_array()) {
    numbers.push_back(NumberOf(value));
    return;
  }
  for (const nlohmann::json& element : value) Flatten(element, numbers);
}

}  // namespace

GoldenValue::GoldenValue(const std::string& file) {
  const std::string path = TestData() + "/ops/" + file;
  std::ifstream stream(path);
  if (!stream) throw std::runtime_error("cannot open " + path);
  root_ = std::make_shared<const nlohmann::json>(nlohmann::json::parse(stream));
  value_ = root_.get();
}

GoldenValue GoldenValue::operator[](const std::string& key) const {
  return {root_, &value_->at(key)};
}
GoldenValue GoldenValue::operator[](size_t index) const { return {root_, &value_->at(index)}; }
size_t GoldenValue::size() const { return value_->size(); }
bool GoldenValue::Has(const std::string& key) const { return value_->contains(key); }
bool GoldenValue::IsNull() const { return value_->is_null(); }
bool GoldenValue::Bool() const { return value_->get<bool>(); }
double GoldenValue::Number() const { return NumberOf(*value_); }
std::string GoldenValue::Text() const { return value_->get<std::string>(); }

std::vector<double> GoldenValue::Doubles() const {
  std::vector<double> numbers;
  Flatten(*value_, numbers);
  return numbers;
}

std::vector<float> GoldenValue::Floats() const {
  const std::vector<double> numbers = Doubles();
  return {numbers.begin(), numbers.end()};
}

std::string GoldenValue::Base64() const {
  const std::string alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string bytes;
  uint32_t bits = 0;
  int count = 0;
  for (const char c : Text()) {
    if (c == '=') break;
    bits = bits << 6 | static_cast<uint32_t>(alphabet.find(c));
    count += 6;
    if (count < 8) continue;
    count -= 8;
    bytes.push_back(static_cast<char>(bits >> count & 0xffu));
  }
  return bytes;
}

}  // namespace vitrine::testing
