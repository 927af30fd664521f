// Split GGUF files: which parts belong together.
#include "model/gguf_parts.h"

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

class GgufPartsTest : public ::testing::Test {
 protected:
  GgufPartsTest() { std::filesystem::create_directories(folder_); }
  ~GgufPartsTest() override { std::filesystem::remove_all(folder_); }

  static GgufBuilder Part(uint32_t number, uint32_t count, uint32_t tensors) {
    GgufBuilder part;
    part.SetUint("split.no", number)
        .SetUint("split.count", count)
        .SetUint("split.tensors.count", tensors);
    return part;
  }
  std::string Write(const std::string& name, const GgufBuilder& part) {
    std::ofstream(folder_ / name, std::ios::binary) << part.Bytes();
    return folder_ / name;
  }
  // Two parts, with a tensor each.
  std::string WriteTwo() {
    Write("m-00002-of-00002.gguf", Part(1, 2, 2).AddFloats("b", {8}, 2.0f));
    return Write("m-00001-of-00002.gguf", Part(0, 2, 2).AddFloats("a", {8}, 1.0f));
  }
  static std::string Refusal(const std::string& path) {
    return std::string(GgufParts::Open(path).status().message());
  }

  const std::filesystem::path folder_ =
      std::filesystem::temp_directory_path() / ("parts." + std::to_string(getpid()));
};

TEST_F(GgufPartsTest, HasTheTensorsOfAllParts) {
  const auto parts = GgufParts::Open(WriteTwo());
  ASSERT_TRUE(parts.ok()) << parts.status();
  EXPECT_EQ((*parts)->num_parts(), 2u);
  EXPECT_EQ((*parts)->label(), "m-00001-of-00002.gguf");
  EXPECT_EQ((*parts)->tensors().size(), 2u);
  ASSERT_NE((*parts)->Find("a"), nullptr);
  ASSERT_NE((*parts)->Find("b"), nullptr);
  EXPECT_EQ((*parts)->Find("b")->name, "b");
  EXPECT_EQ((*parts)->Find("c"), nullptr);
}

TEST_F(GgufPartsTest, AWholeFileIsOnePart) {
  const auto parts = GgufParts::Open(Write("whole.gguf", TinyLlama()));
  ASSERT_TRUE(parts.ok()) << parts.status();
  EXPECT_EQ((*parts)->num_parts(), 1u);
}

TEST_F(GgufPartsTest, PartsThatDoNotBelongTogetherAreRefused) {
  const std::string first = WriteTwo();
  EXPECT_THAT(Refusal(folder_ / "m-00002-of-00002.gguf"), HasSubstr("this is not the first part"));
  EXPECT_THAT(Refusal(Write("other.gguf", Part(0, 2, 2))),
              HasSubstr("name does not end in -00001-of-00002.gguf"));
  EXPECT_THAT(Refusal(Write("none.gguf", Part(0, 0, 0))), HasSubstr("split.count\" is 0"));

  Write("m-00001-of-00002.gguf", Part(0, 2, 3).AddFloats("a", {8}, 1.0f));
  EXPECT_THAT(Refusal(first), HasSubstr("is 3, but all parts together have 2"));
  Write("m-00001-of-00002.gguf", Part(0, 2, 2).AddFloats("b", {8}, 1.0f));
  EXPECT_THAT(Refusal(first), HasSubstr("tensor \"b\" is in an earlier part, too"));
  WriteTwo();
  Write("m-00002-of-00002.gguf", Part(0, 2, 2).AddFloats("b", {8}, 2.0f));
  EXPECT_THAT(Refusal(first), HasSubstr("\"split.no\" is 0, expected 1"));
  Write("m-00002-of-00002.gguf", Part(1, 3, 2).AddFloats("b", {8}, 2.0f));
  EXPECT_THAT(Refusal(first), HasSubstr("\"split.count\" is 3, expected 2"));
  std::filesystem::remove(folder_ / "m-00002-of-00002.gguf");
  EXPECT_TRUE(absl::IsNotFound(GgufParts::Open(first).status()));
}

}  // namespace
}  // namespace vitrine
