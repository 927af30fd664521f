// The load generator: its draws, its definitions, and the built command against a fake server.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "client/bench_report.h"
#include "client/bench_workload.h"
#include "nlohmann/json.hpp"
#include "tests/client/fake_server.h"
#include "tests/client/subprocess.h"

namespace vitrine::client {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

WorkloadOptions Options(const char* prompt, const char* output) {
  WorkloadOptions options;
  options.prompt_tokens = LengthDistribution::Parse(prompt).value();
  options.output_tokens = LengthDistribution::Parse(output).value();
  options.vocabulary = 1000;
  return options;
}

std::vector<uint32_t> Ids(const v1::GenerateRequest& request) {
  return {request.token_ids().ids().begin(), request.token_ids().ids().end()};
}

TEST(LengthDistributionTest, ReadsItsThreeForms) {
  EXPECT_EQ(LengthDistribution::Parse("128")->Draw(0.99, 3.0), 128u);
  const LengthDistribution uniform = *LengthDistribution::Parse("4-6");
  EXPECT_EQ(uniform.Draw(0.0001, 0.0), 4u);
  EXPECT_EQ(uniform.Draw(0.5, 0.0), 5u);
  EXPECT_EQ(uniform.Draw(0.9999, 0.0), 6u);
  const LengthDistribution log_normal = *LengthDistribution::Parse("lognormal:200:0.5:300");
  EXPECT_EQ(log_normal.Draw(0.0, 0.0), 200u);
  EXPECT_EQ(log_normal.Draw(0.0, -1.0), static_cast<uint32_t>(std::round(200.0 * std::exp(-0.5))));
  EXPECT_EQ(log_normal.Draw(0.0, 5.0), 300u);
  EXPECT_EQ(log_normal.Draw(0.0, -30.0), 1u);
  for (const char* bad : {"", "0", "-5", "5-", "6-5", "1048577", "lognormal:", "lognormal:1:2",
                          "lognormal:0:1:5", "lognormal:nan:1:5", "lognormal:5:-1:9", "x"}) {
    EXPECT_FALSE(LengthDistribution::Parse(bad).ok()) << bad;
  }
}

TEST(WorkloadTest, IsAFunctionOfSeedAndIndex) {
  const Workload one(Options("8-64", "1-32"));
  const Workload same(Options("8-64", "1-32"));
  WorkloadOptions other_options = Options("8-64", "1-32");
  other_options.seed = 2;
  const Workload other(other_options);
  int different = 0;
  for (uint64_t i = 0; i < 50; ++i) {
    EXPECT_EQ(one.Request(i).SerializeAsString(), same.Request(i).SerializeAsString());
    EXPECT_EQ(one.Gap(i, 3.0), same.Gap(i, 3.0));
    if (Ids(one.Request(i)) != Ids(other.Request(i))) ++different;
    EXPECT_NE(Ids(one.Request(i)), Ids(one.Request(i + 1)));
  }
  EXPECT_EQ(different, 50);
}

TEST(WorkloadTest, LengthsAndIdsStayInRange) {
  const Workload workload(Options("8-64", "1-32"));
  for (uint64_t i = 0; i < 200; ++i) {
    const v1::GenerateRequest request = workload.Request(i);
    EXPECT_GE(request.token_ids().ids_size(), 8);
    EXPECT_LE(request.token_ids().ids_size(), 64);
    EXPECT_GE(request.stop().max_tokens(), 1u);
    EXPECT_LE(request.stop().max_tokens(), 32u);
    for (const uint32_t id : request.token_ids().ids()) {
      EXPECT_GE(id, 100u);
      EXPECT_LT(id, 900u);
    }
  }
}

TEST(WorkloadTest, PrefixesAreSharedWithinAGroup) {
  WorkloadOptions options = Options("20", "1");
  options.shared_prefix = 16;
  options.prefix_groups = 2;
  const Workload workload(options);
  const auto prefix = [&workload](uint64_t index) {
    std::vector<uint32_t> ids = Ids(workload.Request(index));
    ids.resize(16);
    return ids;
  };
  EXPECT_EQ(prefix(0), prefix(2));
  EXPECT_EQ(prefix(1), prefix(3));
  EXPECT_NE(prefix(0), prefix(1));
  EXPECT_NE(Ids(workload.Request(0)), Ids(workload.Request(2)));
}

// The mean of n exponential draws has standard deviation mean / sqrt(n), and so has their mean
// absolute deviation's own check: the share above the mean is 1/e.
TEST(WorkloadTest, GapsAreExponential) {
  const Workload workload(Options("1", "1"));
  constexpr int kDraws = 20000;
  constexpr double kRate = 50.0;
  double sum = 0.0;
  int above = 0;
  for (int i = 0; i < kDraws; ++i) {
    const double gap = std::chrono::duration<double>(workload.Gap(i, kRate)).count();
    sum += gap;
    if (gap > 1.0 / kRate) ++above;
  }
  const double four_sigma = 4.0 / std::sqrt(static_cast<double>(kDraws));
  EXPECT_NEAR(sum / kDraws * kRate, 1.0, four_sigma);
  const double share = std::exp(-1.0);
  EXPECT_NEAR(static_cast<double>(above) / kDraws, share,
              four_sigma * std::sqrt(share * (1.0 - share)));
}

TEST(PercentilesTest, TakeTheNearestRank) {
  std::vector<std::chrono::nanoseconds> samples;
  for (int i = 200; i > 0; --i) samples.emplace_back(milliseconds(i));
  const Percentiles p = PercentilesOf(samples);
  EXPECT_EQ(p.p50, 100.0);
  EXPECT_EQ(p.p90, 180.0);
  EXPECT_EQ(p.p99, 198.0);
  EXPECT_EQ(p.max, 200.0);
  EXPECT_EQ(p.count, 200u);
  EXPECT_EQ(PercentilesOf({milliseconds(7)}).p50, 7.0);
  EXPECT_EQ(PercentilesOf({}).count, 0u);
}

RequestRecord Completed(milliseconds arrival, std::vector<TokenMessage> messages) {
  RequestRecord record;
  record.arrival = arrival;
  record.messages = std::move(messages);
  record.end = record.messages.back().at + milliseconds(1);
  record.status = absl::OkStatus();
  record.done.mutable_usage()->set_prompt_tokens(10);
  record.done.mutable_usage()->set_cached_prompt_tokens(4);
  return record;
}

std::vector<RequestRecord> MakeRecords() {
  std::vector<RequestRecord> records;
  // TTFT 50, gaps 10 and 30, E2E 90, TPOT 40 / 2.
  records.push_back(Completed(
      milliseconds(100), {{milliseconds(150), 1}, {milliseconds(160), 1}, {milliseconds(190), 1}}));
  // TTFT 20, one token: no TPOT. TTFT 200 and a message of two tokens.
  records.push_back(Completed(milliseconds(200), {{milliseconds(220), 1}}));
  records.push_back(Completed(milliseconds(300), {{milliseconds(500), 1}, {milliseconds(560), 2}}));
  RequestRecord refused;
  refused.arrival = milliseconds(400);
  refused.end = milliseconds(405);
  refused.status = absl::ResourceExhaustedError("full");
  records.push_back(refused);
  RequestRecord failed = refused;
  failed.status = absl::UnavailableError("gone");
  records.push_back(failed);
  RequestRecord injected = Completed(milliseconds(0), {{milliseconds(9), 1}});
  injected.label = "6000:1@0s";
  injected.end = milliseconds(5000);
  records.push_back(injected);
  // From 150 to 540, beside gaps 10, 30 and 60; 13 steps of 30 ms in the mean.
  injected = Completed(milliseconds(150), {{milliseconds(540), 1}});
  injected.label = "400:1@150ms";
  injected.done.mutable_timings()->set_prefill_us(390'000);
  injected.done.mutable_timings()->set_prefill_chunks(13);
  injected.done.mutable_timings()->set_longest_step_us(40'000);
  records.push_back(injected);
  for (size_t i = 0; i < records.size(); ++i) {
    records[i].done.set_token_hash(uint64_t{1} << (8 * i));
  }
  return records;
}

TEST(ReportTest, FollowsTheDefinitions) {
  const BenchReport report =
      MakeReport("rate 1/s", MakeRecords(), {.ttft = milliseconds(60), .tpot = {}});
  EXPECT_EQ(report.requests, 5u);
  EXPECT_EQ(report.completed, 3u);
  EXPECT_EQ(report.refused, 1u);
  EXPECT_EQ(report.failed(), 1u);
  EXPECT_DOUBLE_EQ(report.wall_s, 0.461);
  EXPECT_EQ(report.output_tokens, 7u);
  EXPECT_EQ(report.prompt_tokens, 30u);
  EXPECT_EQ(report.cached_prompt_tokens, 12u);
  EXPECT_DOUBLE_EQ(report.output_tokens_per_s, 7 / 0.461);
  EXPECT_DOUBLE_EQ(report.total_tokens_per_s, 37 / 0.461);
  EXPECT_DOUBLE_EQ(report.requests_per_s, 3 / 0.461);
  EXPECT_DOUBLE_EQ(report.goodput_requests_per_s, 2 / 0.461);
  EXPECT_EQ(report.coalesced_messages, 1u);
  EXPECT_EQ(report.ttft.p50, 50.0);
  EXPECT_EQ(report.ttft.max, 200.0);
  EXPECT_EQ(report.tpot.count, 2u);
  EXPECT_EQ(report.tpot.p50, 20.0);
  EXPECT_EQ(report.tpot.max, 30.0);
  EXPECT_EQ(report.itl.count, 3u);
  EXPECT_EQ(report.itl.max, 60.0);
  EXPECT_EQ(report.e2e.p50, 90.0);
  EXPECT_EQ(report.refusal.p50, 5.0);
  EXPECT_DOUBLE_EQ(report.computed_prompt_share, 0.6);
  EXPECT_EQ(report.answers_hash, 0x010101u);
  ASSERT_EQ(report.labelled.size(), 2u);
  EXPECT_EQ(report.labelled[0].ttft_ms, 9.0);
  EXPECT_EQ(report.labelled[0].longest_gap_ms, 0.0);
  EXPECT_EQ(report.labelled[1].mean_step_ms, 30.0);
  EXPECT_EQ(report.labelled[1].longest_step_ms, 40.0);
  EXPECT_EQ(report.labelled[1].longest_gap_ms, 60.0);

  const nlohmann::json json = nlohmann::json::parse(ReportJson(report));
  EXPECT_EQ(json["errors"]["UNAVAILABLE"], 1);
  EXPECT_EQ(json["itl_ms"]["max"], 60.0);
  EXPECT_EQ(json["injected"][0]["label"], "6000:1@0s");
  const std::string text = ReportText(report);
  EXPECT_THAT(text, HasSubstr("5 requests in 0.46 s, 3 completed, 1 refused, 1 errors"));
  EXPECT_THAT(text, HasSubstr("between messages"));
  EXPECT_THAT(text, HasSubstr("60.0 % computed"));
  EXPECT_THAT(text, HasSubstr("prompt in 13 steps, mean 30.00 ms, longest 40.00 ms: TTFT = 13.0"));
  EXPECT_THAT(text, HasSubstr("60.00 ms = 1.5 longest steps, 2.0 mean steps"));
}

class BenchCommandTest : public ::testing::Test {
 protected:
  int Run(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(),
                     {VITRINE_CLIENT, "bench", "--server=" + server_.address(), "--json"});
    Subprocess process(arguments);
    const int exit_code = process.Wait();
    json_ = nlohmann::json::parse(process.out(), nullptr, /*allow_exceptions=*/false);
    err_ = process.err();
    return exit_code;
  }

  FakeServer server_;
  nlohmann::json json_;
  std::string err_;
};

TEST_F(BenchCommandTest, ClosedLoopKeepsItsConcurrency) {
  EXPECT_EQ(Run({"--concurrency=4", "--requests=20", "--warmup=2", "--prompt_tokens=5"}), 0)
      << err_;
  EXPECT_EQ(json_["load"], "concurrency 4");
  EXPECT_EQ(json_["completed"], 20);
  EXPECT_EQ(json_["output_tokens"], 60);
  EXPECT_EQ(json_["ttft_ms"]["count"], 20);
  EXPECT_EQ(json_["itl_ms"]["count"], 40);
  EXPECT_EQ(server_.generation().requests(), 22);
  EXPECT_LE(server_.generation().most_at_once(), 4);
  const v1::GenerateRequest request = server_.generation().last_request();
  EXPECT_EQ(request.token_ids().ids_size(), 5);
  EXPECT_EQ(request.stop().max_tokens(), 128u);
  EXPECT_TRUE(request.stop().ignore_eos());
  EXPECT_TRUE(request.sampling().has_temperature());
  EXPECT_EQ(request.sampling().temperature(), 0.0f);
}

TEST_F(BenchCommandTest, OpenLoopSendsAllAndInjects) {
  EXPECT_EQ(
      Run({"--rate=200", "--requests=30", "--warmup=0", "--inject=7:1@10ms", "--inject=3@0s"}), 0)
      << err_;
  EXPECT_EQ(json_["load"], "rate 200/s");
  EXPECT_EQ(json_["completed"], 30);
  EXPECT_EQ(server_.generation().requests(), 32);
  ASSERT_EQ(json_["injected"].size(), 2u);
  EXPECT_EQ(json_["injected"][0]["status"], "OK");
}

TEST_F(BenchCommandTest, ConnectionsTakeTurns) {
  EXPECT_EQ(Run({"--connections=3", "--requests=6", "--warmup=0"}), 0) << err_;
  EXPECT_EQ(json_["completed"], 6);
  EXPECT_EQ(server_.generation().connections(), 3u);
}

TEST_F(BenchCommandTest, DurationEndsTheLoad) {
  EXPECT_EQ(Run({"--concurrency=2", "--duration=200ms", "--warmup=0"}), 0) << err_;
  EXPECT_GT(json_["completed"], 0);
}

TEST_F(BenchCommandTest, NamesWrongFlags) {
  EXPECT_EQ(Run({"--rate=1", "--concurrency=1"}), 2);
  EXPECT_THAT(err_, HasSubstr("--rate and --concurrency exclude each other"));
  for (const char* bad : {"--rate=0", "--concurrency=0", "--requests=0", "--prompt_tokens=0",
                          "--inject=5", "--inject=@1s", "--inject=5:x@1s", "argument"}) {
    EXPECT_EQ(Run({bad}), 2) << bad;
  }
}

}  // namespace
}  // namespace vitrine::client
