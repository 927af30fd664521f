// Against the tables of transformers in tests/data/ops/rope.json, which have 15 digits.
#include "model/rope_frequencies.h"

#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <vector>

#include "nlohmann/json.hpp"

namespace vitrine {
namespace {

using Json = nlohmann::json;

std::vector<double> Frequencies(const Json& table) {
  const std::string type = table["type"];
  const int dim = table["rotary_dim"];
  const double base = table["theta"];
  if (type == "default") return RopeFrequencies(dim, base);
  if (type == "linear") return LinearRopeFrequencies(dim, base, table["factor"]);
  if (type == "dynamic") {
    return DynamicRopeFrequencies(dim, base, table["factor"], table["max_position"],
                                  table["seq_len"]);
  }
  if (type == "llama3") {
    return Llama3RopeFrequencies(dim, base,
                                 {.factor = table["factor"],
                                  .low_frequency_factor = table["low_freq_factor"],
                                  .high_frequency_factor = table["high_freq_factor"],
                                  .original_length = table["original"]});
  }
  if (type == "yarn") {
    return YarnRopeFrequencies(dim, base,
                               {.factor = table["factor"],
                                .fast_turns = table["beta_fast"],
                                .slow_turns = table["beta_slow"],
                                .original_length = table["original"]});
  }
  throw std::runtime_error("no rule for " + type);
}

TEST(RopeFrequenciesTest, EqualTheReference) {
  std::ifstream file(VITRINE_TEST_DATA "/ops/rope.json");
  const Json tables = Json::parse(file)["tables"];
  ASSERT_GE(tables.size(), 9u);
  for (const Json& table : tables) {
    SCOPED_TRACE(table["type"]);
    const std::vector<double> frequencies = Frequencies(table);
    const std::vector<double> expected = table["inv_freq"];
    ASSERT_EQ(frequencies.size(), expected.size());
    for (size_t i = 0; i < expected.size(); ++i) {
      // The file rounds to 15 digits.
      EXPECT_NEAR(frequencies[i], expected[i], expected[i] * 1e-14) << "pair " << i;
    }
    const double factor = table["type"] == "yarn" ? YarnAttentionFactor(table["factor"]) : 1.0;
    EXPECT_NEAR(factor, table["attention_factor"].get<double>(), 1e-15 * factor);
  }
}

TEST(RopeFrequenciesTest, OnePairTurnsByOne) {
  EXPECT_EQ(RopeFrequencies(2, 10000.0), std::vector<double>{1.0});
  EXPECT_EQ(DynamicRopeFrequencies(2, 10000.0, 4.0, 32, 64), std::vector<double>{1.0});
}

}  // namespace
}  // namespace vitrine
