// safetensors files and folders, valid and broken (safetensors #231, #401, mlx #3363,
// run-ai/model-streamer #121, sglang #32279).
#include "model/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "model/json.h"

namespace vitrine {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::string File(const std::string& header, const std::string& data) {
  const uint64_t size = header.size();
  std::string bytes(sizeof(size), '\0');
  std::memcpy(bytes.data(), &size, sizeof(size));
  return bytes + header + data;
}

absl::StatusOr<std::unique_ptr<SafetensorsFile>> Parse(std::string_view bytes) {
  return SafetensorsFile::Parse(bytes, "test.safetensors");
}

constexpr char kTwoTensors[] =
    R"({"__metadata__":{"format":"pt"},"b":{"dtype":"BF16","shape":[2],"data_offsets":[12,16]},)"
    R"("a":{"dtype":"F32","shape":[1,3],"data_offsets":[0,12]}})";

TEST(SafetensorsTest, ReadsTensorsInTheOrderOfTheirData) {
  const std::string bytes = File(kTwoTensors, "0123456789abcdef");
  const auto file = Parse(bytes);
  ASSERT_TRUE(file.ok()) << file.status();
  ASSERT_EQ((*file)->tensors().size(), 2u);
  const TensorView& a = (*file)->tensors()[0];
  EXPECT_EQ(a.name, "a");
  EXPECT_EQ(a.dtype, DType::kF32);
  EXPECT_THAT(a.shape, ElementsAre(1, 3));
  EXPECT_EQ(a.bytes, 12u);
  const TensorView* b = (*file)->Find("b");
  ASSERT_NE(b, nullptr);
  EXPECT_EQ(b->dtype, DType::kBF16);
  EXPECT_EQ(std::string_view(reinterpret_cast<const char*>(b->data), b->bytes), "cdef");
  EXPECT_EQ((*file)->Find("c"), nullptr);
  EXPECT_EQ((*file)->Find("__metadata__"), nullptr);
}

TEST(SafetensorsTest, EmptyTensorsScalarsAndPaddingAreLegal) {
  const std::string bytes = File(R"({"e":{"dtype":"F32","shape":[0,4],"data_offsets":[0,0]},)"
                                 R"("s":{"dtype":"F32","shape":[],"data_offsets":[0,4]},)"
                                 R"("f":{"dtype":"F16","shape":[0],"data_offsets":[4,4]}}   )",
                                 "1234");
  const auto file = Parse(bytes);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ((*file)->Find("e")->bytes, 0u);
  EXPECT_THAT((*file)->Find("s")->shape, IsEmpty());
  EXPECT_TRUE(Parse(File("{}", "")).ok());
}

// Masks and counters of old releases lie beside the weights; whoever uses one refuses it.
TEST(SafetensorsTest, ATypeThatNoWeightHasIsReadByName) {
  const std::string bytes =
      File(R"({"m":{"dtype":"BOOL","shape":[1,4],"data_offsets":[0,4]}})", "1234");
  const auto file = Parse(bytes);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ((*file)->Find("m")->other_type, "BOOL");
  EXPECT_EQ((*file)->Find("m")->type_name(), "BOOL");
}

std::string OneTensor(const std::string& fields) { return R"({"t":{)" + fields + "}}"; }

TEST(SafetensorsTest, BrokenHeadersAreRefusedByName) {
  const std::string data = "01234567";
  const std::pair<std::string, std::string> cases[] = {
      {"[]", "does not begin with {"},
      {" {}", "does not begin with {"},
      {"{", "not JSON at byte"},
      {std::string("{}\0", 3), "NUL"},
      {R"({"t":[]})", R"(tensor "t" is an array, expected an object)"},
      {R"({"t":{"dtype":"F32","dtype":"F16"}})", R"(duplicate key "dtype")"},
      {R"({"t":1,"t":2})", R"(duplicate key "t")"},
      {R"({"__metadata__":{"a":1}})", "__metadata__ is not an object of strings"},
      {R"({"__metadata__":[]})", "__metadata__ is not an object of strings"},
      {std::string(R"({"t":)") + std::string(100, '[') + std::string(100, ']') + "}", "deeper"},
      {"{\"\xff\":1}", "not JSON at byte"},
      {OneTensor(R"("shape":[2],"data_offsets":[0,8])"), "has no dtype"},
      {OneTensor(R"("dtype":"F32","data_offsets":[0,8])"), "has no shape"},
      {OneTensor(R"("dtype":"F32","shape":[2])"), "has no data_offsets"},
      {OneTensor(R"("dtype":"F32","shape":[2],"data_offsets":[0])"), "not [begin, end]"},
      {OneTensor(R"("dtype":"F32","shape":[2],"data_offsets":[8,0])"), "not [begin, end]"},
      {OneTensor(R"("dtype":"F32","shape":[2],"data_offsets":[0,16])"), "ends at byte 16"},
      {OneTensor(R"("dtype":"F32","shape":[3],"data_offsets":[0,8])"),
       "has 8 bytes, which is not what F32 of shape [3] takes"},
      {OneTensor(R"("dtype":"F32","shape":[4294967296,4294967296,2],"data_offsets":[0,8])"),
       "takes"},
      {OneTensor(R"("dtype":"F32","shape":[2.0],"data_offsets":[0,8])"), "with a float"},
      {OneTensor(R"("dtype":"F32","shape":[2e0],"data_offsets":[0,8])"), "with a float"},
      {OneTensor(R"("dtype":"F32","shape":[-2],"data_offsets":[0,8])"), "with -2"},
      {OneTensor(R"("dtype":"F32","shape":["2"],"data_offsets":[0,8])"), "with a string"},
      {OneTensor(R"("dtype":"F32","shape":[18446744073709551616],"data_offsets":[0,8])"),
       "with a float"},
      {OneTensor(R"("dtype":"f32","shape":[2],"data_offsets":[0,8])"), R"(unknown dtype "f32")"},
      {OneTensor(R"("dtype":"I32","shape":[3],"data_offsets":[0,8])"), "which is not what I32 of"},
      {OneTensor(R"("dtype":"F32","shape":[1],"data_offsets":[0,4])"), "4 bytes follow the last"},
      {OneTensor(R"("dtype":"F32","shape":[1],"data_offsets":[4,8])"), "belong to no tensor"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
       R"("b":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
       "shares bytes"},
  };
  for (const auto& [header, message] : cases) {
    const std::string bytes = File(header, data);
    const absl::Status status = Parse(bytes).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status) || absl::IsUnimplemented(status)) << header;
    EXPECT_THAT(std::string(status.message()), HasSubstr(message)) << header;
    EXPECT_THAT(std::string(status.message()), HasSubstr("test.safetensors: ")) << header;
  }
}

// Every prefix is copied to memory of just its size, so that a sanitizer sees a read past its end.
TEST(SafetensorsTest, EveryTruncationIsRefused) {
  const std::string bytes = File(kTwoTensors, "0123456789abcdef");
  for (size_t size = 0; size < bytes.size(); ++size) {
    const std::vector<char> prefix(bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(size));
    EXPECT_TRUE(absl::IsInvalidArgument(Parse({prefix.data(), size}).status())) << size;
  }
  EXPECT_FALSE(Parse(bytes + "x").ok());
}

class SafetensorsFolderTest : public ::testing::Test {
 protected:
  SafetensorsFolderTest() {
    std::filesystem::create_directories(folder_);
    Write("one.safetensors",
          File(OneTensor(R"("dtype":"F32","shape":[2],"data_offsets":[0,8])"), "01234567"));
    Write("two.safetensors",
          File(R"({"u":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", "abcd"));
  }
  ~SafetensorsFolderTest() override { std::filesystem::remove_all(folder_); }

  void Write(const std::string& name, const std::string& bytes) {
    std::ofstream(folder_ / name, std::ios::binary) << bytes;
  }
  absl::StatusOr<std::unique_ptr<SafetensorsFolder>> OpenIndex(const std::string& weight_map) {
    Write("model.safetensors.index.json", R"({"weight_map":)" + weight_map + "}");
    return SafetensorsFolder::Open(folder_);
  }

  std::filesystem::path folder_ =
      std::filesystem::temp_directory_path() / ("safetensors." + std::to_string(getpid()));
};

TEST_F(SafetensorsFolderTest, ReadsOneFileOrShards) {
  const auto shards = OpenIndex(R"({"t":"one.safetensors","u":"two.safetensors"})");
  ASSERT_TRUE(shards.ok()) << shards.status();
  EXPECT_EQ((*shards)->tensors().size(), 2u);
  EXPECT_EQ(std::memcmp((*shards)->Find("u")->data, "abcd", 4), 0);
  EXPECT_EQ(std::memcmp((*shards)->Find("t")->data, "01234567", 8), 0);

  std::filesystem::copy_file(folder_ / "two.safetensors", folder_ / "model.safetensors");
  const auto single = SafetensorsFolder::Open(folder_);
  ASSERT_TRUE(single.ok()) << single.status();
  EXPECT_EQ((*single)->tensors().size(), 1u);
}

TEST_F(SafetensorsFolderTest, BrokenIndexesAreRefusedByName) {
  const std::pair<std::string, std::string> cases[] = {
      {"[]", "weight_map is missing or not an object"},
      {R"({"t":7})", R"(tensor "t" is mapped to an integer)"},
      {R"({"t":"../one.safetensors"})", R"(mapped to "../one.safetensors", expected the name)"},
      {R"({"t":"/dev/zero"})", R"(mapped to "/dev/zero", expected the name)"},
      {R"({"t":"one.bin"})", R"(mapped to "one.bin", expected the name)"},
      {R"({"t":"three.safetensors"})", "three.safetensors: "},
      {R"({"t":"two.safetensors","u":"two.safetensors"})",
       R"(two.safetensors: tensor "t" is missing, but the index puts it here)"},
      {R"({"t":"one.safetensors","u":"one.safetensors"})",
       R"(one.safetensors: tensor "u" is missing)"},
      {R"({"t":"two.safetensors"})", R"(two.safetensors: tensor "u" is not what the index puts)"},
  };
  for (const auto& [weight_map, message] : cases) {
    EXPECT_THAT(std::string(OpenIndex(weight_map).status().message()), HasSubstr(message));
  }
}

TEST_F(SafetensorsFolderTest, AFolderWithoutWeightsIsNamed) {
  EXPECT_TRUE(absl::IsNotFound(SafetensorsFolder::Open(folder_).status()));
  EXPECT_THAT(std::string(SafetensorsFolder::Open(folder_).status().message()),
              HasSubstr("neither model.safetensors nor model.safetensors.index.json"));
}

TEST(JsonTest, ReadsEveryKind) {
  const auto value =
      ParseJson(R"({"n":null,"b":true,"i":-9223372036854775808,"u":9223372036854775808,"f":1.0,)"
                R"("s":"\u00e9\ud83d\ude38","a":[1,[2]],"o":{"k":{}}})",
                "test.json", 100);
  ASSERT_TRUE(value.ok()) << value.status();
  EXPECT_TRUE(value->Find("n")->is_null());
  EXPECT_TRUE(*value->Find("b")->AsBool());
  EXPECT_EQ(*value->Find("i")->AsInt(), INT64_MIN);
  EXPECT_EQ(*value->Find("u")->AsFloat(), 9223372036854775808.0);
  EXPECT_EQ(value->Find("f")->AsInt(), nullptr);
  EXPECT_EQ(*value->Find("f")->AsFloat(), 1.0);
  EXPECT_EQ(*value->Find("s")->AsString(), "\xc3\xa9\xf0\x9f\x98\xb8");
  EXPECT_EQ(*(*(*value->Find("a")->AsArray())[1].AsArray())[0].AsInt(), 2);
  EXPECT_EQ(value->Find("o")->Find("k")->kind(), "an object");
  EXPECT_EQ(value->Find("absent"), nullptr);
  EXPECT_EQ(value->AsObject()->front().first, "n");
}

TEST(JsonTest, RefusesWhatIsNotOurs) {
  const std::pair<std::string, std::string> cases[] = {
      {"", "empty"},
      {"\xef\xbb\xbf{}", "byte order mark"},
      {"NaN", "not JSON"},
      {"1e999", "not JSON"},
      {"[1,]", "not JSON"},
      {"{} x", "not JSON"},
      {"'a'", "not JSON"},
      {"[1] // no", "not JSON"},
      {"\"\xc0\xaf\"", "not JSON"},
      {R"("\ud800")", "not JSON"},
      {std::string(65, '['), "nested deeper than 64"},
      {R"({"a":{"b":1,"b":2}})", R"(duplicate key "b")"},
  };
  for (const auto& [text, message] : cases) {
    const absl::Status status = ParseJson(text, "test.json", 100).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << text;
    EXPECT_THAT(std::string(status.message()), HasSubstr(message)) << text;
    EXPECT_THAT(std::string(status.message()), HasSubstr("test.json: "));
  }
  EXPECT_THAT(std::string(ParseJson("[1,2]", "test.json", 2).status().message()),
              HasSubstr("more than 2 values"));
  EXPECT_TRUE(absl::IsResourceExhausted(ParseExactJson("[1,2]", "test.json", 2).status()));
  EXPECT_TRUE(ParseJson("[1,2]", "test.json", 3).ok());
  EXPECT_EQ(ParseJson(R"({"a":[1,{}]})", "test.json", 4)->CountValues(), 4u);
  for (const std::string text : {"[9223372036854775808]", "[-9223372036854775809]"}) {
    EXPECT_TRUE(absl::IsOutOfRange(ParseExactJson(text, "test.json", 3).status())) << text;
    EXPECT_TRUE(ParseJson(text, "test.json", 3).ok()) << text;
  }
  EXPECT_TRUE(ParseJson(std::string(64, '[') + std::string(64, ']'), "test.json", 64).ok());
}

}  // namespace
}  // namespace vitrine
