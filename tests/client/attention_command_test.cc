// vitrine attention against a server in this process: pictures, files, refusals.
#include <gmock/gmock.h>
#include <google/protobuf/util/json_util.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "tests/client/fake_attention.h"
#include "tests/client/fake_server.h"
#include "tests/client/subprocess.h"
#include "vitrine/v1/generation.pb.h"

namespace vitrine::client {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

std::string Printed(const char* format, double value) {
  char text[64];
  std::snprintf(text, sizeof(text), format, value);
  return text;
}

double MeanWeight(uint32_t query, uint32_t key) {
  double sum = 0;
  for (uint32_t layer = 0; layer < kFakeLayers; ++layer) {
    for (uint32_t head = 0; head < kFakeHeads; ++head) sum += FakeWeight(layer, head, query, key);
  }
  return sum / (kFakeLayers * kFakeHeads);
}

class AttentionTest : public ::testing::Test {
 protected:
  Outcome Run(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(),
                     {VITRINE_CLIENT, "attention", "--server=" + server_.address()});
    return RunToEnd(arguments);
  }

  v1::AttentionSpec Sent() { return server_.generation().last_request().attention(); }

  std::string Path(const std::string& name) const { return ::testing::TempDir() + "/" + name; }

  FakeServer server_;
};

TEST_F(AttentionTest, StripNamesWhatEachTokenLookedAt) {
  const Outcome outcome = Run({"The cat sat"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.err, IsEmpty());
  const std::vector<std::string> lines = Lines(outcome.out);
  EXPECT_EQ(lines.at(0), "attention, mean over 3 layers and 2 heads: 13 tokens over 13 keys");
  // The last prompt row chose " on"; rows of the prompt chose nothing. Marks for spaces and ends.
  EXPECT_THAT(lines, Contains(StartsWith("10 t -> _on ")));
  EXPECT_THAT(lines, Contains(StartsWith("12 _the -> _mat\\n ")));
  EXPECT_THAT(lines, Contains(StartsWith("4 c  ")));
  // Key 1 is the hottest of row 1 where key 0 is left out.
  EXPECT_THAT(lines, Contains(::testing::EndsWith("   1 h " + Printed("%.2f", MeanWeight(1, 1)))));
  double sink = 0;
  for (uint32_t query = 0; query < 13; ++query) sink += MeanWeight(query, 0) / 13;
  EXPECT_THAT(outcome.out, HasSubstr("key 0 (T) took " + Printed("%.2f", sink)));
  EXPECT_THAT(outcome.out, HasSubstr("recomputed in the step, cache bf16, numerics fast"));
  EXPECT_THAT(outcome.out, Not(HasSubstr("\x1b")));
  // A picture of the mean asks for the mean.
  EXPECT_EQ(Sent().reduce_heads(), v1::ATTENTION_REDUCE_MEAN);
  EXPECT_EQ(Sent().queries(0), v1::QUERY_SET_ALL);
  EXPECT_EQ(server_.generation().last_request().stop().max_tokens(), 16u);
}

TEST_F(AttentionTest, ColoursPaintTheTextItself) {
  const Outcome outcome = Run({"--colour=always", "--queries=generated", "The cat sat"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("\x1b[48;2;"));
  EXPECT_THAT(outcome.out, HasSubstr("\u00B7the \u2192 \u00B7mat\u21B5"));
  // The sink is dim, the answer begins behind a bar.
  EXPECT_THAT(outcome.out, HasSubstr("\x1b[2mT\x1b[0m"));
  EXPECT_THAT(outcome.out, HasSubstr(" \u2502 "));
  for (const std::string& line : Lines(outcome.out)) {
    if (line.starts_with("    ")) {
      EXPECT_THAT(line, ::testing::EndsWith("\x1b[0m"));
    }
  }
}

TEST_F(AttentionTest, SinkShowsOnRequest) {
  const Outcome outcome = Run({"--hide_sink=false", "--token=3", "The cat sat"});
  EXPECT_THAT(outcome.out, HasSubstr("0 T " + Printed("%.2f", MeanWeight(3, 0))));
  EXPECT_THAT(outcome.out, Not(HasSubstr("left out")));
  EXPECT_EQ(Sent().query_ranges(0).begin(), 3u);
  EXPECT_EQ(Sent().query_ranges(0).end(), 4u);
  EXPECT_THAT(Run({"--log_scale", "The cat sat"}).out, HasSubstr("logarithmic"));
}

TEST_F(AttentionTest, GridShowsEveryHeadOfOneToken) {
  Outcome outcome = Run({"--view=grid", "--statistic=first", "The cat sat"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, StartsWith("weight on key 0 of 12 _the -> _mat\\n, layer x head\n"));
  EXPECT_THAT(Lines(outcome.out), Contains("2       " + Printed("%.2f", FakeWeight(2, 0, 12, 0)) +
                                           " " + Printed("%.2f", FakeWeight(2, 1, 12, 0))));
  EXPECT_THAT(outcome.out, HasSubstr("most weight: 0 T in 6 heads"));
  outcome = Run({"--view=grid", "--statistic=top", "--token=-2", "--layer=-1", "The cat sat"});
  EXPECT_THAT(outcome.out, HasSubstr("key with the largest weight of 11 _on -> _the"));
  EXPECT_EQ(Sent().grid().layers(0), -1);
}

TEST_F(AttentionTest, MatrixShowsOneHead) {
  const Outcome outcome = Run({"--view=matrix", "--layer=1", "--head=0", "The cat sat"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, StartsWith("attention, layer 1, head 0: 13 tokens over 13 keys\n"));
  EXPECT_THAT(outcome.out, HasSubstr("1 h " + Printed("%.2f", FakeWeight(1, 0, 1, 1))));
  EXPECT_THAT(Run({"--view=matrix", "--pairs=2:1,0:0", "The cat sat"}).out,
              StartsWith("attention, mean over 2 heads"));
}

TEST_F(AttentionTest, WidePicturesContinueBelow) {
  const Outcome outcome = Run(
      {"--view=matrix", "--width=60", "A prompt that is much wider than sixty columns of text"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  const std::vector<std::string> lines = Lines(outcome.out);
  const auto count = [&lines](const std::string& part) {
    return std::count_if(lines.begin(), lines.end(), [&part](const std::string& line) {
      return line.find(part) != std::string::npos;
    });
  };
  // The row that chose the first token goes on below; a row that sees none of the further keys
  // does not.
  EXPECT_EQ(count("-> _on"), 2);
  EXPECT_EQ(std::count_if(lines.begin(), lines.end(),
                          [](const std::string& line) { return line.starts_with("4 o"); }),
            1);
}

TEST_F(AttentionTest, SpansAddUpPartsOfThePrompt) {
  const Outcome outcome = Run({"--spans=start=0:3", "--spans=cat=text:cat", "The cat sat"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  ASSERT_EQ(Sent().spans_size(), 2);
  EXPECT_EQ(Sent().spans(1).prompt_bytes().begin(), 4u);
  EXPECT_EQ(Sent().spans(1).prompt_bytes().end(), 7u);
  double start = 0;
  double cat = 0;
  for (uint32_t key = 0; key < 3; ++key) start += MeanWeight(12, key);
  for (uint32_t key = 4; key < 7; ++key) cat += MeanWeight(12, key);
  EXPECT_THAT(Lines(outcome.out), Contains("12 _the -> _mat\\n   " + Printed("%.3f", start) + " " +
                                           Printed("%.3f", cat)));
}

TEST_F(AttentionTest, FlagsReachTheWire) {
  EXPECT_EQ(Run({"--output=top_k:3,dense", "--dtype=f16", "--reduce_layers=max",
                 "--queries=last_prompt,2:4", "--keys=0:20", "--max_bytes=1000000", "--head=1",
                 "The cat sat"})
                .exit_code,
            0);
  EXPECT_EQ(Sent().outputs(0).top_k().k(), 3u);
  EXPECT_EQ(Sent().outputs(1).dense().dtype(), v1::ELEMENT_TYPE_F16);
  EXPECT_EQ(Sent().reduce_layers(), v1::ATTENTION_REDUCE_MAX);
  EXPECT_EQ(Sent().queries(0), v1::QUERY_SET_LAST_PROMPT);
  EXPECT_EQ(Sent().query_ranges(0).begin(), 2u);
  EXPECT_EQ(Sent().key_ranges(0).end(), 20u);
  EXPECT_EQ(Sent().max_bytes(), 1000000u);
  EXPECT_EQ(Sent().grid().heads(0), 1u);
}

TEST_F(AttentionTest, ReplayShowsAKeptRequest) {
  Outcome outcome = Run({"--request=r-1"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(Lines(outcome.out), Contains(StartsWith("13 _ -> i ")));
  EXPECT_EQ(Run({"--request=r-2"}).exit_code, 1);
  EXPECT_EQ(Run({"--request=r-1", "--choice=1"}).exit_code, 1);
  EXPECT_EQ(Run({"--request=r-1", "prompt"}).exit_code, 2);
  outcome = Run({"--request=off"});
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.err, HasSubstr("--allow_inspection"));
  outcome = Run({"--request=cut"});
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.err, HasSubstr("the trace has no end"));
}

TEST_F(AttentionTest, RefusalsSayWhatToDo) {
  Outcome outcome = Run({"off"});
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.err, HasSubstr("FAILED_PRECONDITION: attention: inspection is off\n"));
  EXPECT_THAT(outcome.err, HasSubstr("--allow_inspection"));
  outcome = Run({"lost"});
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.err, StartsWith("vitrine: DATA_LOSS: attention: chunk 0 is missing"));
  EXPECT_THAT(outcome.out, IsEmpty());
  outcome = Run({"--token=90", "The cat sat"});
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.out, IsEmpty());

  const std::vector<std::vector<std::string>> wrong = {
      {},
      {"--view=grid", "--output=dense", "x"},
      {"--view=spans", "--output=stats", "x"},
      {"--view=strip", "--output=stats", "x"},
      {"--pairs=1:1", "--layer=1", "x"},
      {"--pairs=1", "x"},
      {"--queries=some", "x"},
      {"--keys=3", "x"},
      {"--output=everything", "x"},
      {"--output=stats:3", "x"},
      {"--output=tile:3", "x"},
      {"--spans=name", "x"},
      {"--spans=a=text:nowhere", "x"},
      {"--dtype=f16", "--output=stats", "x"},
      {"--choice=1", "x"},
      {"--layer=x", "x"},
      {"--server=", "x"},
  };
  for (const std::vector<std::string>& arguments : wrong) {
    EXPECT_EQ(Run(arguments).exit_code, 2) << ::testing::PrintToString(arguments);
  }
}

TEST_F(AttentionTest, JsonIsTheStream) {
  const Outcome outcome = Run({"--json", "The cat sat"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  int chunks = 0;
  for (const std::string& line : Lines(outcome.out)) {
    v1::GenerateEvent event;
    ASSERT_TRUE(google::protobuf::util::JsonStringToMessage(line, &event).ok()) << line;
    chunks += event.has_attention() ? 1 : 0;
  }
  EXPECT_EQ(chunks, 4);  // The prompt, two generated rows, the end.
  EXPECT_THAT(Lines(Run({"--json", "--request=r-1"}).out).back(), HasSubstr("\"trace_end\""));
}

TEST_F(AttentionTest, CsvHasALinePerNumber) {
  const std::string path = Path("attention.csv");
  const Outcome outcome =
      Run({"--csv=" + path, "--queries=generated", "--output=dense,stats", "--token_ids=84,44,34"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  const std::vector<std::string> lines = Lines(ReadFile(path));
  // Six heads, rows 3 and 4: 4 + 5 keys, and 8 statistics each.
  EXPECT_EQ(lines.size(), 1u + 6 * (9 + 16));
  EXPECT_EQ(lines[0], "output,layer,head,choice,query,last,query_token,last_token,value");
  EXPECT_THAT(lines, Contains("dense,2,1,0,4,1, the,\",\"," +
                              Printed("%.9g", static_cast<float>(FakeWeight(2, 1, 4, 1)))));
  EXPECT_THAT(lines, Contains("stats,0,0,0,3,visible_keys, on,,4"));
  EXPECT_EQ(Run({"--csv=/nonexistent/file", "x"}).exit_code, 1);
  EXPECT_EQ(Run({"--npz=/dev/full", "x"}).exit_code, 1);
}

// The files of the command and of the Python module, read by the module.
TEST_F(AttentionTest, PythonReadsWhatTheCommandWrites) {
  Subprocess probe({VITRINE_PYTHON, "-c", "import grpc, numpy"});
  if (probe.Wait() != 0) GTEST_SKIP() << "this Python has no grpc and numpy modules";
  const std::string of_command = Path("command.npz");
  const std::string of_module = Path("module.npz");
  const Outcome outcome =
      Run({"--npz=" + of_command, "--queries=all", "--view=none", "--output=dense", "The cat"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  Subprocess module({VITRINE_PYTHON, "-B", VITRINE_PYTHON_ATTENTION,
                     "--server=" + server_.address(), "--npz=" + of_module, "The cat"});
  EXPECT_EQ(module.Wait(), 0) << module.err();
  EXPECT_EQ(module.out(), "3 layers, 2 heads, 9 queries, 9 keys\n");
  const std::string folder(VITRINE_PYTHON_ATTENTION);
  Subprocess test({VITRINE_PYTHON, "-B", VITRINE_READER_TEST, folder.substr(0, folder.rfind('/')),
                   of_command, of_module});
  EXPECT_EQ(test.Wait(), 0) << test.err();
  EXPECT_THAT(test.err(), HasSubstr("OK"));
  EXPECT_THAT(test.err(), Not(HasSubstr("skipped")));

  Subprocess off(
      {VITRINE_PYTHON, "-B", VITRINE_PYTHON_ATTENTION, "--server=" + server_.address(), "off"});
  EXPECT_EQ(off.Wait(), 1);
  EXPECT_EQ(off.err(), "attention.py: FAILED_PRECONDITION: attention: inspection is off\n");
}

}  // namespace
}  // namespace vitrine::client
