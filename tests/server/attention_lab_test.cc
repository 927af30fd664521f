// The lab against known answers, and the commands that lead to it.
#include "server/attention_lab.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "server/attention_lab_examples.h"
#include "server/attention_lab_report.h"
#include "server/attention_lab_session.h"
#include "tests/client/subprocess.h"
#include "tests/kernels/golden.h"

namespace vitrine::server {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::vitrine::testing::GoldenValue;

constexpr double kRounding = 0x1p-24;  // Of one float.

LabMatrix MatrixOf(const GoldenValue& value) {
  return {.rows = static_cast<int>(value.size()),
          .columns = static_cast<int>(value[0].size()),
          .values = value.Floats()};
}

// How far float32 scores and weights of an input may be from exact ones.
class Bounds {
 public:
  explicit Bounds(const LabInput& input) : input_(input) {}

  // q and k are rounded, and so are the scale and the result: four roundings of each product.
  double Score(int query, int key, double scale) const {
    double magnitude = 0;
    for (int c = 0; c < input_.q.columns; ++c) {
      magnitude += std::fabs(double{input_.q.at(query, c)} * input_.k.at(key, c));
    }
    return scale * magnitude * 4 * kRounding;
  }

  // weight = exp(score - log_sum_exp): both are off by a score's error, and the second is a float.
  double Weight(int query, int key, double weight, double log_sum_exp) const {
    double largest = 0;
    for (int other = 0; other < input_.k.rows; ++other) {
      largest = std::max(largest, Score(query, other, input_.scale));
    }
    return weight * (Score(query, key, input_.scale) + largest +
                     (std::fabs(log_sum_exp) + 4) * kRounding) +
           kFileDigits;
  }

  static constexpr double kFileDigits = 1e-12;

 private:
  const LabInput& input_;
};

void ExpectMatches(const LabInput& input, const LabResult& result, const GoldenValue& expected) {
  const Bounds bounds(input);
  const auto tokens = static_cast<int>(input.tokens.size());
  for (int query = 0; query < tokens; ++query) {
    const auto q = static_cast<size_t>(query);
    std::vector<double> output_error(static_cast<size_t>(input.v.columns));
    for (int key = 0; key < tokens; ++key) {
      const auto k = static_cast<size_t>(key);
      const double weight = expected["weights"][q][k].Number();
      const double error = bounds.Weight(query, key, weight, result.rows[q].log_sum_exp);
      EXPECT_NEAR(result.scores.at(query, key), expected["scores"][q][k].Number(),
                  bounds.Score(query, key, 1.0) + Bounds::kFileDigits);
      EXPECT_NEAR(result.weights.at(query, key), weight, error);
      if (input.causal && key > query) {
        EXPECT_EQ(result.weights.at(query, key), 0.0f);
        EXPECT_EQ(result.scaled.at(query, key), -std::numeric_limits<float>::infinity());
      }
      for (int c = 0; c < input.v.columns; ++c) {
        const double value = std::fabs(double{input.v.at(key, c)});
        output_error[static_cast<size_t>(c)] += (error + 4 * weight * kRounding) * value;
      }
    }
    for (int c = 0; c < input.v.columns; ++c) {
      const auto column = static_cast<size_t>(c);
      EXPECT_NEAR(result.output.at(query, c), expected["output"][q][column].Number(),
                  output_error[column] + Bounds::kFileDigits);
    }
  }
}

TEST(AttentionLabTest, GivesEveryTeachingExample) {
  const GoldenValue cases = GoldenValue("teaching.json")["cases"];
  int compared = 0;
  for (size_t i = 0; i < cases.size(); ++i) {
    const GoldenValue one = cases[i];
    SCOPED_TRACE(one["name"].Text());
    if (!one.Has("q")) continue;  // Two scores without vectors; see below.
    const LabInput input = {.tokens = std::vector<std::string>(one["tokens"].size()),
                            .q = MatrixOf(one["q"]),
                            .k = MatrixOf(one["k"]),
                            .v = MatrixOf(one["v"]),
                            .scale = static_cast<float>(one["scale"].Number()),
                            .causal = one["causal"].Bool()};
    const absl::StatusOr<LabResult> result = RunLab(input);
    ASSERT_TRUE(result.ok()) << result.status();
    ExpectMatches(input, *result, one);
    ++compared;
  }
  EXPECT_EQ(compared, 6);
}

// The scores 112 and 96 of the illustrated examples, divided by 8 or not.
TEST(AttentionLabTest, GivesTheTwoScores) {
  const GoldenValue cases = GoldenValue("teaching.json")["cases"];
  const GoldenValue one = cases[cases.size() - 1];
  const std::vector<float> scores = one["row_scores"].Floats();
  const LabMatrix ones = {.rows = 2, .columns = 1, .values = {1, 1}};
  LabInput input = {
      .tokens = {"a", "b"}, .q = ones, .k = {.rows = 2, .columns = 1, .values = scores}, .v = ones};
  for (const bool is_scaled : {true, false}) {
    input.scale = is_scaled ? 0.125f : 1.0f;
    const absl::StatusOr<LabResult> result = RunLab(input);
    ASSERT_TRUE(result.ok()) << result.status();
    const GoldenValue weights = one[is_scaled ? "weights" : "weights_unscaled"];
    for (int key = 0; key < 2; ++key) {
      const double weight = weights[static_cast<size_t>(key)].Number();
      EXPECT_NEAR(result->weights.at(0, key), weight,
                  Bounds(input).Weight(0, key, weight, result->rows[0].log_sum_exp));
    }
  }
}

void ExpectWeights(const LabInput& input, int query, const std::vector<double>& expected,
                   double digits) {
  const absl::StatusOr<LabResult> result = RunLab(input);
  ASSERT_TRUE(result.ok()) << result.status();
  for (size_t key = 0; key < expected.size(); ++key) {
    const auto k = static_cast<int>(key);
    EXPECT_NEAR(result->weights.at(query, k), expected[key],
                digits + Bounds(input).Weight(query, k, expected[key],
                                              result->rows[static_cast<size_t>(query)].log_sum_exp))
        << "row " << query << ", key " << key;
  }
}

TEST(AttentionLabTest, ToyExampleHasTheKnownRows) {
  LabSetup toy = *FindLabExample("toy");
  const LabInput all = toy.Input();
  EXPECT_EQ(all.scale, 0.5f);
  constexpr double kSixDigits = 5.1e-7;
  ExpectWeights(all, 0, {0.422319, 0.155362, 0.422319}, kSixDigits);
  ExpectWeights(all, 1, {0.015876, 0.866813, 0.117310}, kSixDigits);
  ExpectWeights(all, 2, {0.155362, 0.422319, 0.422319}, kSixDigits);
  toy.causal = true;
  ExpectWeights(toy.Input(), 1, {0.017986, 0.982014, 0}, kSixDigits);
}

// Raschka, chapter 3: printed to four digits there, recomputed to seven.
TEST(AttentionLabTest, SixWordsHaveTheKnownRows) {
  constexpr double kSevenDigits = 5.1e-8;
  LabSetup words = *FindLabExample("journey");
  words.causal = false;
  words.scale = LabScale::kOff;
  ExpectWeights(words.Input(), 0,
                {0.2098348, 0.2005814, 0.1981492, 0.1242282, 0.1220487, 0.1451576}, kSevenDigits);
  ExpectWeights(words.Input(), 1,
                {0.1385476, 0.2378913, 0.2332740, 0.1239916, 0.1081819, 0.1581136}, kSevenDigits);

  words.causal = true;
  words.scale = LabScale::kSqrtD;
  const LabInput input = words.Input();
  const std::vector<std::vector<double>> rows = {
      {1},
      {0.4225984, 0.5774016},
      {0.2697891, 0.3670447, 0.3631662},
      {0.2234910, 0.2764123, 0.2742188, 0.2258779},
      {0.1858326, 0.2146132, 0.2156566, 0.1743775, 0.2095201},
      {0.1510854, 0.1965326, 0.1936044, 0.1533262, 0.1243362, 0.1811152}};
  const std::vector<double> log_sum_exp = {0.5770616, 1.4123560, 1.8540941,
                                           1.7727987, 1.9471044, 2.2542181};
  const std::vector<double> entropy = {0, 0.6811169, 1.0891823, 1.3811478, 1.6058658, 1.7793532};
  const absl::StatusOr<LabResult> result = RunLab(input);
  ASSERT_TRUE(result.ok()) << result.status();
  for (size_t query = 0; query < rows.size(); ++query) {
    ExpectWeights(input, static_cast<int>(query), rows[query], kSevenDigits);
    // A dozen roundings of numbers of about 2.
    EXPECT_NEAR(result->rows[query].log_sum_exp, log_sum_exp[query], kSevenDigits + 24 * kRounding);
    EXPECT_NEAR(result->rows[query].entropy, entropy[query], kSevenDigits + 24 * kRounding);
    EXPECT_EQ(result->rows[query].visible_keys, static_cast<int>(query) + 1);
  }
  const std::vector<double> output = {0.4219406, 0.6231153, 0.5507289};
  const std::vector<double> uniform = {0.4316667, 0.5833333, 0.5283333};
  for (int c = 0; c < 3; ++c) {
    const auto column = static_cast<size_t>(c);
    EXPECT_NEAR(result->output.at(5, c), output[column], kSevenDigits + 24 * kRounding);
    EXPECT_NEAR(result->uniform_output.at(5, c), uniform[column], kSevenDigits + 4 * kRounding);
  }
}

TEST(AttentionLabTest, ItIsTheAnimalOrTheStreet) {
  for (const bool is_causal : {false, true}) {
    for (const char* name : {"animal", "street"}) {
      LabSetup sentence = *FindLabExample(name);
      sentence.causal = is_causal;
      const absl::StatusOr<LabResult> result = RunLab(sentence.Input());
      ASSERT_TRUE(result.ok()) << result.status();
      const int it = *FindLabToken(sentence, "it");
      EXPECT_THAT(LabTopKeys(*result, it), ElementsAre(*FindLabToken(sentence, name)));
      EXPECT_GT(result->rows[static_cast<size_t>(it)].max_weight, 0.7f);
    }
  }
}

TEST(AttentionLabTest, ValuesMayBeWiderThanKeys) {
  const LabInput input = {.tokens = {"a", "b"},
                          .q = {2, 1, {0, 0}},
                          .k = {2, 1, {1, 2}},
                          .v = {2, 3, {1, 2, 3, 5, 6, 7}}};
  const absl::StatusOr<LabResult> result = RunLab(input);
  ASSERT_TRUE(result.ok()) << result.status();
  // Queries of zero weigh all keys alike, which is what the baseline does.
  EXPECT_THAT(result->output.values, ElementsAre(3, 4, 5, 3, 4, 5));
  EXPECT_EQ(result->output.values, result->uniform_output.values);
  EXPECT_THAT(LabTopKeys(*result, 0), ElementsAre(0, 1));
}

TEST(AttentionLabTest, WithoutTheScaleSoftmaxSaturates) {
  const absl::StatusOr<std::vector<SweepRow>> sweep = SweepColumns();
  ASSERT_TRUE(sweep.ok()) << sweep.status();
  ASSERT_EQ(sweep->size(), 10u);
  EXPECT_EQ(sweep->front().d, 1);
  EXPECT_EQ(sweep->front().scaled.entropy, sweep->front().unscaled.entropy);
  const SweepRow& last = sweep->back();
  EXPECT_EQ(last.d, 512);
  // Normal scores of variance 1 lose about half a nat of ln 16; of variance 512 they leave one key.
  for (const SweepRow& row : *sweep) {
    EXPECT_GT(row.scaled.entropy, std::log(kSweepKeys) - 0.6) << row.d;
    EXPECT_LE(row.scaled.entropy, std::log(kSweepKeys)) << row.d;
    EXPECT_LT(row.scaled.max_weight, 0.4) << row.d;
  }
  EXPECT_LT(last.unscaled.entropy, 0.3);
  EXPECT_GT(last.unscaled.max_weight, 0.9);
  EXPECT_LT(last.unscaled.gradient, 0.2 * last.scaled.gradient);
}

TEST(AttentionLabTest, RefusesWhatHasNoAnswer) {
  const LabInput good = FindLabExample("toy")->Input();
  const auto message = [](const LabInput& input) {
    return std::string(RunLab(input).status().message());
  };
  LabInput bad = good;
  bad.tokens.pop_back();
  EXPECT_EQ(message(bad), "q needs 2 rows, one per token, not 3");
  bad = good;
  bad.k = {3, 1, {1, 2, 3}};
  EXPECT_EQ(message(bad), "q has 4 columns and k 1: they must be equal");
  bad = good;
  bad.q.values[0] = 1e9f;
  EXPECT_THAT(message(bad), HasSubstr("take smaller numbers"));
  bad = good;
  bad.v.values[0] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_THAT(message(bad), HasSubstr("v "));
  bad = {.tokens = std::vector<std::string>(65),
         .q = {65, 1, std::vector<float>(65)},
         .k = {65, 1, std::vector<float>(65)},
         .v = {65, 1, std::vector<float>(65)}};
  EXPECT_EQ(message(bad), "takes 1 to 64 tokens, not 65");
  EXPECT_FALSE(RunLab({}).ok());
}

TEST(AttentionLabTest, ReadsMatrices) {
  const absl::StatusOr<LabMatrix> matrix = ParseLabMatrix("1, -2.5;3e1 0\n 0,0");
  ASSERT_TRUE(matrix.ok()) << matrix.status();
  EXPECT_EQ(matrix->rows, 3);
  EXPECT_EQ(matrix->columns, 2);
  EXPECT_THAT(matrix->values, ElementsAre(1, -2.5f, 30, 0, 0, 0));
  for (const char* wrong : {"", "1;", ";1", "1,2;3", "1,x", "inf", "1e99", "1;;2"}) {
    EXPECT_FALSE(ParseLabMatrix(wrong).ok()) << wrong;
  }
  EXPECT_FALSE(ParseLabMatrix(std::string(2000, '1') + std::string(2000, ' ')).ok());
  std::string wide;
  for (int i = 0; i < 513; ++i) wide += "1 ";
  EXPECT_FALSE(ParseLabMatrix(wide).ok());
}

std::string Talk(const std::string& commands, bool all_well = true) {
  std::istringstream in(commands);
  std::ostringstream out;
  LabSession session(*FindLabExample("toy"), in, out, "");
  EXPECT_EQ(session.Run(), all_well) << out.str();
  return out.str();
}

TEST(LabSessionTest, EditsShowAtOnce) {
  EXPECT_THAT(Talk(""), HasSubstr("B  0.015876  0.866813  0.117310"));
  EXPECT_THAT(Talk("causal on\n"), HasSubstr("B  0.017986  0.982014  0.000000"));
  EXPECT_THAT(Talk("scale off\n"), HasSubstr("scaled scores: x 1 (off)"));
  // x = (0, 0, 0, 0) for all three: every weight is 1/3.
  EXPECT_THAT(Talk("x A 0 0 0 0\nx 1 0,0,0,0\nx C 0 0 0 0\n"),
              HasSubstr("C  0.333333  0.333333  0.333333"));
  EXPECT_THAT(Talk("query B\n"), HasSubstr("1  B    8.0000  4.0000  0.866813  ####"));
  EXPECT_THAT(Talk("q A 0 0 0 0\ninput\n"),
              HasSubstr("0  A      (0, 0, 0, 0)  (1, 0, 1, 0)  (1, 0, 1, 0)"));
  EXPECT_THAT(Talk("example street\n"), HasSubstr("top key  street"));
  EXPECT_THAT(Talk("help\nquit\nnonsense\n"), HasSubstr("quiz [NAME]"));
  for (const char* wrong : {"nonsense", "x A 1", "x D 0 0 0 0", "scale -1", "causal", "example x",
                            "q A 1e9 0 0 0", "query 3"}) {
    EXPECT_THAT(Talk(std::string(wrong) + "\n", false), HasSubstr("error: ")) << wrong;
  }
}

TEST(LabSessionTest, QuizShowsNothingBeforeTheGuess) {
  std::istringstream in("C\nnobody\nA\n1\n");
  std::ostringstream out;
  LabSession session(*FindLabExample("toy"), in, out, "");
  ASSERT_TRUE(session.Quiz().ok());
  const std::string text = out.str();
  // A and C tie for A; B is nobody's guess but its own; C looks at B and C.
  EXPECT_THAT(text, HasSubstr("2 of 3 right\n"));
  EXPECT_THAT(text.substr(0, text.find("Right.")), Not(HasSubstr("0.4223")));
  EXPECT_LT(text.find("Right."), text.find("0.422319"));
  EXPECT_THAT(text, HasSubstr("no such token"));
  EXPECT_THAT(Talk("quiz animal\nanimal\n"), HasSubstr("1 of 1 right"));
  EXPECT_THAT(Talk("quiz\nA\n"), HasSubstr("1 of 1 right"));
}

struct Outcome {
  int exit_code = -1;
  std::string out;
  std::string err;
};

Outcome Lab(std::vector<std::string> arguments, const std::string& input = "") {
  arguments.insert(arguments.begin(), {VITRINE_SERVER, "attention-lab"});
  client::Subprocess process(arguments, input);
  const int exit_code = process.Wait();
  return {.exit_code = exit_code, .out = process.out(), .err = process.err()};
}

TEST(AttentionLabCommandTest, FlagsGiveStepsSweepAndQuiz) {
  EXPECT_THAT(Lab({"toy", "--causal=on"}).out, HasSubstr("0.982014"));
  EXPECT_THAT(Lab({"--x=1,0;0,1", "--tokens=up,down"}).out, HasSubstr("down"));
  EXPECT_THAT(Lab({"--x=1,0;0,1;1,1;0,0", "--scale=0.25"}).out, HasSubstr("x 0.25"));
  EXPECT_THAT(Lab({"animal", "--query=street"}).out, HasSubstr("\"street\" (token 5) looks"));
  EXPECT_THAT(Lab({"--sweep"}).out, HasSubstr("no scale"));
  EXPECT_THAT(Lab({"--quiz", "animal"}, "street\n").out, HasSubstr("0 of 1 right"));
  EXPECT_THAT(Lab({}, "causal on\n").out, HasSubstr("0.982014"));
}

TEST(AttentionLabCommandTest, JsonHoldsEveryNumber) {
  const Outcome outcome = Lab({"toy", "--json", "--causal=on", "--tokens=\",\\,\u00e9"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const nlohmann::json lab = nlohmann::json::parse(outcome.out);
  EXPECT_THAT(lab["tokens"], ElementsAre("\"", "\\", "\u00e9"));
  EXPECT_EQ(lab["scale"], 0.5);
  EXPECT_TRUE(lab["scaled_scores"][0][1].is_null());
  EXPECT_EQ(lab["weights"][0][0], 1.0);
  EXPECT_THAT(lab["rows"][2]["top_keys"], ElementsAre(1, 2));
  const nlohmann::json sweep = nlohmann::json::parse(Lab({"--sweep", "--json"}).out);
  EXPECT_EQ(sweep["sweep"].size(), 10u);
}

TEST(AttentionLabCommandTest, RefusesInOneLine) {
  const std::vector<std::vector<std::string>> wrong = {
      {"nonsense"},          {"toy", "animal"}, {"--causal=maybe"},    {"--scale=0"},
      {"--query=D"},         {"--x=1,2;3"},     {"--quiz", "--sweep"}, {"--quiz", "--json"},
      {"--q=1,0;0,1;1,1,1"}, {"--tokens=a,b"},  {"--x=1e6,0"},         {"--v=1;2"}};
  for (const std::vector<std::string>& arguments : wrong) {
    const Outcome outcome = Lab(arguments);
    EXPECT_EQ(outcome.exit_code, 1) << ::testing::PrintToString(arguments);
    EXPECT_EQ(outcome.out, "") << ::testing::PrintToString(arguments);
    EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
  }
  client::Subprocess other({VITRINE_SERVER, "inspect-model", "--sweep", "file"});
  EXPECT_EQ(other.Wait(), 1);
  EXPECT_THAT(other.err(), HasSubstr("--sweep goes with attention-lab only"));
}

}  // namespace
}  // namespace vitrine::server
