// Valid files of every kind, and broken ones of the kinds that have broken other readers
// (CVE-2024-21802, CVE-2025-53630, CVE-2026-27940, llama.cpp #25596, #26318, #26690, #27188).
#include "model/gguf.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <random>

#include "tests/model/gguf_builder.h"

namespace vitrine {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

absl::StatusOr<std::unique_ptr<GgufFile>> Parse(std::string_view bytes) {
  return GgufFile::Parse(bytes, "test.gguf");
}

// What another reader would check: every tensor's bytes lie inside `bytes`, and no two meet.
void ExpectSound(const GgufFile& file, std::string_view bytes) {
  std::vector<std::pair<const char*, const char*>> ranges;
  for (const TensorView& tensor : file.tensors()) {
    const char* begin = reinterpret_cast<const char*>(tensor.data);
    ranges.emplace_back(begin, begin + tensor.bytes);
    EXPECT_GE(begin, bytes.data());
    EXPECT_LE(begin + tensor.bytes, bytes.data() + bytes.size());
    EXPECT_EQ(file.Find(tensor.name), &tensor);
    int64_t rows = 1;
    for (size_t i = 0; i + 1 < tensor.shape.size(); ++i) rows *= tensor.shape[i];
    EXPECT_EQ(tensor.bytes, static_cast<size_t>(rows) * RowBytes(tensor.dtype, tensor.columns()));
  }
  std::sort(ranges.begin(), ranges.end());
  for (size_t i = 1; i < ranges.size(); ++i) EXPECT_LE(ranges[i - 1].second, ranges[i].first);
}

TEST(GgufTest, ReadsMetadataOfEveryType) {
  GgufBuilder builder;
  builder.Set("u8", GgufType::kUint8, Encode<uint8_t>(200))
      .Set("i8", GgufType::kInt8, Encode<int8_t>(-100))
      .Set("u16", GgufType::kUint16, Encode<uint16_t>(60000))
      .Set("i16", GgufType::kInt16, Encode<int16_t>(-30000))
      .Set("u32", GgufType::kUint32, Encode<uint32_t>(4000000000u))
      .Set("i32", GgufType::kInt32, Encode<int32_t>(2000000000))
      .Set("u64", GgufType::kUint64, Encode<uint64_t>(1ull << 63))
      .Set("i64", GgufType::kInt64, Encode<int64_t>(1ll << 40))
      .Set("f32", GgufType::kFloat32, Encode<float>(0.5f))
      .Set("f64", GgufType::kFloat64, Encode<double>(0.1))
      .SetBool("yes", true)
      .SetBool("no", false)
      .SetString("text", "\xc3\xa9t\xc3\xa9")
      .SetStrings("texts", {"a", "", "ccc"})
      .SetInts("ints", {-1, 0, 7})
      .Set("longs", GgufType::kArray, EncodeArray<uint64_t>(GgufType::kUint64, {1, 1ull << 62}))
      .Set("floats", GgufType::kArray, EncodeArray<float>(GgufType::kFloat32, {1.5f, -2.0f}))
      .Set("none", GgufType::kArray, EncodeArray<double>(GgufType::kFloat64, {}));
  const std::string bytes = builder.Bytes();
  const auto parsed = Parse(bytes);
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  const GgufFile& file = **parsed;
  EXPECT_EQ(*file.Uint("u8"), 200u);
  EXPECT_EQ(*file.Uint("u16"), 60000u);
  EXPECT_EQ(*file.Uint("u32"), 4000000000u);
  EXPECT_EQ(*file.Uint("i32"), 2000000000u);
  EXPECT_EQ(*file.Uint("u64"), 1ull << 63);
  EXPECT_EQ(*file.Uint("i64"), 1ull << 40);
  EXPECT_EQ(std::get<int64_t>(file.metadata().at("i8")), -100);
  EXPECT_EQ(std::get<int64_t>(file.metadata().at("i16")), -30000);
  EXPECT_EQ(*file.Float("f32"), 0.5);
  EXPECT_EQ(*file.Float("f64"), 0.1);
  EXPECT_TRUE(*file.Bool("yes"));
  EXPECT_FALSE(*file.Bool("no"));
  EXPECT_EQ(*file.String("text"), "\xc3\xa9t\xc3\xa9");
  EXPECT_THAT(*file.StringArray("texts"), ElementsAre("a", "", "ccc"));
  EXPECT_THAT(*file.IntArray("ints"), ElementsAre(-1, 0, 7));
  EXPECT_THAT(*file.IntArray("longs"), ElementsAre(1, int64_t{1} << 62));
  EXPECT_THAT(*file.FloatArray("floats"), ElementsAre(1.5f, -2.0f));
  EXPECT_EQ(file.metadata().size(), 18u);
  EXPECT_TRUE(file.tensors().empty());
}

TEST(GgufTest, LookUpsOfTheWrongKindNameKeyAndKind) {
  GgufBuilder builder;
  builder.SetUint("u", 1)
      .SetFloat("f", 1.0f)
      .SetString("s", "x")
      .Set("minus", GgufType::kInt32, Encode<int32_t>(-7))
      .Set("bytes", GgufType::kArray, EncodeArray<int8_t>(GgufType::kInt8, {1, 2}))
      .Set("large", GgufType::kArray, EncodeArray<uint64_t>(GgufType::kUint64, {1ull << 63}))
      .SetStrings("texts", {"a"});
  const std::string bytes = builder.Bytes();
  const auto parsed = Parse(bytes);
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  const GgufFile& file = **parsed;
  EXPECT_EQ(file.Uint("absent").status().code(), absl::StatusCode::kNotFound);
  const std::pair<absl::Status, std::string> wrong[] = {
      {file.Uint("f").status(), R"(key "f" is a float, expected an integer)"},
      {file.Uint("minus").status(), R"(key "minus" is -7, expected at least 0)"},
      {file.Float("u").status(), R"(key "u" is an unsigned integer, expected a float)"},
      {file.Bool("s").status(), R"(key "s" is a string, expected a bool)"},
      {file.String("u").status(), R"(key "u" is an unsigned integer, expected a string)"},
      {file.StringArray("s").status(), R"(key "s" is a string, expected an array)"},
      {file.StringArray("bytes").status(), R"(is an array of int8, expected strings)"},
      {file.IntArray("bytes").status(), R"(is an array of int8, expected integers of 32 or 64)"},
      {file.IntArray("large").status(), R"(holds 9223372036854775808, which is too large)"},
      {file.FloatArray("texts").status(), R"(is an array of string, expected float32)"},
  };
  for (const auto& [status, message] : wrong) {
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << message;
    EXPECT_THAT(std::string(status.message()), HasSubstr(message));
    EXPECT_THAT(std::string(status.message()), HasSubstr("test.gguf: "));
  }
}

TEST(GgufTest, TensorsHaveRowsThenColumns) {
  for (const uint32_t version : {2u, 3u}) {
    GgufBuilder builder = TinyLlama();
    builder.version = version;
    const std::string bytes = builder.Bytes();
    const auto parsed = Parse(bytes);
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    EXPECT_EQ((*parsed)->version(), version);
    ExpectSound(**parsed, bytes);
    const TensorView* tensor = (*parsed)->Find("blk.1.ffn_down.weight");
    ASSERT_NE(tensor, nullptr);
    EXPECT_THAT(tensor->shape, ElementsAre(32, 48));
    EXPECT_EQ(tensor->rows(), 32);
    EXPECT_EQ(tensor->columns(), 48);
    const std::string& data = builder.tensor("blk.1.ffn_down.weight").data;
    EXPECT_EQ(std::string_view(reinterpret_cast<const char*>(tensor->data), tensor->bytes), data);
    EXPECT_EQ((*parsed)->Find("blk.2.ffn_down.weight"), nullptr);
  }
}

TEST(GgufTest, EveryTypeHasItsBlocks) {
  const std::pair<uint32_t, DType> types[] = {
      {0, DType::kF32},     {1, DType::kF16},     {2, DType::kQ4_0},  {3, DType::kQ4_1},
      {6, DType::kQ5_0},    {7, DType::kQ5_1},    {8, DType::kQ8_0},  {10, DType::kQ2_K},
      {11, DType::kQ3_K},   {12, DType::kQ4_K},   {13, DType::kQ5_K}, {14, DType::kQ6_K},
      {20, DType::kIQ4_NL}, {23, DType::kIQ4_XS}, {30, DType::kBF16},
  };
  for (const auto& [id, dtype] : types) {
    GgufBuilder builder;
    builder.AddTensor("t", {512, 3}, id, std::string(3 * RowBytes(dtype, 512), 'x'));
    const std::string bytes = builder.Bytes();
    const auto parsed = Parse(bytes);
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    EXPECT_EQ((*parsed)->tensors()[0].dtype, dtype);
    ExpectSound(**parsed, bytes);
    EXPECT_FALSE(Parse(std::string_view(bytes).substr(0, bytes.size() - 1)).ok());
  }
}

TEST(GgufTest, AlignmentIsThatOfTheFile) {
  for (const uint64_t alignment : {8u, 24u, 64u, 4096u, 65536u}) {
    GgufBuilder builder = TinyLlama();
    builder.alignment = alignment;
    builder.SetUint("general.alignment", static_cast<uint32_t>(alignment));
    const std::string bytes = builder.Bytes();
    const auto parsed = Parse(bytes);
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    ExpectSound(**parsed, bytes);
    const TensorView* tensor = (*parsed)->Find("output_norm.weight");
    EXPECT_EQ((reinterpret_cast<const char*>(tensor->data) - bytes.data()) % alignment, 0);
  }
}

TEST(GgufTest, BytesAfterTheLastTensorArePadding) {
  EXPECT_TRUE(Parse(TinyLlama().Bytes() + std::string(31, '\0')).ok());
}

constexpr uint64_t kHuge = uint64_t{1} << 63;
constexpr auto kUnimplemented = absl::StatusCode::kUnimplemented;

struct Broken {
  std::string name;
  std::function<void(GgufBuilder&)> change;
  std::string message;
  absl::StatusCode code = absl::StatusCode::kInvalidArgument;
};

// One array-valued key and nothing else.
void OnlyArray(GgufBuilder& builder, GgufType type, uint64_t size, const std::string& rest) {
  builder = GgufBuilder();
  builder.Set("a", GgufType::kArray, Encode(type) + Encode(size) + rest);
}

std::vector<Broken> BrokenKeys() {
  return {
      {"magic", [](auto& b) { b.magic = "GGML"; }, R"(not a GGUF file: it begins with "GGML")"},
      {"reversed", [](auto& b) { b.magic = "FUGG"; }, R"(it begins with "FUGG")"},
      {"version 0", [](auto& b) { b.version = 0; }, "GGUF version 0", kUnimplemented},
      {"version 1", [](auto& b) { b.version = 1; }, "GGUF version 1", kUnimplemented},
      {"version 4", [](auto& b) { b.version = 4; }, "GGUF version 4", kUnimplemented},
      {"big-endian", [](auto& b) { b.version = 0x03000000; }, "big-endian", kUnimplemented},
      {"key count", [](auto& b) { b.num_keys = kHuge; }, "promises 9223372036854775808 keys"},
      {"key count 65537", [](auto& b) { b.num_keys = 65537; }, "at most 65536"},
      {"one key more", [](auto& b) { *(b.num_keys = b.keys.size()) += 1; },
       "tensor 1 of 20 has a string of"},
      {"tensor count", [](auto& b) { b.num_tensors = ~0ull; }, "promises 18446744073709551615"},
      {"array 2^63", [](auto& b) { OnlyArray(b, GgufType::kUint8, kHuge, ""); },
       R"(key "a" promises 9223372036854775808 elements in 0 bytes)"},
      {"array times 8 wraps", [](auto& b) { OnlyArray(b, GgufType::kUint64, kHuge / 4, "1234"); },
       "elements in 4 bytes"},
      {"strings times 8 wrap", [](auto& b) { OnlyArray(b, GgufType::kString, kHuge / 4, ""); },
       "elements in 0 bytes"},
      {"string in array too long",
       [](auto& b) { OnlyArray(b, GgufType::kString, 1, Encode<uint64_t>(kHuge)); },
       R"(key "a" has a string of 9223372036854775808 bytes)"},
      {"element type", [](auto& b) { OnlyArray(b, static_cast<GgufType>(99), 1, "12345678"); },
       R"(key "a" has the unknown element type 99)"},
      {"nested", [](auto& b) { OnlyArray(b, GgufType::kArray, 1, std::string(64, '\0')); },
       R"(key "a" is an array of arrays)"},
      {"bool 2", [](auto& b) { b.Set("x", GgufType::kBool, "\2"); }, R"(key "x" has the bool 2)"},
      {"bool in array", [](auto& b) { OnlyArray(b, GgufType::kBool, 2, "\1\2"); },
       "neither 0 nor 1"},
      {"value type", [](auto& b) { b.Set("x", static_cast<GgufType>(13), "1234"); },
       R"(key "x" has the unknown type 13)"},
      {"duplicate key", [](auto& b) { b.keys.push_back(b.keys[1]); },
       R"(key "general.name" is there twice)"},
      {"empty key", [](auto& b) { b.SetUint("", 1); }, "has an empty name"},
      {"long key", [](auto& b) { b.SetUint(std::string(65536, 'x'), 1); }, "name of 65536 bytes"},
      {"key not UTF-8", [](auto& b) { b.SetUint("x.\xff", 1); }, R"("x.\xff")"},
      {"alignment 0", [](auto& b) { b.SetUint("general.alignment", 0); }, "general.alignment is 0"},
      {"alignment 12", [](auto& b) { b.SetUint("general.alignment", 12); }, "is 12, expected"},
      {"alignment 2^31", [](auto& b) { b.SetUint("general.alignment", 1u << 31); }, "2147483648"},
      {"alignment string", [](auto& b) { b.SetString("general.alignment", "32"); }, "is a string"},
  };
}

std::vector<Broken> BrokenTensors() {
  return {
      {"tensor name", [](auto& b) { b.tensors[0].name = std::string(65, 't'); },
       "tensor 1 of 20 has a name of 65 bytes"},
      {"empty tensor name", [](auto& b) { b.tensors[0].name.clear(); }, "has an empty name"},
      {"duplicate tensor", [](auto& b) { b.tensors[1].name = b.tensors[0].name; },
       R"(tensor "token_embd.weight" is there twice)"},
      {"no dimension", [](auto& b) { b.tensors[1].dimensions.clear(); }, "has 0 dimensions"},
      {"5 dimensions", [](auto& b) { b.tensors[1].dimensions = {1, 1, 1, 1, 32}; },
       "has 5 dimensions"},
      {"dimension 0", [](auto& b) { b.tensors[1].dimensions = {0}; }, "has a dimension of 0"},
      {"dimension 2^63", [](auto& b) { b.tensors[0].dimensions = {2, kHuge}; },
       "has a dimension of 9223372036854775808"},
      {"elements wrap to 0",
       [](auto& b) { b.tensors[0].dimensions = {65536, 65536, 65536, 65536}; },
       "is larger than the file"},
      {"elements wrap to right",
       [](auto& b) { b.tensors[0].dimensions = {32, (uint64_t{1} << 59) + 8}; },
       "is larger than the file"},
      {"bytes wrap", [](auto& b) { b.tensors[0].dimensions = {uint64_t{1} << 62}; },
       "is larger than the file"},
      {"unknown type", [](auto& b) { b.tensors[0].type = 1000; }, "has the unknown type 1000"},
      {"removed type", [](auto& b) { b.tensors[0].type = 31; }, "has the unknown type 31"},
      {"unsupported type", [](auto& b) { b.tensors[0].type = 16; }, "type IQ2_XXS, which is not",
       kUnimplemented},
      {"integers", [](auto& b) { b.tensors[0].type = 26; }, "type I32, which", kUnimplemented},
      {"partial block", [](auto& b) { b.tensors[0].type = 12; },
       "rows of 32 columns, but type Q4_K comes in blocks of 256"},
      {"unaligned offset", [](auto& b) { b.tensors[1].offset = 33; },
       "begins at offset 33, expected a multiple of 32"},
      {"offset past the end", [](auto& b) { b.tensors[19].offset = 1 << 20; },
       R"(tensor "output_norm.weight" needs 128 bytes at offset 1048576)"},
      {"offset wraps", [](auto& b) { b.tensors[19].offset = ~uint64_t{31}; },
       "at offset 18446744073709551584"},
      {"overlap", [](auto& b) { b.tensors[2].offset = 32; }, "shares bytes with"},
  };
}

void ExpectRefused(const std::vector<Broken>& cases) {
  for (const Broken& broken : cases) {
    SCOPED_TRACE(broken.name);
    GgufBuilder builder = TinyLlama();
    broken.change(builder);
    const std::string bytes = builder.Bytes();
    const absl::Status status = Parse(bytes).status();
    EXPECT_EQ(status.code(), broken.code) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(broken.message));
    EXPECT_THAT(std::string(status.message()), HasSubstr("test.gguf: "));
    EXPECT_LE(status.message().size(), 300u);
  }
}

TEST(GgufTest, BrokenKeysAreRefusedByName) { ExpectRefused(BrokenKeys()); }

TEST(GgufTest, BrokenTensorsAreRefusedByName) { ExpectRefused(BrokenTensors()); }

// Every prefix is copied to memory of just its size, so that a sanitizer sees a read past its end.
TEST(GgufTest, EveryTruncationIsRefused) {
  const std::string bytes = TinyLlama().Bytes();
  for (size_t size = 0; size < bytes.size(); ++size) {
    const std::vector<char> prefix(bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(size));
    const absl::Status status = Parse({prefix.data(), prefix.size()}).status();
    ASSERT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << "first " << size << " bytes";
  }
}

TEST(GgufTest, DamagedHeadersGiveAnErrorOrSoundTensors) {
  const std::string valid = TinyLlama().Bytes();
  const size_t header_size = TinyLlama().Header().size();
  std::mt19937_64 random(1);
  const uint64_t edges[] = {0, 1, 2, 0x7f, 0x80, 0xff, 0xfffffffe, 0x7fffffffffffffff, ~0ull};
  int num_refused = 0;
  for (int i = 0; i < 5000; ++i) {
    std::string bytes = valid;
    for (uint64_t changes = random() % 2 + 1; changes > 0; --changes) {
      const size_t width = size_t{1} << random() % 4;
      const size_t position = random() % (header_size - width);
      const uint64_t value = random() % 4 == 0 ? random() : edges[random() % std::size(edges)];
      std::memcpy(bytes.data() + position, &value, width);
    }
    const auto parsed = Parse(bytes);
    if (parsed.ok()) ExpectSound(**parsed, bytes);
    num_refused += parsed.ok() ? 0 : 1;
  }
  EXPECT_GT(num_refused, 1000);
  EXPECT_LT(num_refused, 5000);
}

class GgufOpenTest : public ::testing::Test {
 protected:
  GgufOpenTest()
      : folder_(std::filesystem::temp_directory_path() /
                ("gguf_test." + std::to_string(getpid()))) {
    std::filesystem::create_directories(folder_);
  }
  ~GgufOpenTest() override { std::filesystem::remove_all(folder_); }

  std::string Write(const std::string& name, const std::string& bytes) {
    std::ofstream(folder_ / name, std::ios::binary) << bytes;
    return folder_ / name;
  }

  std::filesystem::path folder_;
};

TEST_F(GgufOpenTest, ReadsAFileAndALinkToOne) {
  const std::string bytes = TinyLlama().Bytes();
  const std::string path = Write("tiny.gguf", bytes);
  std::filesystem::create_symlink("tiny.gguf", folder_ / "link.gguf");
  for (const std::string& name : {path, std::string(folder_ / "link.gguf")}) {
    const auto file = GgufFile::Open(name);
    ASSERT_TRUE(file.ok()) << file.status();
    EXPECT_EQ((*file)->tensors().size(), 20u);
    const TensorView* tensor = (*file)->Find("output_norm.weight");
    EXPECT_EQ(std::string_view(reinterpret_cast<const char*>(tensor->data), tensor->bytes),
              TinyLlama().tensor("output_norm.weight").data);
  }
}

TEST_F(GgufOpenTest, RefusesWhatIsNotAModelFile) {
  std::filesystem::create_directory(folder_ / "dir.gguf");
  std::filesystem::create_symlink("loop.gguf", folder_ / "loop.gguf");
  ASSERT_EQ(mkfifo((folder_ / "fifo.gguf").c_str(), 0600), 0);
  const auto invalid = absl::StatusCode::kInvalidArgument;
  const struct {
    std::string path;
    absl::StatusCode code;
    std::string message;
  } cases[] = {
      {folder_ / "nosuch.gguf", absl::StatusCode::kNotFound, "nosuch.gguf: "},
      {folder_ / "dir.gguf", invalid, "dir.gguf: not a regular file"},
      {folder_ / "fifo.gguf", invalid, "fifo.gguf: not a regular file"},
      {"/dev/zero", invalid, "zero: not a regular file"},
      {folder_ / "loop.gguf", invalid, "loop.gguf: "},
      {Write("empty.gguf", ""), invalid, "empty.gguf: empty file"},
      {Write("four.gguf", "GGUF"), invalid, "four.gguf: the version is cut off"},
      {Write("text.gguf",
             "\x7f"
             "ELF"),
       invalid, R"(text.gguf: not a GGUF file: it begins with "\x7fELF")"},
  };
  for (const auto& [path, code, message] : cases) {
    const absl::Status status = GgufFile::Open(path).status();
    EXPECT_EQ(status.code(), code) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(message));
    EXPECT_EQ(status.message().find('/'), absl::string_view::npos) << status;
  }
}

}  // namespace
}  // namespace vitrine
