#include <unistd.h>

#include <cstdio>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_split.h"
#include "client/answer_stream.h"
#include "client/attention_answer.h"
#include "client/attention_flags.h"
#include "client/cancellation.h"
#include "client/command_line.h"
#include "client/commands.h"
#include "client/connection.h"
#include "client/exit_code.h"
#include "client/generate_client.h"
#include "client/interrupt.h"
#include "client/report.h"
#include "client/request_flags.h"
#include "vitrine/v1/generation.pb.h"

namespace vitrine::client {
namespace {

constexpr char kHelp[] =
    "/reset              forgets the conversation\n"
    "/system [TEXT]      the same, and begins the next one with this system message\n"
    "/attention [FLAGS]  what the last answer looked at; FLAGS as of `vitrine attention`\n"
    "/help               prints this\n"
    "/quit               ends, as does the end of the input\n"
    "Ctrl-C stops an answer; what it said so far stays in the conversation.\n";

void AddMessage(const char* role, std::string content, v1::Chat* chat) {
  v1::ChatMessage* message = chat->add_messages();
  message->set_role(role);
  message->set_content(std::move(content));
}

// A conversation with the server. One thread.
class Conversation {
 public:
  // `request` holds everything but the messages.
  Conversation(GenerateClient* client, v1::GenerateRequest request, std::string system,
               Cancellation* cancellation)
      : client_(client),
        request_(std::move(request)),
        system_(std::move(system)),
        cancellation_(cancellation) {
    Reset();
  }

  void Reset() {
    request_id_.clear();
    request_.mutable_chat()->clear_messages();
    if (!system_.empty()) AddMessage("system", system_, request_.mutable_chat());
  }

  void ResetWith(std::string system) {
    system_ = std::move(system);
    Reset();
  }

  // Prints the answer. A message that was refused leaves no trace; one whose answer was stopped
  // keeps what there is of it.
  absl::Status Say(const std::string& message, const AnswerOptions& options) {
    AddMessage("user", message, request_.mutable_chat());
    StreamedAnswer answer;
    absl::Status status = StreamAnswer(client_, request_, options, cancellation_, &answer);
    request_id_ = std::move(answer.request_id);
    if (status.ok() || (absl::IsCancelled(status) && !answer.text.empty())) {
      AddMessage("assistant", std::move(answer.text), request_.mutable_chat());
    } else {
      request_.mutable_chat()->mutable_messages()->RemoveLast();
    }
    return status;
  }

  // Shows what the last answer looked at, as the server computes it again. The exit code.
  int ShowAttention(const std::vector<std::string>& arguments, bool json) {
    AttentionFlags flags;
    CommandLine command_line("/attention", "", "What the last answer looked at.");
    AddAttentionFlags(&command_line, &flags);
    const absl::StatusOr<std::vector<std::string>> rest = command_line.Parse(arguments);
    if (!rest.ok()) return ReportUsage(command_line, rest.status());
    if (!rest->empty() || !flags.text_spans.empty() || request_id_.empty()) {
      return ReportFailure(absl::FailedPreconditionError(
          request_id_.empty() ? "/attention: there is no answer yet"
                              : "/attention takes flags only, and no spans with text:"));
    }
    const absl::StatusOr<AttentionAnswer> answer =
        ReplayAttention(client_, request_id_, json, &flags, cancellation_);
    return answer.ok() ? PresentAttention(*answer, json, flags) : ReportFailure(answer.status());
  }

 private:
  GenerateClient* const client_;
  v1::GenerateRequest request_;
  std::string system_;
  std::string request_id_;  // Of the last answer; empty where there is none.
  Cancellation* const cancellation_;
};

// A line of standard input; nothing at its end. Ctrl-C in the meantime ends the process.
std::optional<std::string> ReadLine(Cancellation* cancellation) {
  cancellation->Reset();
  ForgetInterrupt();
  cancellation->Arm([] { _exit(kOk); });
  if (isatty(STDIN_FILENO) != 0) std::fputs("> ", stderr);
  std::string line;
  const bool read = static_cast<bool>(std::getline(std::cin, line));
  cancellation->Disarm();
  if (!read) return std::nullopt;
  return line;
}

// "/word rest" in its two parts.
std::pair<std::string, std::string> SplitCommand(const std::string& line) {
  const size_t space = line.find(' ');
  if (space == std::string::npos) return {line, ""};
  const size_t rest = line.find_first_not_of(' ', space);
  return {line.substr(0, space), rest == std::string::npos ? "" : line.substr(rest)};
}

// A line that begins with a slash. The exit code.
int RunCommand(const std::string& line, Conversation* conversation, bool json) {
  const auto& [name, rest] = SplitCommand(line);
  if (name == "/attention") {
    return conversation->ShowAttention(absl::StrSplit(rest, ' ', absl::SkipEmpty()), json);
  }
  if (name == "/system") {
    conversation->ResetWith(rest);
  } else if (name == "/reset" && rest.empty()) {
    conversation->Reset();
  } else {
    std::fprintf(stderr, "%s%s", line == "/help" ? "" : "unknown command\n", kHelp);
  }
  return kOk;
}

// Until the input ends. The exit code is that of the last line.
int Talk(Conversation* conversation, bool json, Cancellation* cancellation) {
  int exit_code = kOk;
  while (const std::optional<std::string> line = ReadLine(cancellation)) {
    if (*line == "/quit") break;
    if (line->empty()) continue;
    if (line->front() == '/') {
      exit_code = RunCommand(*line, conversation, json);
    } else {
      const absl::Status status = conversation->Say(*line, {.json = json, .always_end_line = true});
      exit_code = status.ok() ? kOk : ReportFailure(status);
    }
  }
  return exit_code;
}

}  // namespace

int RunChat(const std::vector<std::string>& arguments, Cancellation* cancellation) {
  ConnectionFlags flags;
  std::optional<std::string> message;
  std::string system;
  v1::GenerateRequest request;
  CommandLine command_line("chat", "",
                           "Talks with the model: a line in, an answer out; /help lists what else "
                           "a line can be.");
  command_line.Add({.name = "message",
                    .placeholder = "TEXT",
                    .help = "Says this one message and ends.",
                    .set = TakesText([&message](const std::string& v) { message = v; }),
                    .short_name = 'm'});
  command_line.Add({.name = "system",
                    .placeholder = "TEXT",
                    .help = "System message in front of the conversation.",
                    .set = TakesText([&system](const std::string& v) { system = v; })});
  AddSamplingFlags(&command_line, request.mutable_sampling());
  AddStopFlags(&command_line, request.mutable_stop());
  AddConnectionFlags(&command_line, &flags);
  const absl::Status parsed = ParseWithConnection(command_line, arguments, &flags);
  if (!parsed.ok()) return ReportUsage(command_line, parsed);

  const absl::StatusOr<std::unique_ptr<GenerateClient>> client =
      ConnectToServer(flags.options, cancellation);
  if (!client.ok()) return ReportNoConnection(client.status());
  Conversation conversation(client->get(), std::move(request), std::move(system), cancellation);
  if (!message) return Talk(&conversation, flags.json, cancellation);
  const absl::Status status = conversation.Say(*message, {.json = flags.json});
  return status.ok() ? kOk : ReportFailure(status);
}

}  // namespace vitrine::client
