#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/attention_answer.h"
#include "client/attention_assembly.h"
#include "client/attention_flags.h"
#include "client/cancellation.h"
#include "client/command_line.h"
#include "client/commands.h"
#include "client/connection.h"
#include "client/exit_code.h"
#include "client/generate_client.h"
#include "client/output.h"
#include "client/report.h"
#include "client/request_flags.h"
#include "client/sequence_tokens.h"
#include "client/stream_check.h"
#include "vitrine/v1/attention.pb.h"
#include "vitrine/v1/generation.pb.h"

namespace vitrine::client {
namespace {

// A picture of more lines is none; ask for more with --max_tokens.
constexpr uint32_t kDefaultMaxTokens = 16;

// A new answer, watched while it is generated.
absl::StatusOr<AttentionAnswer> WatchAnswer(GenerateClient* client,
                                            const v1::GenerateRequest& request,
                                            SequenceTokens tokens, bool json,
                                            Cancellation* cancellation) {
  AttentionAssembly assembly(request.attention());
  StreamCheck check;
  // The first thing that went wrong on this side of the stream.
  absl::Status own = absl::OkStatus();
  absl::Status status =
      client->Generate(request, cancellation, [&](const v1::GenerateEvent& event) {
        if (own.ok()) own = check.Add(event);
        if (own.ok() && event.has_attention()) own = assembly.Add(event.attention());
        if (own.ok() && json && !WriteOut(ToJson(event) + "\n")) {
          own = absl::UnknownError("cannot write the answer");
        }
        for (const v1::Token& token : event.tokens().tokens()) {
          if (token.choice() != 0) continue;
          tokens.ids.push_back(token.id());
          tokens.bytes.push_back(token.bytes());
        }
        if (!own.ok()) cancellation->Cancel();
      });
  if (status.ok()) status = check.End();
  if (!own.ok()) status = own;
  if (!status.ok()) return ExplainInspection(status);
  absl::StatusOr<AttentionTrace> trace = assembly.Finish();
  if (!trace.ok()) return trace.status();
  return AttentionAnswer{.trace = *std::move(trace), .tokens = std::move(tokens)};
}

struct AttentionCommand {
  ConnectionFlags connection;
  PromptFlags prompt;
  AttentionFlags attention;
  v1::GenerateRequest request;
  std::string request_id;

  absl::Status Parse(const CommandLine& command_line, const std::vector<std::string>& arguments);
  absl::StatusOr<AttentionAnswer> Ask(GenerateClient* client, Cancellation* cancellation);
};

absl::Status AttentionCommand::Parse(const CommandLine& command_line,
                                     const std::vector<std::string>& arguments) {
  std::vector<std::string> positional;
  absl::Status status = ParseWithConnection(command_line, arguments, &connection, &positional);
  if (!status.ok()) return status;
  if (!request_id.empty()) {
    if (!positional.empty() || !prompt.token_ids.empty() || prompt.chat ||
        !prompt.messages.empty() || !prompt.system.empty()) {
      return absl::InvalidArgumentError("--request excludes a prompt");
    }
    if (!attention.text_spans.empty()) {
      return absl::InvalidArgumentError("--spans with text: needs a prompt, not --request");
    }
  } else {
    status = ReadPrompt(prompt, positional, &request);
    if (!status.ok()) return status;
    if (attention.look.choice != 0) {
      return absl::InvalidArgumentError("--choice goes with --request");
    }
    if (!attention.text_spans.empty() && !request.has_text()) {
      return absl::InvalidArgumentError("--spans with text: needs a text prompt");
    }
    status = FindTextSpans(request.text(), &attention);
    if (!status.ok()) return status;
    if (!request.stop().has_max_tokens()) request.mutable_stop()->set_max_tokens(kDefaultMaxTokens);
  }
  // Contradictions between flags must not wait for the server.
  AttentionFlags trial = attention;
  return CompleteAttention(0, &trial);
}

absl::StatusOr<AttentionAnswer> AttentionCommand::Ask(GenerateClient* client,
                                                      Cancellation* cancellation) {
  if (!request_id.empty()) {
    return ReplayAttention(client, request_id, connection.json, &attention, cancellation);
  }
  absl::StatusOr<SequenceTokens> tokens = TokensOfPrompt(client, request, cancellation);
  if (!tokens.ok()) return ExplainInspection(tokens.status());
  const absl::Status completed = CompleteAttention(tokens->prompt_tokens, &attention);
  if (!completed.ok()) return completed;
  *request.mutable_attention() = attention.spec;
  return WatchAnswer(client, request, *std::move(tokens), connection.json, cancellation);
}

}  // namespace

int RunAttention(const std::vector<std::string>& arguments, Cancellation* cancellation) {
  AttentionCommand command;
  CommandLine command_line("attention", "PROMPT",
                           "Generates an answer and shows which tokens each token looked at; "
                           "PROMPT - reads standard input.\nGenerates 16 tokens unless told "
                           "otherwise. With --request, shows it "
                           "for an answer that the server still keeps.");
  command_line.Add(
      {.name = "request",
       .placeholder = "ID",
       .help = "Replays this request instead of a prompt.",
       .set = TakesText([&command](const std::string& v) { command.request_id = v; })});
  AddAttentionFlags(&command_line, &command.attention);
  AddPromptFlags(&command_line, &command.prompt);
  AddSamplingFlags(&command_line, command.request.mutable_sampling());
  AddStopFlags(&command_line, command.request.mutable_stop());
  AddConnectionFlags(&command_line, &command.connection);
  const absl::Status parsed = command.Parse(command_line, arguments);
  if (!parsed.ok()) return ReportUsage(command_line, parsed);

  const absl::StatusOr<std::unique_ptr<GenerateClient>> client =
      ConnectToServer(command.connection.options, cancellation);
  if (!client.ok()) return ReportNoConnection(client.status());
  const absl::StatusOr<AttentionAnswer> answer = command.Ask(client->get(), cancellation);
  if (!answer.ok()) return ReportFailure(answer.status());
  return PresentAttention(*answer, command.connection.json, command.attention);
}

}  // namespace vitrine::client
