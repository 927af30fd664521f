// What the server counts, as a scraper of Prometheus reads it.
#include <gtest/gtest.h>
#include <httplib.h>

#include <fstream>
#include <map>
#include <sstream>

#include "server/metrics_text.h"
#include "tests/server/server_fixture.h"

namespace vitrine::server {
namespace {

// Name with labels -> value. Fails where a line is neither comment nor sample, or a sample has no
// type before it.
std::map<std::string, double> Parse(const std::string& text) {
  std::map<std::string, double> samples;
  std::istringstream lines(text);
  std::string line;
  std::string type_of;
  while (std::getline(lines, line)) {
    std::istringstream words(line);
    std::string first, second, third;
    words >> first >> second >> third;
    if (first == "#") {
      EXPECT_TRUE(second == "HELP" || second == "TYPE") << line;
      if (second == "TYPE") type_of = third;
      continue;
    }
    EXPECT_EQ(first.substr(0, first.find('{')), type_of);
    EXPECT_TRUE(third.empty()) << line;
    EXPECT_TRUE(samples.emplace(first, std::stod(second)).second) << "twice: " << first;
  }
  EXPECT_TRUE(text.ends_with("\n"));
  return samples;
}

TEST(MetricsTextTest, PrintsEveryCount) {
  MetricsView view;
  view.requests = {.accepted = 10, .finished = 4, .cancelled = 2, .expired = 1, .refused = 7};
  view.queue = {.requests = 3, .prompt_tokens = 90};
  view.engine.running_sequences = 5;
  view.engine.blocks_free = 11;
  view.engine.blocks_owned = 12;
  view.engine.blocks_cached = 13;
  view.engine.steps = uint64_t{1} << 52;
  view.engine.preemptions = 8;
  view.engine.oldest_arrival_us = 1'000'000;
  view.engine.generated.Add(0, 1000);
  view.engine.generated.Add(60'000'000, 234);
  view.engine.prefilled.Add(0, 77);
  view.is_draining = true;
  view.now_us = 3'500'000;
  const std::map<std::string, double> expected = {
      {"vitrine_requests_accepted_total", 10},
      {"vitrine_requests_ended_total{outcome=\"finished\"}", 4},
      {"vitrine_requests_ended_total{outcome=\"cancelled\"}", 2},
      {"vitrine_requests_ended_total{outcome=\"expired\"}", 1},
      {"vitrine_requests_ended_total{outcome=\"failed\"}", 0},
      {"vitrine_requests_refused_total", 7},
      {"vitrine_requests_live", 3},
      {"vitrine_requests_queued", 3},
      {"vitrine_prompt_tokens_queued", 90},
      {"vitrine_oldest_wait_seconds", 2.5},
      {"vitrine_sequences_running", 5},
      {"vitrine_kv_blocks{state=\"free\"}", 11},
      {"vitrine_kv_blocks{state=\"owned\"}", 12},
      {"vitrine_kv_blocks{state=\"cached\"}", 13},
      {"vitrine_steps_total", 4503599627370496.0},
      {"vitrine_preemptions_total", 8},
      {"vitrine_generated_tokens_total", 1234},
      {"vitrine_prefilled_tokens_total", 77},
      {"vitrine_draining", 1}};
  EXPECT_EQ(Parse(MetricsText(view)), expected);
}

class MetricsTest : public GrpcServerTest {
 protected:
  void StartWithMetrics(const std::string& auth_tokens_file = "") {
    ServerOptions options = TestOptions();
    options.metrics_listen = "127.0.0.1:0";
    options.auth_tokens_file = auth_tokens_file;
    StartServer(options);
    ASSERT_NE(server_, nullptr);
    reader_ = std::make_unique<httplib::Client>("http://" + server_->metrics_address());
  }

  std::map<std::string, double> Read() {
    const auto page = reader_->Get("/metrics");
    if (!page || page->status != 200) {
      ADD_FAILURE() << "no page";
      return {};
    }
    EXPECT_EQ(page->get_header_value("Content-Type"), kMetricsContentType);
    return Parse(page->body);
  }

  int Status(const std::string& path, const httplib::Headers& headers = {}) {
    const auto page = reader_->Get(path, headers);
    return page ? page->status : -1;
  }

  std::unique_ptr<httplib::Client> reader_;
};

TEST_F(MetricsTest, CountsWhatWasServed) {
  StartWithMetrics();
  const double warm_up_tokens = Read()["vitrine_generated_tokens_total"];
  EXPECT_TRUE(Generate(Request("hello", 20)).status.ok());
  EXPECT_TRUE(Generate(Request("hello", 1)).status.ok());
  EXPECT_FALSE(Generate(Request(std::string(2 * kContext, 'x'), 1)).status.ok());
  const std::map<std::string, double> samples = Read();
  EXPECT_EQ(samples.at("vitrine_requests_accepted_total"), 2);
  EXPECT_EQ(samples.at("vitrine_requests_ended_total{outcome=\"finished\"}"), 2);
  EXPECT_EQ(samples.at("vitrine_requests_live"), 0);
  EXPECT_EQ(samples.at("vitrine_generated_tokens_total"), warm_up_tokens + 21);
  EXPECT_EQ(samples.at("vitrine_kv_blocks{state=\"owned\"}"), 0);
  EXPECT_EQ(samples.at("vitrine_kv_blocks{state=\"free\"}") +
                samples.at("vitrine_kv_blocks{state=\"cached\"}"),
            kBlocks);
  EXPECT_EQ(samples.at("vitrine_draining"), 0);
}

// The engine thread is held inside a step, and the page still comes.
TEST_F(MetricsTest, NeedsNothingOfTheEngineThread) {
  StartWithMetrics();
  is_frozen_ = true;
  std::thread client([this] { EXPECT_TRUE(Generate(Request("held", 4)).status.ok()); });
  EXPECT_TRUE(Eventually([this] { return server_->engine().BusyMicros() > 0; }));
  EXPECT_EQ(Read()["vitrine_requests_live"], 1);
  is_frozen_ = false;
  client.join();
}

TEST_F(MetricsTest, OffersNothingElse) {
  StartWithMetrics();
  EXPECT_EQ(Status("/"), 404);
  EXPECT_EQ(Status("/metrics/"), 404);
  EXPECT_EQ(Status("/" + std::string(4000, 'a')), 404);
  const auto posted = reader_->Post("/metrics", "x", "text/plain");
  ASSERT_TRUE(posted);
  EXPECT_EQ(posted->status, 405);
  const auto flood = reader_->Post("/metrics", std::string(1 << 20, 'x'), "text/plain");
  // Refused by what is noticed first: the method, the size, or the connection ends.
  EXPECT_TRUE(!flood || flood->status == 405 || flood->status == 413);
  EXPECT_EQ(Status("/metrics"), 200);
}

TEST_F(MetricsTest, AsksForATokenWhereEveryCallDoes) {
  const std::string path = testing::TempDir() + "/metrics_callers";
  std::ofstream(path) << "operator control secret-of-operator\napp data secret-of-the-app\n";
  StartWithMetrics(path);
  EXPECT_EQ(Status("/metrics"), 401);
  EXPECT_EQ(Status("/metrics", {{"Authorization", "Bearer wrong-but-long-enough"}}), 401);
  EXPECT_EQ(Status("/metrics", {{"Authorization", "Bearer secret-of-the-app"}}), 403);
  EXPECT_EQ(Status("/metrics", {{"Authorization", "Bearer secret-of-operator"}}), 200);
}

TEST_F(MetricsTest, AnAddressInUseIsAnError) {
  StartWithMetrics();
  ServerOptions second = TestOptions();
  second.metrics_listen = server_->metrics_address();
  second.load.max_step_rows = second.scheduler.max_step_tokens;
  second.request.max_running_sequences = second.scheduler.max_running_sequences;
  FakeRunner runner({.max_step_rows = second.scheduler.max_step_tokens,
                     .max_step_sequences = second.scheduler.max_running_sequences,
                     .num_blocks = kBlocks,
                     .context_length = kContext,
                     .vocabulary = tokenizer_.vocabulary()});
  const auto server = GrpcServer::Start(second, model_, runner, clock_);
  ASSERT_FALSE(server.ok());
  EXPECT_EQ(server.status().code(), absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace vitrine::server
