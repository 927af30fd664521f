#include "model/inspect.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "tests/model/gguf_builder.h"

namespace vitrine {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class InspectTest : public ::testing::Test {
 protected:
  ~InspectTest() override { std::filesystem::remove(path_); }

  absl::StatusOr<std::string> Inspect(const std::string& bytes) {
    std::ofstream(path_, std::ios::binary) << bytes;
    return InspectModel(path_);
  }

  std::filesystem::path path_ =
      std::filesystem::temp_directory_path() / ("inspect." + std::to_string(getpid()) + ".gguf");
};

TEST_F(InspectTest, ReportsWhatTheFileHolds) {
  GgufBuilder builder = TinyLlama();
  builder.SetString("tokenizer.chat_template", "{{ messages }}");
  const std::string bytes = builder.Bytes();
  const absl::StatusOr<std::string> report = Inspect(bytes);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_THAT(*report, HasSubstr("GGUF version 3"));
  EXPECT_THAT(*report, HasSubstr("architecture    \"llama\""));
  EXPECT_THAT(*report, HasSubstr("name            tiny"));
  EXPECT_THAT(*report, HasSubstr("layers          2\n"));
  EXPECT_THAT(*report, HasSubstr("heads           4 of 8 dimensions, 2 for keys and values"));
  EXPECT_THAT(*report, HasSubstr("vocabulary      8 rows"));
  EXPECT_THAT(*report, HasSubstr("context         64 tokens"));
  EXPECT_THAT(*report, HasSubstr("F32        20 tensors, 0.1 MB"));
  // 2 layers * 2 heads * 8 dimensions * (k and v) * 2 bytes * 1000 tokens.
  EXPECT_THAT(*report, HasSubstr("per 1000 tokens: 0.1 MB as bf16, 0.3 MB as f32"));
  EXPECT_THAT(*report, HasSubstr("tokenizer       bpe/gpt-2, 8 tokens"));
  EXPECT_THAT(*report, HasSubstr("chat template   default, 14 bytes"));
  EXPECT_THAT(*report, Not(HasSubstr("not supported")));
}

TEST_F(InspectTest, NamesWhatIsNotSupported) {
  GgufBuilder builder = TinyLlama();
  builder.SetUint("llama.expert_group_count", 8).SetString("tokenizer.ggml.model", "bert");
  const absl::StatusOr<std::string> report = Inspect(builder.Bytes());
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_THAT(*report, HasSubstr("not supported   model: "));
  EXPECT_THAT(*report, HasSubstr("llama.expert_group_count"));
  EXPECT_THAT(*report, HasSubstr("not supported   tokenizer: "));
}

TEST_F(InspectTest, AVocabularyAloneIsReported) {
  GgufBuilder builder = TinyLlama();
  builder.tensors.clear();
  const absl::StatusOr<std::string> report = Inspect(builder.Bytes());
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_THAT(*report, HasSubstr("not supported   model: no tensors: a vocabulary only"));
  EXPECT_THAT(*report, HasSubstr("tokenizer       bpe/gpt-2, 8 tokens"));
}

TEST_F(InspectTest, BrokenFilesAreErrors) {
  EXPECT_EQ(Inspect(TinyLlama().Bytes().substr(0, 5000)).status().code(),
            absl::StatusCode::kInvalidArgument);
  GgufBuilder builder = TinyLlama();
  builder.tensors.pop_back();
  EXPECT_THAT(std::string(Inspect(builder.Bytes()).status().message()),
              HasSubstr("tensor \"output_norm.weight\" is missing"));
  EXPECT_EQ(InspectModel(path_.string() + ".nosuch").status().code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace vitrine
