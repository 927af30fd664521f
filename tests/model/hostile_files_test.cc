// Every file and path case of tests/data/hostile, loaded as the server loads a model: each has its
// stated outcome within its memory limit, and leaves nothing behind.
//
// The build generates the tree. To run another tree of the same form:
//   VITRINE_HOSTILE_DIR=OUT hostile_files_test
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "kernels/backend_factory.h"
#include "model/gguf.h"
#include "model/loader.h"
#include "nlohmann/json.hpp"

namespace vitrine {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kIsSanitized = true;
#else
constexpr bool kIsSanitized = false;
#endif

fs::path HostileDir() {
  const char* given = std::getenv("VITRINE_HOSTILE_DIR");
  return given != nullptr ? given : VITRINE_HOSTILE_DIR;
}

std::string ReadFile(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error("cannot read " + path.string());
  std::stringstream content;
  content << file.rdbuf();
  return content.str();
}

// A line of /proc/self/status in its own unit: KiB of memory, or a count.
long ProcessStatus(const std::string& name) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(name + ":")) return std::stol(line.substr(name.size() + 1));
  }
  throw std::runtime_error("no " + name + " in /proc/self/status");
}

long OpenDescriptors() {
  const fs::directory_iterator descriptors("/proc/self/fd");
  return std::distance(begin(descriptors), end(descriptors));
}

// How far the peak of resident memory rises above the level at construction.
class PeakMemory {
 public:
  PeakMemory() : level_kib_(ProcessStatus("VmRSS")) { std::ofstream("/proc/self/clear_refs") << 5; }
  long rise_mib() const { return (ProcessStatus("VmHWM") - level_kib_) / 1024; }

 private:
  long level_kib_;
};

// Two greedy tokens after token 0; kNoToken where the logits were not finite.
std::vector<TokenId> Generate(LoadedModel& model) {
  std::vector<TokenId> ids;
  TokenId previous = 0;
  for (int position = 0; position < 2; ++position) {
    Batch batch;
    batch.token_ids = {previous};
    batch.row_begin = {0, 1};
    batch.first_position = {position};
    batch.max_blocks = 1;
    batch.block_table = {0};
    batch.sampled_rows = {0};
    batch.sampling = {{.position = position + 1}};
    std::vector<TokenId> next(1);
    model.runner->Step(batch, next);
    ids.push_back(next[0]);
    if (next[0] == kNoToken) break;
    previous = next[0];
  }
  return ids;
}

class HostileFilesTest : public ::testing::Test {
 protected:
  HostileFilesTest() : root_(fs::temp_directory_path() / ("hostile." + std::to_string(getpid()))) {
    fs::create_directories(root_);
    backend_ = *CreateBackend("cpu", {.threads = 1});
    fs::copy_file(HostileDir() / "gguf/base-q8_0.gguf", root_ / "base-q8_0.gguf");
    healthy_ = *LoadModel(root_ / "base-q8_0.gguf", *backend_, {});
    healthy_ids_ = Generate(healthy_);
  }
  ~HostileFilesTest() override { fs::remove_all(root_); }

  std::string Path(const std::string& text) const {
    if (text.starts_with("ROOT")) return root_.string() + text.substr(4);
    if (text.starts_with("OUT")) return HostileDir().string() + text.substr(3);
    return text;
  }

  // What the case wants loaded, after its action on the file system.
  std::string Prepare(const Json& line) const {
    if (line.contains("file")) return HostileDir() / std::string(line["file"]);
    const Json& input = line["input"];
    const std::string path = Path(input["path"]);
    const std::string action = input["action"];
    if (action == "mkdir") {
      fs::create_directory(path);
    } else if (action == "mkfifo") {
      EXPECT_EQ(mkfifo(path.c_str(), 0600), 0);
    } else if (action == "symlink") {
      fs::create_symlink(Path(input["to"]), path);
    } else {
      EXPECT_EQ(action, "open");
    }
    return path;
  }

  void RunCase(const Json& line);
  void ExpectMessage(const absl::Status& status) const;
  void ExpectUnharmed(long descriptors, long threads);

  fs::path root_;
  std::unique_ptr<Backend> backend_;
  LoadedModel healthy_;
  std::vector<TokenId> healthy_ids_;
};

// Why a case does not apply; empty: it does.
std::string ReasonToSkip(const std::string& id) {
  if (id == "path/symlink-out" || id == "path/dot-dot") {
    return "the operator names the file: there is no model folder to leave";
  }
  return "";
}

void HostileFilesTest::ExpectMessage(const absl::Status& status) const {
  const std::string message(status.message());
  EXPECT_TRUE(absl::IsInvalidArgument(status) || absl::IsUnimplemented(status) ||
              absl::IsNotFound(status))
      << status;
  EXPECT_FALSE(message.empty());
  EXPECT_LE(message.size(), 512u);
  EXPECT_EQ(message.find(root_.string()), std::string::npos) << message;
  EXPECT_EQ(message.find(HostileDir().string()), std::string::npos) << message;
  EXPECT_TRUE(std::ranges::all_of(message, [](char c) { return c >= 0x20 && c < 0x7f; }))
      << message;
}

void HostileFilesTest::ExpectUnharmed(long descriptors, long threads) {
  EXPECT_EQ(Generate(healthy_), healthy_ids_);
  EXPECT_EQ(OpenDescriptors(), descriptors);
  EXPECT_EQ(ProcessStatus("Threads"), threads);
}

void HostileFilesTest::RunCase(const Json& line) {
  const Json& expect = line["expect"];
  const std::string path = Prepare(line);
  const long descriptors = OpenDescriptors();
  const long threads = ProcessStatus("Threads");
  {
    const PeakMemory memory;
    absl::StatusOr<LoadedModel> model = LoadModel(path, *backend_, {});
    std::string outcome = "refuse";
    if (model.ok()) {
      const std::vector<TokenId> ids = Generate(*model);
      const bool is_finite = ids.back() != kNoToken;
      const bool may_fail = expect.contains("then") && expect["then"].contains("generate");
      EXPECT_NE(is_finite, may_fail) << "tokens exactly where all weights are finite";
      EXPECT_TRUE(std::ranges::all_of(
          ids, [&](TokenId id) { return id < model->tokenizer->vocabulary(); }));
      outcome = "load";
    } else {
      ExpectMessage(model.status());
    }
    std::vector<std::string> allowed = expect.value("or", std::vector<std::string>());
    allowed.push_back(expect["outcome"]);
    EXPECT_THAT(allowed, ::testing::Contains(outcome)) << model.status();
    EXPECT_LE(memory.rise_mib(), expect["limits"]["rss_mib"].get<long>() * (kIsSanitized ? 10 : 1));
  }
  ExpectUnharmed(descriptors, threads);
}

TEST_F(HostileFilesTest, EveryCaseHasItsOutcome) {
  std::istringstream manifest(ReadFile(HostileDir() / "manifest.jsonl"));
  int num_run = 0;
  for (std::string text; std::getline(manifest, text);) {
    const Json line = Json::parse(text);
    const std::string id = line["id"];
    if (line.contains("input") && line["input"]["action"] == "truncate-each") continue;
    if (const std::string reason = ReasonToSkip(id); !reason.empty()) {
      std::cout << "skipped " << id << ": " << reason << "\n";
      continue;
    }
    SCOPED_TRACE(id + ": " + std::string(line["expect"]["why"]));
    RunCase(line);
    ++num_run;
  }
  EXPECT_GT(num_run, 330);
}

TEST_F(HostileFilesTest, EveryTruncationIsRefused) {
  std::istringstream manifest(ReadFile(HostileDir() / "manifest.jsonl"));
  int num_swept = 0;
  for (std::string text; std::getline(manifest, text);) {
    const Json line = Json::parse(text);
    if (!line.contains("input") || line["input"]["action"] != "truncate-each") continue;
    const std::string of = line["input"]["of"];
    SCOPED_TRACE(of);
    const std::string whole = ReadFile(HostileDir() / (of + ".gguf"));
    ASSERT_TRUE(GgufFile::Parse(whole, "whole.gguf").ok());
    for (size_t k = line["input"]["from"]; k <= line["input"]["to"].get<size_t>(); ++k) {
      const auto parsed = GgufFile::Parse(std::string_view(whole).substr(0, k), "cut.gguf");
      ASSERT_FALSE(parsed.ok()) << "first " << k << " bytes";
    }
    ++num_swept;
  }
  EXPECT_EQ(num_swept, 1);
}

}  // namespace
}  // namespace vitrine
