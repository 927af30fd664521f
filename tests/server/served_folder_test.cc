// Hugging Face folders behind the RPC: every tiny model of tests/data/models answers with the
// greedy tokens of transformers, and what its files say about chats and sampling is in force.
#include <grpcpp/client_context.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "kernels/backend_factory.h"
#include "model/loader.h"
#include "nlohmann/json.hpp"
#include "server/clock.h"
#include "server/grpc_server.h"

namespace vitrine::server {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

const fs::path kModels = VITRINE_TEST_DATA "/models";
constexpr int kSequences = 4;

Json ReadJson(const fs::path& path) {
  std::ifstream file(path);
  return Json::parse(file);
}

// The first `count` tokens of the text of the reference; "input_ids" is the last tensor's name in
// all files, so the ids are read where the header says.
std::vector<uint32_t> ReadPrompt(const fs::path& path, int count) {
  std::ifstream file(path, std::ios::binary);
  uint64_t header_bytes = 0;
  file.read(reinterpret_cast<char*>(&header_bytes), sizeof(header_bytes));
  std::string header(header_bytes, ' ');
  file.read(header.data(), static_cast<std::streamsize>(header_bytes));
  const size_t offset = Json::parse(header)["input_ids"]["data_offsets"][0];
  file.seekg(static_cast<std::streamoff>(sizeof(header_bytes) + header_bytes + offset));
  std::vector<int64_t> ids(static_cast<size_t>(count));
  file.read(reinterpret_cast<char*>(ids.data()),
            static_cast<std::streamsize>(ids.size() * sizeof(int64_t)));
  return {ids.begin(), ids.end()};
}

class ServedFolderTest : public ::testing::Test {
 protected:
  ServedFolderTest() { fs::create_directories(folder_); }
  ~ServedFolderTest() override {
    stub_.reset();
    server_.reset();
    fs::remove_all(folder_);
  }

  // The files of a model and the tokenizer that all of them share.
  void Compose(const std::string& model) {
    for (const auto& entry : fs::directory_iterator(folder_)) fs::remove(entry);
    for (const auto& entry : fs::directory_iterator(kModels / model)) {
      fs::create_symlink(entry, folder_ / entry.path().filename());
    }
    for (const char* name : {"tokenizer.json", "tokenizer_config.json", "chat_template.jinja"}) {
      fs::create_symlink(kModels / name, folder_ / name);
    }
  }

  void Serve(const LoadOptions& load = {}) {
    stub_.reset();
    server_.reset();
    options_ = {};
    options_.listen = "127.0.0.1:0";
    options_.scheduler = {
        .max_running_sequences = kSequences, .max_step_tokens = 32, .prefill_chunk_tokens = 8};
    options_.request.max_running_sequences = kSequences;
    options_.queue = {.max_requests = 8, .max_prompt_tokens = 1024};
    options_.drain_us = options_.stall_us = 10'000'000;
    model_ = {};  // Before the backend that holds its buffers.
    backend_ = *CreateBackend("cpu", {.numerics = Numerics::kExact, .threads = 1});
    LoadOptions small = load;
    small.max_step_rows = options_.scheduler.max_step_tokens;
    small.max_step_sequences = kSequences;
    auto model = LoadModel(folder_, *backend_, small);
    ASSERT_TRUE(model.ok()) << model.status();
    model_ = *std::move(model);
    const RunnerLimits& limits = model_.runner->limits();
    served_ = {.name = "tiny",
               .tokenizer = model_.tokenizer.get(),
               .vocabulary = limits.vocabulary,
               .context_length = limits.context_length,
               .kv_tokens = int64_t{limits.num_blocks} * kKvBlockTokens,
               .longest_token = LongestToken(*model_.tokenizer),
               .sampling = model_.sampling};
    auto server = GrpcServer::Start(options_, served_, *model_.runner, clock_);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    stub_ = v1::Generation::NewStub(server_->InProcessChannel());
  }

  static v1::GenerateRequest Request(const std::vector<uint32_t>& prompt, uint32_t max_tokens) {
    v1::GenerateRequest request;
    for (const uint32_t id : prompt) request.mutable_token_ids()->add_ids(id);
    request.mutable_stop()->set_max_tokens(max_tokens);
    return request;
  }

  std::vector<uint32_t> Answer(const v1::GenerateRequest& request) {
    v1::GenerateResponse response;
    grpc::ClientContext context;
    const grpc::Status status = stub_->GenerateUnary(&context, request, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    std::vector<uint32_t> ids;
    for (const v1::Token& token : response.choices(0).tokens()) ids.push_back(token.id());
    return ids;
  }

  const fs::path folder_ = fs::temp_directory_path() / ("served." + std::to_string(getpid()));
  SteadyClock clock_;
  ServerOptions options_;
  std::unique_ptr<Backend> backend_;
  LoadedModel model_;
  ServedModel served_;
  std::unique_ptr<GrpcServer> server_;
  std::unique_ptr<v1::Generation::Stub> stub_;
};

TEST_F(ServedFolderTest, GreedyTokensOfEveryModelEqualTheReference) {
  int num_models = 0;
  for (const auto& entry : fs::directory_iterator(kModels)) {
    if (!entry.is_directory()) continue;
    SCOPED_TRACE(entry.path().filename());
    Compose(entry.path().filename());
    ASSERT_NO_FATAL_FAILURE(Serve());
    const Json expected = ReadJson(entry.path() / "expected.json");
    const std::vector<uint32_t> greedy = expected["greedy_ids"];
    v1::GenerateRequest request =
        Request(ReadPrompt(entry.path() / "expected.safetensors", expected["prompt_length"]),
                static_cast<uint32_t>(greedy.size()));
    request.mutable_stop()->set_ignore_eos(true);
    request.mutable_sampling()->set_temperature(0);
    EXPECT_EQ(Answer(request), greedy);
    ++num_models;
  }
  EXPECT_EQ(num_models, 25);
}

TEST_F(ServedFolderTest, GenerationConfigIsInForce) {
  Compose("llama-gqa-tied-f32");
  const Json expected = ReadJson(kModels / "llama-gqa-tied-f32/expected.json");
  const std::vector<uint32_t> greedy = expected["greedy_ids"];
  const std::vector<uint32_t> prompt =
      ReadPrompt(kModels / "llama-gqa-tied-f32/expected.safetensors", expected["prompt_length"]);
  // The third token ends answers, of which it is no part, and without a word of the client the best
  // token is taken.
  fs::remove(folder_ / "generation_config.json");
  std::ofstream(folder_ / "generation_config.json")
      << Json({{"eos_token_id", {2, greedy[2]}}, {"do_sample", true}, {"top_k", 1}});
  ASSERT_NO_FATAL_FAILURE(Serve());
  EXPECT_EQ(Answer(Request(prompt, 24)),
            (std::vector<uint32_t>{greedy.begin(), greedy.begin() + 2}));
}

TEST_F(ServedFolderTest, WeightsChangeTheirTypeWhileTheyAreLoaded) {
  Compose("llama-gqa-tied-f32");
  ASSERT_NO_FATAL_FAILURE(Serve({.weights = {.dtype = DType::kQ8_0}}));
  EXPECT_EQ(DescribeShares(model_.weight_shares), "Q8_0 (15), F32 (5)");
  const size_t quantized_bytes = model_.weight_bytes;
  ASSERT_NO_FATAL_FAILURE(Serve());
  EXPECT_EQ(DescribeShares(model_.weight_shares), "F32 (20)");
  EXPECT_LT(quantized_bytes, model_.weight_bytes);
}

}  // namespace
}  // namespace vitrine::server
