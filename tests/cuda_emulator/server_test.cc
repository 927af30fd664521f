// The real server program over the emulated device, as a process: what it answers, and how it ends
// when the device fails.
#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <cstdlib>
#include <fstream>
#include <memory>
#include <ostream>
#include <string>
#include <thread>
#include <vector>

#include "grpc/health/v1/health.grpc.pb.h"
#include "tests/e2e/server_process.h"
#include "tests/model/random_llama.h"
#include "vitrine/v1/generation.grpc.pb.h"

namespace vitrine {
namespace {

// Sets an environment variable of the servers that are started in its scope.
class ScopedVariable {
 public:
  ScopedVariable(const char* name, const std::string& value) : name_(name) {
    setenv(name, value.c_str(), 1);
  }
  ~ScopedVariable() { unsetenv(name_); }
  ScopedVariable(const ScopedVariable&) = delete;
  ScopedVariable& operator=(const ScopedVariable&) = delete;

 private:
  const char* name_;
};

struct Answer {
  grpc::Status status;
  std::vector<uint32_t> ids;

  friend bool operator==(const Answer& a, const Answer& b) {
    return a.status.error_code() == b.status.error_code() && a.ids == b.ids;
  }
};

std::ostream& operator<<(std::ostream& out, const Answer& answer) {
  out << answer.status.error_code() << " " << answer.status.error_message() << ":";
  for (const uint32_t id : answer.ids) out << " " << id;
  return out;
}

class EmulatedServerTest : public testing::Test {
 protected:
  void StartServer(DType dtype, const std::vector<std::string>& flags) {
    const std::string path =
        testing::TempDir() + "/emulated-" + std::string(TraitsOf(dtype).name) + ".gguf";
    std::ofstream(path, std::ios::binary) << RandomLlama(dtype).Bytes();
    std::vector<std::string> all = {"--model=" + path, "--context_length=256",
                                    "--prefill_chunk_tokens=32", "--max_step_tokens=48",
                                    "--max_running_sequences=16"};
    all.insert(all.end(), flags.begin(), flags.end());
    ExitReport report;
    server_ = ServerProcess::Start(all, &report);
    ASSERT_NE(server_, nullptr) << report.exit_code << ": " << report.standard_error;
    channel_ = grpc::CreateChannel(server_->address(), grpc::InsecureChannelCredentials());
    generation_ = v1::Generation::NewStub(channel_);
  }

  static v1::GenerateRequest Request(size_t index) {
    v1::GenerateRequest request;
    std::string prompt = "request " + std::to_string(index);
    for (size_t i = 0; i < index % 4; ++i) prompt += " of a batch that is as ragged as it gets";
    request.set_text(prompt);
    request.mutable_sampling()->set_temperature(index % 2 == 0 ? 0.0f : 0.9f);
    request.mutable_sampling()->set_seed(7 * index + 1);
    request.mutable_stop()->set_max_tokens(12);
    request.mutable_stop()->set_ignore_eos(true);
    return request;
  }

  Answer Stream(const v1::GenerateRequest& request) {
    grpc::ClientContext context;
    const auto reader = generation_->Generate(&context, request);
    Answer answer;
    v1::GenerateEvent event;
    while (reader->Read(&event)) {
      for (const v1::Token& token : event.tokens().tokens()) answer.ids.push_back(token.id());
    }
    answer.status = reader->Finish();
    return answer;
  }

  std::vector<Answer> Alone(size_t count) {
    std::vector<Answer> answers;
    for (size_t i = 0; i < count; ++i) answers.push_back(Stream(Request(i)));
    return answers;
  }
  std::vector<Answer> Together(size_t count) {
    std::vector<Answer> answers(count);
    std::vector<std::thread> clients;
    for (size_t i = 0; i < count; ++i) {
      clients.emplace_back([&, i] { answers[i] = Stream(Request(i)); });
    }
    for (std::thread& client : clients) client.join();
    return answers;
  }

  std::unique_ptr<ServerProcess> server_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::Generation::Stub> generation_;
};

// In f32 both backends agree to 1e-4 of a logit, far below the gaps of these answers.
TEST_F(EmulatedServerTest, ExactAnswersAreTheCpus) {
  StartServer(DType::kQ8_0, {"--backend=cpu", "--numerics=exact"});
  const std::vector<Answer> expected = Alone(6);
  for (const Answer& answer : expected) ASSERT_EQ(answer.ids.size(), 12u) << answer;
  const ScopedVariable deferred("EMU_DEFERRED", "1");
  StartServer(DType::kQ8_0, {"--backend=cuda", "--numerics=exact"});
  EXPECT_EQ(Together(6), expected);
}

TEST_F(EmulatedServerTest, FastAnswersDoNotDependOnNeighbours) {
  const ScopedVariable deferred("EMU_DEFERRED", "1");
  StartServer(DType::kQ4_1, {"--backend=auto"});
  const std::vector<Answer> alone = Alone(5);
  for (const Answer& answer : alone) ASSERT_EQ(answer.ids.size(), 12u) << answer;
  EXPECT_EQ(Together(5), alone);
  server_->Signal(SIGTERM);
  const ExitReport report = server_->Wait();
  EXPECT_EQ(report.exit_code, 0) << report.standard_error;
  EXPECT_NE(report.standard_error.find("serving random on cuda"), std::string::npos)
      << report.standard_error;
}

TEST_F(EmulatedServerTest, DeviceFailureEndsTheProcessWithAnError) {
  // Launches of the warm-up, and then some: the failure meets running streams.
  const ScopedVariable fault("EMU_FAULT_AT", "400");
  StartServer(DType::kQ8_0, {"--backend=cuda"});
  const auto health = grpc::health::v1::Health::NewStub(channel_);
  grpc::ClientContext watching;
  const auto watch = health->Watch(&watching, {});
  grpc::health::v1::HealthCheckResponse state;
  ASSERT_TRUE(watch->Read(&state));
  EXPECT_EQ(state.status(), grpc::health::v1::HealthCheckResponse::SERVING);

  std::vector<Answer> answers(4);
  std::vector<std::thread> clients;
  for (size_t i = 0; i < answers.size(); ++i) {
    clients.emplace_back([&, i] {
      v1::GenerateRequest request = Request(i);
      request.mutable_stop()->set_max_tokens(150);
      answers[i] = Stream(request);
    });
  }
  for (std::thread& client : clients) client.join();
  for (const Answer& answer : answers) {
    EXPECT_EQ(answer.status.error_code(), grpc::StatusCode::UNAVAILABLE) << answer;
  }
  ASSERT_TRUE(watch->Read(&state));
  EXPECT_EQ(state.status(), grpc::health::v1::HealthCheckResponse::NOT_SERVING);
  watching.TryCancel();
  const ExitReport report = server_->Wait();
  EXPECT_EQ(report.exit_code, 1) << report.standard_error;
  EXPECT_NE(report.standard_error.find("the CUDA device failed: an illegal memory access"),
            std::string::npos)
      << report.standard_error;
}

TEST(EmulatedStartTest, DeviceFailureWhileLoadingIsAnErrorInOneLine) {
  const std::string path = testing::TempDir() + "/emulated-start.gguf";
  std::ofstream(path, std::ios::binary) << RandomLlama(DType::kBF16).Bytes();
  const ScopedVariable fault("EMU_FAULT_AT", "3");
  for (const std::string command : {"", "check-model"}) {
    std::vector<std::string> arguments = {"--backend=cuda", "--context_length=64"};
    if (command.empty()) {
      arguments.push_back("--listen=127.0.0.1:0");
      arguments.push_back("--model=" + path);
    } else {
      arguments.insert(arguments.begin(), {command, path});
    }
    const ExitReport report = ServerProcess::Run(arguments);
    EXPECT_EQ(report.exit_code, 1) << report.standard_error;
    EXPECT_EQ(report.standard_error,
              "vitrine-server: the CUDA device failed: an illegal memory access was encountered\n");
  }
}

}  // namespace
}  // namespace vitrine
