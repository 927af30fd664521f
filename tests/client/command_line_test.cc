#include "client/command_line.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

namespace vitrine::client {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// A command with one flag of every type.
class CommandLineTest : public ::testing::Test {
 protected:
  CommandLineTest() {
    line_.Add({"switch", "", "A switch.", TakesSwitch([this](bool v) { on_ = v; })});
    line_.Add({"text", "TEXT", "A text.", TakesText([this](const std::string& v) { text_ = v; }),
               /*repeatable=*/false, 't'});
    line_.Add({"each", "TEXT", "Texts.",
               TakesText([this](const std::string& v) { each_.push_back(v); }),
               /*repeatable=*/true});
    line_.Add(
        {"mode", "MODE", "A mode.", TakesOneOf({"raw", "done"}, [this](size_t v) { mode_ = v; })});
    line_.Add({"integer", "N", "An integer.",
               TakesInteger(-1, 100, [this](int64_t v) { integer_ = v; })});
    line_.Add({"uint32", "N", "Unsigned.", TakesUint32([this](uint32_t v) { uint32_ = v; })});
    line_.Add({"uint64", "N", "Unsigned.", TakesUint64([this](uint64_t v) { uint64_ = v; })});
    line_.Add({"float", "X", "A number.", TakesFloat([this](float v) { float_ = v; })});
    line_.Add({"positive", "X", "A number.", TakesPositive([this](double v) { positive_ = v; })});
    line_.Add({"time", "TIME", "A time.",
               TakesDuration([this](std::chrono::nanoseconds v) { time_ = v; })});
    line_.Add(
        {"ids", "ID,...", "Ids.", TakesIds([this](const std::vector<uint32_t>& v) { ids_ = v; })});
  }

  // The arguments that are no flags; the test fails when there is an error.
  std::vector<std::string> Parse(const std::vector<std::string>& arguments) {
    const absl::StatusOr<std::vector<std::string>> parsed = line_.Parse(arguments);
    EXPECT_TRUE(parsed.ok()) << parsed.status();
    return parsed.value_or(std::vector<std::string>());
  }

  std::string Error(const std::vector<std::string>& arguments) {
    const absl::StatusOr<std::vector<std::string>> parsed = line_.Parse(arguments);
    EXPECT_EQ(parsed.status().code(), absl::StatusCode::kInvalidArgument);
    return std::string(parsed.status().message());
  }

  CommandLine line_{"try", "ARGUMENT", "Tries."};
  bool on_ = false;
  std::string text_;
  std::vector<std::string> each_;
  size_t mode_ = 99;
  int64_t integer_ = 0;
  uint32_t uint32_ = 0;
  uint64_t uint64_ = 0;
  float float_ = 0.0f;
  double positive_ = 0.0;
  std::chrono::nanoseconds time_{0};
  std::vector<uint32_t> ids_;
};

TEST_F(CommandLineTest, TakesValuesWithEqualsAndWithout) {
  EXPECT_THAT(Parse({"--text=a=b", "x", "--integer", "-1", "y"}), ElementsAre("x", "y"));
  EXPECT_EQ(text_, "a=b");
  EXPECT_EQ(integer_, -1);
}

TEST_F(CommandLineTest, SwitchesDoNotEatTheNextArgument) {
  EXPECT_THAT(Parse({"--switch", "true"}), ElementsAre("true"));
  EXPECT_TRUE(on_);
  Parse({"--switch=false"});
  EXPECT_FALSE(on_);
  EXPECT_THAT(Error({"--switch=yes"}), HasSubstr("--switch takes true or false, not 'yes'"));
}

TEST_F(CommandLineTest, ShortNamesAreTheSameFlag) {
  EXPECT_THAT(Parse({"-t", "words"}), IsEmpty());
  EXPECT_EQ(text_, "words");
  EXPECT_THAT(Error({"-t", "a", "--text", "b"}), HasSubstr("--text is given twice"));
  EXPECT_THAT(Error({"-x"}), HasSubstr("unknown flag -x"));
  EXPECT_THAT(Error({"-tt"}), HasSubstr("unknown flag -tt"));
}

TEST_F(CommandLineTest, DashesEndTheFlagsOrStandForStandardInput) {
  EXPECT_THAT(Parse({"-", "--", "--text", "-t"}), ElementsAre("-", "--text", "-t"));
  EXPECT_EQ(text_, "");
  EXPECT_THAT(Parse({""}), ElementsAre(""));
}

TEST_F(CommandLineTest, RepeatableFlagsKeepTheirOrder) {
  Parse({"--each=b", "--each", "", "--each=a"});
  EXPECT_THAT(each_, ElementsAre("b", "", "a"));
}

TEST_F(CommandLineTest, NamesWhatIsUnknownOrMissing) {
  EXPECT_EQ(Error({"--txet=a"}), "unknown flag --txet");
  EXPECT_EQ(Error({"--=a"}), "unknown flag --");
  EXPECT_EQ(Error({"--text"}), "--text needs a value: TEXT");
}

TEST_F(CommandLineTest, IntegersKeepTheirRange) {
  Parse({"--integer=100", "--uint32=4294967295", "--uint64=18446744073709551615"});
  EXPECT_EQ(integer_, 100);
  EXPECT_EQ(uint32_, 4294967295u);
  EXPECT_EQ(uint64_, 18446744073709551615u);
  for (const char* bad : {"101", "-2", "1.5", "1x", "", " 1", "99999999999999999999"}) {
    EXPECT_THAT(Error({std::string("--integer=") + bad}),
                HasSubstr("--integer takes an integer from -1 to 100"));
  }
  EXPECT_THAT(Error({"--uint32=4294967296"}), HasSubstr("--uint32 takes"));
  EXPECT_THAT(Error({"--uint32=-1"}), HasSubstr("--uint32 takes"));
  EXPECT_THAT(Error({"--uint64=18446744073709551616"}), HasSubstr("--uint64 takes"));
}

TEST_F(CommandLineTest, FloatsPassOddValuesOn) {
  Parse({"--float=1e-38"});
  EXPECT_EQ(float_, 1e-38f);
  Parse({"--float=nan"});
  EXPECT_TRUE(std::isnan(float_));
  Parse({"--float=-inf"});
  EXPECT_EQ(float_, -INFINITY);
  EXPECT_THAT(Error({"--float=warm"}), HasSubstr("--float takes a number, not 'warm'"));
  for (const char* bad : {"0", "-1", "nan", "inf", "x"}) {
    EXPECT_THAT(Error({std::string("--positive=") + bad}), HasSubstr("a number above 0"));
  }
}

TEST_F(CommandLineTest, TimesHaveUnits) {
  const std::pair<const char*, std::chrono::nanoseconds> times[] = {
      {"1.5s", std::chrono::milliseconds(1500)},
      {"200ms", std::chrono::milliseconds(200)},
      {"2m", std::chrono::minutes(2)},
      {"1h", std::chrono::hours(1)},
      {"250us", std::chrono::microseconds(250)},
      {"3", std::chrono::seconds(3)},
      {"0", std::chrono::seconds(0)}};
  for (const auto& [text, time] : times) {
    Parse({"--time", text});
    EXPECT_EQ(time_, time) << text;
  }
  for (const char* bad : {"", "s", "-1s", "1x", "nan", "inf", "1e30s", "1 s"}) {
    EXPECT_THAT(Error({"--time", bad}), HasSubstr("--time takes a time")) << bad;
  }
}

TEST_F(CommandLineTest, IdsAndModes) {
  Parse({"--ids=1,4294967295,0", "--mode=done"});
  EXPECT_THAT(ids_, ElementsAre(1u, 4294967295u, 0u));
  EXPECT_EQ(mode_, 1u);
  for (const char* bad : {"", "1,", ",1", "1,,2", "-1", "1;2", "4294967296"}) {
    EXPECT_THAT(Error({"--ids", bad}), HasSubstr("--ids takes ids")) << bad;
  }
  EXPECT_THAT(Error({"--mode=cooked"}), HasSubstr("one of raw, done, not 'cooked'"));
}

TEST_F(CommandLineTest, LongValuesAreQuotedInPart) {
  EXPECT_LT(Error({"--float=" + std::string(100000, 'x')}).size(), 200u);
}

TEST_F(CommandLineTest, HelpShowsEveryFlagAndStopsParsing) {
  const absl::StatusOr<std::vector<std::string>> parsed = line_.Parse({"--help", "--nonsense"});
  EXPECT_EQ(parsed.status().code(), absl::StatusCode::kCancelled);
  const std::string help = line_.Help();
  EXPECT_THAT(help, HasSubstr("usage: vitrine try [FLAGS] ARGUMENT\nTries.\n"));
  EXPECT_THAT(help, HasSubstr("  -t, --text=TEXT"));
  EXPECT_THAT(help, HasSubstr("  --switch  "));
  EXPECT_THAT(help, HasSubstr("Texts. Repeatable."));
}

}  // namespace
}  // namespace vitrine::client
