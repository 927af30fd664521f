// The built command line against a server in this process: streams, exit codes, JSON, Ctrl-C.
#include <gmock/gmock.h>
#include <google/protobuf/util/json_util.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <cstddef>
#include <fstream>
#include <string>
#include <vector>

#include "client/logprobs_table.h"
#include "client/stream_check.h"
#include "tests/client/fake_server.h"
#include "tests/client/subprocess.h"
#include "vitrine/v1/control.pb.h"
#include "vitrine/v1/generation.pb.h"

namespace vitrine::client {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

Outcome RunClient(std::vector<std::string> arguments, const std::string& input = "") {
  arguments.insert(arguments.begin(), VITRINE_CLIENT);
  return RunToEnd(arguments, input);
}

class ClientTest : public ::testing::Test {
 protected:
  Outcome Run(std::vector<std::string> arguments, const std::string& input = "") {
    arguments.insert(arguments.begin() + 1, "--server=" + server_.address());
    return RunClient(arguments, input);
  }

  FakeServer server_;
};

TEST_F(ClientTest, StdoutHoldsTheAnswerAndNothingElse) {
  const Outcome outcome = Run({"generate", "hello"});
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_EQ(outcome.out, "Hello, world!");
  EXPECT_THAT(outcome.err, HasSubstr("3 prompt tokens, 3 generated, STOP_STRING"));
  EXPECT_THAT(outcome.err, HasSubstr("seed 18446744073709551615"));
}

TEST_F(ClientTest, PromptComesFromStandardInputByteForByte) {
  const std::string prompt("a\0b\xff\n", 5);
  EXPECT_EQ(Run({"generate", "-"}, prompt).exit_code, 0);
  EXPECT_EQ(server_.generation().last_request().text(), prompt);
}

TEST_F(ClientTest, EveryFieldOfTheRequestHasAFlag) {
  const Outcome outcome = Run({"generate",
                               "--model=m",
                               "--parse_special",
                               "--priority=-3",
                               "--cache_salt=s",
                               "--client_request_id=c",
                               "--temperature=0.5",
                               "--top_k=-1",
                               "--top_p=2",
                               "--min_p=0.1",
                               "--typical_p=0.9",
                               "--repetition_penalty=1.5",
                               "--presence_penalty=-1",
                               "--frequency_penalty=1",
                               "--penalty_window=64",
                               "--logit_bias=5:-1.5",
                               "--logit_bias=6:2",
                               "--allowed_token_ids=1,2",
                               "--banned_token_ids=3",
                               "--seed=18446744073709551615",
                               "--max_tokens=0",
                               "--min_tokens=1",
                               "--stop=A",
                               "--stop=B",
                               "--include_stop_string",
                               "--stop_token_ids=7,8",
                               "--ignore_eos",
                               "--time_limit=1.5s",
                               "--logprobs=0",
                               "--logprobs_mode=processed",
                               "--prompt_logprobs=2",
                               "--n=1",
                               "--return_token_ids_only=false",
                               "--return_prompt_token_ids",
                               "hello"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  v1::GenerateRequest expected;
  ASSERT_TRUE(google::protobuf::util::JsonStringToMessage(
                  R"({"model": "m", "text": "aGVsbG8=", "parse_special": true, "priority": -3,
                      "cache_salt": "cw==", "client_request_id": "Yw==",
                      "sampling": {"temperature": 0.5, "top_k": -1, "top_p": 2, "min_p": 0.1,
                        "typical_p": 0.9, "repetition_penalty": 1.5, "presence_penalty": -1,
                        "frequency_penalty": 1, "penalty_window": 64,
                        "logit_bias": [{"token_id": 5, "bias": -1.5}, {"token_id": 6, "bias": 2}],
                        "allowed_token_ids": [1, 2], "banned_token_ids": [3],
                        "seed": "18446744073709551615"},
                      "stop": {"max_tokens": 0, "min_tokens": 1, "stop_strings": ["QQ==", "Qg=="],
                        "include_stop_string": true, "stop_token_ids": [7, 8],
                        "ignore_eos": true, "time_limit": "1.5s"},
                      "output": {"logprobs": 0, "logprobs_mode": "LOGPROBS_MODE_PROCESSED",
                        "prompt_logprobs": 2, "n": 1, "return_token_ids_only": false,
                        "return_prompt_token_ids": true}})",
                  &expected)
                  .ok());
  EXPECT_EQ(server_.generation().last_request().DebugString(), expected.DebugString());
}

TEST_F(ClientTest, UnsetFlagsLeaveFieldsUnset) {
  EXPECT_EQ(Run({"generate", "hello"}).exit_code, 0);
  const v1::GenerateRequest request = server_.generation().last_request();
  EXPECT_EQ(request.sampling().ByteSizeLong(), 0u);
  EXPECT_EQ(request.stop().ByteSizeLong(), 0u);
  EXPECT_EQ(request.output().ByteSizeLong(), 0u);
  EXPECT_FALSE(request.has_attention());
}

TEST_F(ClientTest, OtherKindsOfPrompts) {
  EXPECT_EQ(Run({"generate", "--token_ids=1,2"}).exit_code, 0);
  EXPECT_THAT(server_.generation().last_request().token_ids().ids(), ElementsAre(1u, 2u));

  EXPECT_EQ(Run({"generate", "--system=Be brief.", "--message=user:Hi: you",
                 "--message=assistant:", "--add_generation_prompt=false", "Bye"})
                .exit_code,
            0);
  const v1::Chat chat = server_.generation().last_request().chat();
  ASSERT_EQ(chat.messages_size(), 4);
  EXPECT_EQ(chat.messages(0).role(), "system");
  EXPECT_EQ(chat.messages(1).content(), "Hi: you");
  EXPECT_EQ(chat.messages(2).content(), "");
  EXPECT_EQ(chat.messages(3).role(), "user");
  EXPECT_EQ(chat.messages(3).content(), "Bye");
  EXPECT_TRUE(chat.has_add_generation_prompt());
  EXPECT_FALSE(chat.add_generation_prompt());

  EXPECT_EQ(Run({"generate", "--token_ids=1", "text"}).exit_code, 2);
  EXPECT_EQ(Run({"generate", "--token_ids=1", "--chat"}).exit_code, 2);
  EXPECT_EQ(Run({"generate", "--tools=[]", "text"}).exit_code, 2);
  EXPECT_EQ(Run({"generate", "--message=nothing", "text"}).exit_code, 2);
}

TEST_F(ClientTest, ChoicesComeOneAfterTheOther) {
  const Outcome outcome = Run({"generate", "--n=2", "two"});
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_EQ(outcome.out, "A1A2\nB1");
  EXPECT_EQ(Run({"generate", "--return_token_ids_only", "two"}).out, "11 12\n21");
}

TEST_F(ClientTest, JsonIsOneObjectPerEvent) {
  const Outcome outcome = Run({"generate", "--json", "hello"});
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_THAT(outcome.err, IsEmpty());
  const std::vector<std::string> lines = Lines(outcome.out);
  ASSERT_EQ(lines.size(), 6u);
  std::string text;
  for (size_t i = 0; i < lines.size(); ++i) {
    v1::GenerateEvent event;
    ASSERT_TRUE(google::protobuf::util::JsonStringToMessage(lines[i], &event).ok()) << lines[i];
    EXPECT_EQ(event.sequence_number(), i);
    for (const v1::Token& token : event.tokens().tokens()) text += token.text();
  }
  EXPECT_EQ(text, "Hello, world");
  EXPECT_THAT(lines[0], HasSubstr(R"("sequence_number":"0")"));
  EXPECT_THAT(lines[1], HasSubstr(R"("bytes":"SGVsbG8=")"));
  EXPECT_THAT(lines[4], HasSubstr(R"("reason":"FINISH_REASON_STOP_STRING")"));
  EXPECT_THAT(lines[5], HasSubstr(R"("token_hash":)"));
}

TEST_F(ClientTest, UnaryPrintsTheSameText) {
  EXPECT_EQ(Run({"generate", "--unary", "hello"}).out, "Hello, world!");
  EXPECT_THAT(Lines(Run({"generate", "--unary", "--json", "hello"}).out),
              ElementsAre(HasSubstr(R"("text":"Hello, world!")")));
  EXPECT_EQ(Run({"generate", "--unary", "refuse"}).exit_code, 1);
}

TEST_F(ClientTest, ErrorsShowCodeMessageAndDetails) {
  Outcome outcome = Run({"generate", "refuse"});
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.out, IsEmpty());
  EXPECT_EQ(outcome.err,
            "vitrine: INVALID_ARGUMENT: bad request\n  sampling.top_p: 2 is not in (0, 1]\n");
  outcome = Run({"generate", "overload"});
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.err,
              HasSubstr("RESOURCE_EXHAUSTED: the queue is full\n  try again after 2s"));
  // A server that answers UNAVAILABLE is there.
  outcome = Run({"generate", "break"});
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_EQ(outcome.out, "partial");
  EXPECT_THAT(outcome.err, HasSubstr("UNAVAILABLE: draining"));
}

TEST_F(ClientTest, BrokenStreamsAreNoAnswers) {
  for (const char* prompt : {"gap", "wrong hash", "no end"}) {
    const Outcome outcome = Run({"generate", prompt});
    EXPECT_EQ(outcome.exit_code, 1) << prompt;
    EXPECT_THAT(outcome.err, StartsWith("vitrine: DATA_LOSS: ")) << prompt;
  }
}

TEST_F(ClientTest, InterruptCancelsTheRequest) {
  Subprocess process({VITRINE_CLIENT, "generate", "--server=" + server_.address(), "endless"});
  ASSERT_TRUE(process.WaitForOut("more more "));
  process.Signal(SIGINT);
  EXPECT_EQ(process.Wait(), 1);
  EXPECT_EQ(process.err(), "vitrine: cancelled\n");
  EXPECT_TRUE(server_.generation().WaitUntilCancelled());
}

TEST_F(ClientTest, TimeoutEndsTheRequest) {
  const Outcome outcome = Run({"generate", "--timeout=1s", "endless"});
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.out, StartsWith("more "));
  EXPECT_THAT(outcome.err, HasSubstr("DEADLINE_EXCEEDED"));
}

TEST_F(ClientTest, FullDiskIsAFailure) {
  Subprocess process(
      {"/bin/sh", "-c",
       "exec " VITRINE_CLIENT " generate --server=" + server_.address() + " endless >/dev/full"});
  EXPECT_EQ(process.Wait(), 1);
  EXPECT_THAT(process.err(), HasSubstr("cannot write the answer"));
}

TEST_F(ClientTest, TokensForTheServer) {
  EXPECT_EQ(Run({"generate", "hello"}).exit_code, 0);
  EXPECT_EQ(server_.generation().last_authorization(), "");
  EXPECT_EQ(Run({"generate", "--auth_token=secret", "hello"}).exit_code, 0);
  EXPECT_EQ(server_.generation().last_authorization(), "Bearer secret");

  const std::string path = ::testing::TempDir() + "/client_test_token";
  std::ofstream(path) << "from-file\nsecond line\n";
  EXPECT_EQ(Run({"generate", "--auth_token_file=" + path, "hello"}).exit_code, 0);
  EXPECT_EQ(server_.generation().last_authorization(), "Bearer from-file");

  EXPECT_EQ(Run({"generate", "--auth_token_file=/nonexistent", "hello"}).exit_code, 2);
  EXPECT_EQ(Run({"generate", "--auth_token=a b", "hello"}).exit_code, 2);
  EXPECT_EQ(Run({"generate", "--tls_cert=" + path, "hello"}).exit_code, 2);
}

TEST_F(ClientTest, TokenizeGoesBothWays) {
  EXPECT_EQ(Run({"tokenize", "AB"}).out, "65 66\n");
  EXPECT_EQ(Run({"tokenize", "-"}, std::string("\0a", 2)).out, "0 97\n");
  EXPECT_EQ(Run({"tokenize", "--token_ids=72,0,105"}).out, std::string("H\0i", 3));
  EXPECT_THAT(Run({"tokenize", "--json", "A"}).out, HasSubstr(R"("token_ids":[65])"));
}

TEST_F(ClientTest, DescribeAndLoadPrintEveryField) {
  EXPECT_THAT(Lines(Run({"describe"}).out),
              ::testing::IsSupersetOf({HasSubstr("model "), HasSubstr("window=0 (3 times)")}));
  EXPECT_THAT(Run({"describe"}).out, HasSubstr("limits.inspection_retention   600s\n"));
  v1::DescribeModelResponse model;
  ASSERT_TRUE(
      google::protobuf::util::JsonStringToMessage(Run({"describe", "--json"}).out, &model).ok());
  EXPECT_EQ(model.limits().context_length(), 64u);

  const Outcome load = Run({"load"});
  EXPECT_EQ(load.exit_code, 0);
  EXPECT_THAT(load.out, HasSubstr("kv_blocks_owned            0\n"));
  EXPECT_THAT(load.out, HasSubstr("steps                      18446744073709551615\n"));
  EXPECT_THAT(Run({"load", "--json"}).out, HasSubstr(R"("kv_blocks_free":9)"));
}

TEST_F(ClientTest, HealthIsAnExitCode) {
  Outcome outcome = Run({"health"});
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_EQ(outcome.out, "SERVING\n");
  outcome = Run({"health", "--service=stuck"});
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_EQ(outcome.out, "NOT_SERVING\n");
  outcome = Run({"health", "--service=other"});
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.err, HasSubstr("NOT_FOUND"));
}

std::vector<std::string> Contents(const v1::Chat& chat) {
  std::vector<std::string> contents;
  for (const v1::ChatMessage& message : chat.messages()) {
    contents.push_back(message.role() + ": " + message.content());
  }
  return contents;
}

TEST_F(ClientTest, ChatSaysOneMessage) {
  const Outcome outcome = Run({"chat", "--system=Be brief.", "--max_tokens=5", "-m", "hello"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(outcome.out, "Hello, world!");
  EXPECT_THAT(Contents(server_.generation().last_request().chat()),
              ElementsAre("system: Be brief.", "user: hello"));
  EXPECT_EQ(server_.generation().last_request().stop().max_tokens(), 5u);
  EXPECT_EQ(Run({"chat", "-m", "refuse"}).exit_code, 1);
  EXPECT_EQ(Run({"chat", "hello"}).exit_code, 2);
}

TEST_F(ClientTest, ChatKeepsTheConversation) {
  Outcome outcome = Run({"chat"}, "hello\n\nrefuse\nslow\n");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(outcome.out, "Hello, world!\nHello, world!\n");
  EXPECT_THAT(outcome.err, HasSubstr("INVALID_ARGUMENT"));
  EXPECT_THAT(Contents(server_.generation().last_request().chat()),
              ElementsAre("user: hello", "assistant: Hello, world!", "user: slow"));

  outcome = Run({"chat", "--system=s"}, "hello\n/reset\n/nonsense\nagain\n/quit\nnever\n");
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_THAT(outcome.err, HasSubstr("unknown command\n/reset "));
  EXPECT_THAT(Contents(server_.generation().last_request().chat()),
              ElementsAre("system: s", "user: again"));
}

TEST_F(ClientTest, ChatBeginsAgainWithAnotherSystemMessage) {
  const Outcome outcome = Run({"chat", "--system=s"}, "hello\n/system Be brief.\nagain\n");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(Contents(server_.generation().last_request().chat()),
              ElementsAre("system: Be brief.", "user: again"));
  Run({"chat", "--system=s"}, "/system\nhello\n");
  EXPECT_THAT(Contents(server_.generation().last_request().chat()), ElementsAre("user: hello"));
}

TEST_F(ClientTest, ChatShowsTheAttentionOfTheLastAnswer) {
  Outcome outcome = Run({"chat"}, "/attention\n");
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.err, HasSubstr("there is no answer yet"));
  outcome = Run({"chat"}, "hello\n/attention --layer=0 --width=80\n");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("attention, "));
  outcome = Run({"chat"}, "hello\n/attention --nosuch\n/attention stray\n");
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.err, HasSubstr("--nosuch"));
  EXPECT_THAT(outcome.err, HasSubstr("takes flags only"));
}

TEST_F(ClientTest, InterruptStopsOnlyTheAnswerOfAChat) {
  Subprocess process({VITRINE_CLIENT, "chat", "--server=" + server_.address()}, "endless\nhello\n");
  ASSERT_TRUE(process.WaitForOut("more more "));
  process.Signal(SIGINT);
  EXPECT_EQ(process.Wait(), 0);
  EXPECT_THAT(process.out(), ::testing::EndsWith("more \nHello, world!\n"));
  const v1::Chat chat = server_.generation().last_request().chat();
  ASSERT_EQ(chat.messages_size(), 3);
  EXPECT_THAT(chat.messages(1).content(), StartsWith("more more "));
}

// The example in client/python, where the interpreter has gRPC.
TEST_F(ClientTest, PythonExampleStreamsTheSameText) {
  Subprocess probe({VITRINE_PYTHON, "-c", "import grpc"});
  if (probe.Wait() != 0) GTEST_SKIP() << "this Python has no grpc module (package python3-grpcio)";
  const std::string server = "--server=" + server_.address();
  Subprocess good({VITRINE_PYTHON, "-B", VITRINE_PYTHON_CLIENT, server, "hello"});
  EXPECT_EQ(good.Wait(), 0) << good.err();
  EXPECT_EQ(good.out(), "Hello, world!\n");
  EXPECT_EQ(good.err(), "3 prompt tokens, 3 generated\n");
  EXPECT_EQ(server_.generation().last_request().stop().max_tokens(), 64u);

  Subprocess refused({VITRINE_PYTHON, "-B", VITRINE_PYTHON_CLIENT, server, "refuse"});
  EXPECT_EQ(refused.Wait(), 1);
  EXPECT_EQ(refused.err(), "generate.py: INVALID_ARGUMENT: bad request\n");
}

TEST(ClientWithoutServerTest, SaysThatNobodyAnswers) {
  // Bound, but nobody listens.
  const Outcome outcome = RunClient({"generate", "--server=127.0.0.1:1", "hello"});
  EXPECT_EQ(outcome.exit_code, 3);
  EXPECT_THAT(outcome.out, IsEmpty());
  EXPECT_THAT(outcome.err, HasSubstr("no server answers at 127.0.0.1:1: "));
  EXPECT_EQ(RunClient({"health", "--server=unix:/nonexistent/socket"}).exit_code, 3);
}

TEST(ClientWithoutServerTest, UsageErrorsExitWithTwo) {
  const std::vector<std::vector<std::string>> wrong = {
      {},
      {"nonsense"},
      {"--json"},
      {"generate"},
      {"generate", "two", "prompts"},
      {"generate", "--nonsense", "x"},
      {"generate", "--max_tokens=-1", "x"},
      {"generate", "--logit_bias=5", "x"},
      {"load", "argument"},
      {"health", "--timeout=soon"},
      {"tokenize", "--token_ids=1", "--parse_special"},
  };
  for (const std::vector<std::string>& arguments : wrong) {
    const Outcome outcome = RunClient(arguments);
    EXPECT_EQ(outcome.exit_code, 2) << ::testing::PrintToString(arguments);
    EXPECT_THAT(outcome.out, IsEmpty()) << ::testing::PrintToString(arguments);
    EXPECT_THAT(outcome.err, Not(IsEmpty())) << ::testing::PrintToString(arguments);
  }
}

TEST(ClientWithoutServerTest, HelpGoesToStdout) {
  EXPECT_THAT(RunClient({"help"}).out, HasSubstr("generate"));
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{"help", "generate"}, {"generate", "--help"}, {"generate", "-h"}}) {
    const Outcome outcome = RunClient(arguments);
    EXPECT_EQ(outcome.exit_code, 0);
    EXPECT_THAT(outcome.out, HasSubstr("--frequency_penalty=NUMBER"));
    EXPECT_THAT(outcome.err, IsEmpty());
  }
  EXPECT_EQ(RunClient({"help", "nonsense"}).exit_code, 2);
}

TEST(StreamCheckTest, SeesEveryBrokenPromise) {
  v1::GenerateEvent accepted;
  accepted.mutable_accepted()->set_prompt_token_count(2);
  v1::GenerateEvent token;
  token.set_sequence_number(1);
  token.mutable_tokens()->add_tokens()->set_position(2);
  v1::GenerateEvent done;
  done.set_sequence_number(2);
  done.mutable_done()->set_token_hash(TokenHash({0}));

  StreamCheck good;
  EXPECT_TRUE(good.Add(accepted).ok());
  EXPECT_FALSE(good.End().ok());
  EXPECT_TRUE(good.Add(token).ok());
  EXPECT_TRUE(good.Add(done).ok());
  EXPECT_TRUE(good.End().ok());
  v1::GenerateEvent more = done;
  more.set_sequence_number(3);
  EXPECT_FALSE(good.Add(more).ok());

  StreamCheck starts_late;
  v1::GenerateEvent first = token;
  first.set_sequence_number(0);
  EXPECT_FALSE(starts_late.Add(first).ok());

  StreamCheck doubled;
  EXPECT_TRUE(doubled.Add(accepted).ok());
  EXPECT_TRUE(doubled.Add(token).ok());
  EXPECT_FALSE(doubled.Add(token).ok());

  StreamCheck jumps;
  EXPECT_TRUE(jumps.Add(accepted).ok());
  token.mutable_tokens()->mutable_tokens(0)->set_position(3);
  EXPECT_FALSE(jumps.Add(token).ok());
}

TEST(LogprobsTable, ShowsTokensAndAlternatives) {
  v1::Token token;
  token.set_position(12);
  token.set_id(7);
  token.set_bytes(" Paris\n\xff");
  token.set_logprob(-0.125f);
  token.set_rank(1);
  for (const char* bytes : {" Paris\n\xff", ""}) {
    v1::TokenLogprob& one = *token.add_top();
    one.set_id(7);
    one.set_bytes(bytes);
    one.set_logprob(-2.0f);
  }
  EXPECT_EQ(FormatLogprobs(token),
            "    12   -0.1250  rank 1  \" Paris\\n\\377\"  | \" Paris\\n\\377\" -2.0000, id 7 "
            "-2.0000\n");
  v1::PromptLogprob first;
  first.set_id(3);
  EXPECT_EQ(FormatLogprobs(first, 0), "     0            id 3\n");
}

}  // namespace
}  // namespace vitrine::client
