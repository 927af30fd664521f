// Real forward passes behind the wire: log-probabilities of tiny models against transformers'
// logits, and answers that do not depend on what runs beside them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <ostream>
#include <span>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "kernels/backend_factory.h"
#include "model/model_files.h"
#include "model/tensor_map.h"
#include "model/transformer_runner.h"
#include "model/weights.h"
#include "nlohmann/json.hpp"
#include "tests/server/server_fixture.h"

namespace vitrine::server {
namespace {

using Json = nlohmann::json;

constexpr int kTokens = 48;
constexpr int kVocabulary = 384;

// Gives ids names; these tests send ids.
class IdTokenizer final : public Tokenizer {
 public:
  IdTokenizer() {
    for (int id = 0; id < kVocabulary; ++id) names_.push_back("<" + std::to_string(id) + ">");
  }
  absl::StatusOr<Encoding> Encode(std::string_view /*text*/,
                                  const EncodeOptions& /*options*/) const override {
    return absl::UnimplementedError("ids only");
  }
  std::string_view TokenBytes(TokenId id) const override {
    return names_.at(static_cast<size_t>(id));
  }
  std::string Decode(std::span<const TokenId> ids) const override {
    std::string text;
    for (const TokenId id : ids) text += TokenBytes(id);
    return text;
  }
  bool IsControl(TokenId /*id*/) const override { return false; }
  int vocabulary() const override { return kVocabulary; }
  std::string_view kind() const override { return "ids"; }
  const std::vector<TokenId>& eos_ids() const override { return eos_ids_; }
  TokenId bos_id() const override { return 1; }

 private:
  std::vector<std::string> names_;
  std::vector<TokenId> eos_ids_ = {2};
};

struct Expected {
  explicit Expected(const std::string& folder) {
    std::ifstream file(folder + "/expected.safetensors", std::ios::binary);
    std::stringstream content;
    content << file.rdbuf();
    const std::string bytes = content.str();
    uint64_t header_bytes = 0;
    std::memcpy(&header_bytes, bytes.data(), sizeof(header_bytes));
    const Json header = Json::parse(bytes.substr(sizeof(header_bytes), header_bytes));
    const auto read = [&](const char* name, auto& values) {
      const size_t begin = header[name]["data_offsets"][0];
      const size_t end = header[name]["data_offsets"][1];
      values.resize((end - begin) / sizeof(values[0]));
      std::memcpy(values.data(), bytes.data() + sizeof(header_bytes) + header_bytes + begin,
                  end - begin);
    };
    read("input_ids", ids);
    read("logits", logits);
  }

  // log-softmax of the row, in f64.
  std::vector<double> Logprobs(size_t row) const {
    const auto first = logits.begin() + static_cast<ptrdiff_t>(row * kVocabulary);
    std::vector<double> values(first, first + kVocabulary);
    const double top = *std::ranges::max_element(values);
    double total = 0;
    for (const double value : values) total += std::exp(value - top);
    for (double& value : values) value -= top + std::log(total);
    return values;
  }

  std::vector<int64_t> ids;   // [kTokens]
  std::vector<float> logits;  // [kTokens, kVocabulary]
};

struct Case {
  std::string model;
  std::string backend;
  friend std::ostream& operator<<(std::ostream& stream, const Case& one) {
    return stream << one.model << ", " << one.backend;
  }
};

class ModelLogprobsTest : public testing::TestWithParam<Case> {
 protected:
  void Start(int prefill_chunk) {
    const auto& [name, backend_name] = GetParam();
    const std::string folder = VITRINE_TEST_DATA "/models/" + name;
    expected_ = std::make_unique<Expected>(folder);
    backend_ = *CreateBackend(backend_name, {.numerics = Numerics::kExact, .threads = 1});
    const auto files = *ModelFiles::Open(folder);
    const ModelDescription description = *files->Describe();
    const ModelTensors tensors =
        *MapTensors(description.config, **files->Weights(), description.names);
    ASSERT_EQ(description.config.vocabulary, kVocabulary);
    constexpr int kNumBlocks = 64;
    constexpr int kContext = 96;
    runner_ = *TransformerRunner::Create(*backend_, description.config,
                                         *LoadWeights(description.config, tensors, *backend_),
                                         {.max_rows = 64,
                                          .max_samples = 5,  // Prompts are scored in slices.
                                          .max_positions = kContext,
                                          .num_blocks = kNumBlocks,
                                          .kv_dtype = DType::kF32});
    options_ = TestOptions();
    options_.scheduler = {
        .max_running_sequences = 5, .max_step_tokens = 64, .prefill_chunk_tokens = prefill_chunk};
    const ServedModel model = {.name = name,
                               .tokenizer = &tokenizer_,
                               .vocabulary = kVocabulary,
                               .context_length = kContext,
                               .kv_tokens = int64_t{kNumBlocks} * kKvBlockTokens,
                               .longest_token = LongestToken(tokenizer_)};
    model_ = std::make_unique<ServedModel>(model);
    auto server = GrpcServer::Start(options_, *model_, *runner_, clock_);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    stub_ = v1::Generation::NewStub(server_->InProcessChannel());
  }

  v1::GenerateRequest Request(size_t prompt_tokens, uint32_t max_tokens) const {
    v1::GenerateRequest request;
    for (size_t i = 0; i < prompt_tokens; ++i) {
      request.mutable_token_ids()->add_ids(static_cast<uint32_t>(expected_->ids[i]));
    }
    request.mutable_stop()->set_max_tokens(max_tokens);
    request.mutable_stop()->set_ignore_eos(true);
    request.mutable_sampling()->set_temperature(0);
    return request;
  }

  v1::GenerateResponse Ask(const v1::GenerateRequest& request) {
    v1::GenerateResponse response;
    grpc::ClientContext context;
    const grpc::Status status = stub_->GenerateUnary(&context, request, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return response;
  }

  template <class Message>
  static void ExpectScore(const Message& message, const std::vector<double>& exact) {
    EXPECT_NEAR(message.logprob(), exact[message.id()], kTolerance);
    const auto larger = std::ranges::count_if(
        exact, [&](double value) { return value > exact[message.id()] + kTolerance; });
    EXPECT_GT(message.rank(), larger);
    std::vector<double> best = exact;
    std::ranges::sort(best, std::ranges::greater());
    for (int i = 0; i < message.top_size(); ++i) {
      EXPECT_NEAR(message.top(i).logprob(), best[static_cast<size_t>(i)], kTolerance);
      EXPECT_NEAR(message.top(i).logprob(), exact[message.top(i).id()], kTolerance);
    }
  }

  static constexpr double kTolerance = 1e-3;  // The protocol's promise for these models.

  IdTokenizer tokenizer_;
  SteadyClock clock_;
  ServerOptions options_;  // The server refers to it.
  std::unique_ptr<Expected> expected_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<TransformerRunner> runner_;
  std::unique_ptr<ServedModel> model_;
  std::unique_ptr<GrpcServer> server_;
  std::unique_ptr<v1::Generation::Stub> stub_;
};

TEST_P(ModelLogprobsTest, PromptLogprobsAreTheReferences) {
  for (const int prefill_chunk : {7, 64}) {
    Start(prefill_chunk);
    v1::GenerateRequest request = Request(kTokens, 0);
    request.mutable_output()->set_prompt_logprobs(20);
    const v1::GenerateResponse response = Ask(request);
    ASSERT_EQ(response.accepted().prompt_logprobs_size(), kTokens);
    for (int i = 1; i < kTokens; ++i) {
      const v1::PromptLogprob& token = response.accepted().prompt_logprobs(i);
      EXPECT_EQ(token.id(), expected_->ids[static_cast<size_t>(i)]);
      EXPECT_EQ(token.top_size(), 20);
      ExpectScore(token, expected_->Logprobs(static_cast<size_t>(i) - 1));
    }
    stub_.reset();
    server_.reset();
    runner_.reset();  // Before its backend.
  }
}

// Along the reference's text: the token that is drawn is scored by the same distribution.
TEST_P(ModelLogprobsTest, LogprobsAreTheReferences) {
  Start(64);
  for (const size_t length : {1u, 13u, 31u, 47u}) {
    v1::GenerateRequest request = Request(length, 1);
    request.mutable_output()->set_logprobs(20);
    const v1::Token token = Ask(request).choices(0).tokens(0);
    EXPECT_EQ(token.rank(), 1u);
    ExpectScore(token, expected_->Logprobs(length - 1));
    // The distribution is the model's, whatever changed the draw.
    request.mutable_sampling()->set_temperature(2);
    request.mutable_sampling()->set_seed(length);
    request.mutable_sampling()->add_banned_token_ids(token.id());
    request.mutable_sampling()->set_repetition_penalty(1.7f);
    const v1::Token other = Ask(request).choices(0).tokens(0);
    EXPECT_NE(other.id(), token.id());
    ExpectScore(other, expected_->Logprobs(length - 1));
    // What was drawn from has no trace of the banned token.
    request.mutable_output()->set_logprobs_mode(v1::LOGPROBS_MODE_PROCESSED);
    const v1::Token processed = Ask(request).choices(0).tokens(0);
    EXPECT_EQ(processed.id(), other.id());
    for (const v1::TokenLogprob& one : processed.top()) EXPECT_NE(one.id(), token.id());
  }
}

// Case 52, with everything that sampling can change beside it.
TEST_P(ModelLogprobsTest, NeighboursChangeNoBit) {
  Start(7);
  std::vector<v1::GenerateRequest> requests;
  for (uint32_t i = 0; i < 10; ++i) {
    v1::GenerateRequest request = Request(3 + 4 * i, 12);
    auto& sampling = *request.mutable_sampling();
    sampling.set_temperature(i % 3 == 0 ? 0.0f : 1.5f);
    sampling.set_seed(i);
    if (i % 2 == 0) sampling.set_repetition_penalty(1.3f);
    if (i % 3 == 1) sampling.set_frequency_penalty(0.5f);
    if (i % 4 == 1) sampling.set_typical_p(0.8f);
    if (i % 4 == 2) sampling.add_banned_token_ids(i);
    if (i % 5 == 3) {
      for (uint32_t id = 0; id < 100; ++id) sampling.add_allowed_token_ids(3 * id);
    }
    if (i % 2 == 1) request.mutable_output()->set_logprobs(i);
    if (i % 4 == 1) request.mutable_output()->set_logprobs_mode(v1::LOGPROBS_MODE_PROCESSED);
    if (i % 3 == 2) request.mutable_output()->set_prompt_logprobs(3);
    requests.push_back(request);
  }
  const auto essence = [](const v1::GenerateResponse& response) {
    v1::GenerateResponse kept = response;
    kept.mutable_accepted()->clear_request_id();
    kept.clear_done();
    return kept.SerializeAsString();
  };
  std::vector<std::string> alone;
  for (const v1::GenerateRequest& request : requests) alone.push_back(essence(Ask(request)));
  std::vector<std::thread> clients;
  std::vector<std::string> together(requests.size());
  for (size_t i = 0; i < requests.size(); ++i) {
    clients.emplace_back([&, i] { together[i] = essence(Ask(requests[i])); });
  }
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(together, alone);
}

std::vector<Case> AllCases() {
  std::vector<std::string> models;
  for (const auto& entry : std::filesystem::directory_iterator(VITRINE_TEST_DATA "/models")) {
    if (!std::filesystem::exists(entry.path() / "expected.json")) continue;
    // Its reference is one pass beyond the length up to which we serve it.
    if (entry.path().filename() != "llama-dynamic-f32") models.push_back(entry.path().filename());
  }
  std::ranges::sort(models);
  std::vector<Case> cases;
  for (const std::string& model : models) {
    for (const std::string backend : {"reference", "cpu"}) cases.push_back({model, backend});
  }
  return cases;
}

// A folder that went missing would not be missed.
TEST(ModelLogprobsSetTest, HasAllModels) { EXPECT_GE(AllCases().size(), 32u); }

std::string CaseName(const testing::TestParamInfo<Case>& info) {
  std::string name = info.param.model + "_" + info.param.backend;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(All, ModelLogprobsTest, testing::ValuesIn(AllCases()), CaseName);

}  // namespace
}  // namespace vitrine::server
