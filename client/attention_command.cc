#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "client/attention_assembly.h"
#include "client/attention_export.h"
#include "client/attention_flags.h"
#include "client/attention_view.h"
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
#include "vitrine/v1/inspection.pb.h"

namespace vitrine::client {
namespace {

// A picture of more lines is none; ask for more with --max_tokens.
constexpr uint32_t kDefaultMaxTokens = 16;

struct AttentionAnswer {
  AttentionTrace trace;
  SequenceTokens tokens;
};

// How the answer of a server without inspection becomes useful.
absl::Status Explain(const absl::Status& status) {
  const bool says_how =
      std::string(status.message()).find("--allow_inspection") != std::string::npos;
  if (status.code() != absl::StatusCode::kFailedPrecondition || says_how) return status;
  return absl::Status(status.code(),
                      absl::StrCat(std::string(status.message()),
                                   "\n  attention is shown by a server that was started with "
                                   "--allow_inspection"));
}

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
  if (!status.ok()) return Explain(status);
  absl::StatusOr<AttentionTrace> trace = assembly.Finish();
  if (!trace.ok()) return trace.status();
  return AttentionAnswer{.trace = *std::move(trace), .tokens = std::move(tokens)};
}

// The tokens of a request that the server has kept.
absl::StatusOr<SequenceTokens> KeptTokens(GenerateClient* client, const std::string& request_id,
                                          uint32_t choice, Cancellation* cancellation) {
  const absl::StatusOr<v1::GetRequestResponse> kept = client->GetRequest(request_id, cancellation);
  if (!kept.ok()) return kept.status();
  std::vector<uint32_t> ids(kept->prompt_token_ids().begin(), kept->prompt_token_ids().end());
  const size_t prompt_tokens = ids.size();
  bool found = kept->choices().empty() && choice == 0;
  for (const v1::ChoiceRecord& record : kept->choices()) {
    if (record.index() != choice) continue;
    ids.insert(ids.end(), record.token_ids().begin(), record.token_ids().end());
    found = true;
  }
  if (!found) {
    return absl::NotFoundError(absl::StrCat("--choice: the request has no answer ", choice));
  }
  return TokensOfIds(client, std::move(ids), prompt_tokens, cancellation);
}

absl::StatusOr<AttentionAnswer> Replay(GenerateClient* client, const std::string& request_id,
                                       const v1::AttentionSpec& spec, SequenceTokens tokens,
                                       bool json, Cancellation* cancellation) {
  v1::GetAttentionRequest request;
  request.set_request_id(request_id);
  *request.mutable_spec() = spec;
  AttentionAssembly assembly(spec);
  absl::Status status = client->GetAttention(
      request, cancellation, [&](const v1::AttentionChunk& chunk) -> absl::Status {
        if (json && !WriteOut(ToJson(chunk) + "\n")) {
          return absl::UnknownError("cannot write the answer");
        }
        return assembly.Add(chunk);
      });
  if (!status.ok()) return Explain(status);
  absl::StatusOr<AttentionTrace> trace = assembly.Finish();
  if (!trace.ok()) return trace.status();
  return AttentionAnswer{.trace = *std::move(trace), .tokens = std::move(tokens)};
}

// What the terminal can show, where the flags leave it open.
HeatStyle StyleOf(const AttentionFlags& flags) {
  HeatStyle style;
  const bool is_terminal = isatty(STDOUT_FILENO) != 0;
  winsize size = {};
  if (flags.width) {
    style.width = *flags.width;
  } else if (is_terminal && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col >= 40) {
    style.width = size.ws_col;
  }
  // https://no-color.org: set and not empty.
  const char* no_color = std::getenv("NO_COLOR");
  const char* term = std::getenv("TERM");
  const bool may_colour = is_terminal && (no_color == nullptr || *no_color == '\0') &&
                          term != nullptr && std::string_view(term) != "dumb";
  style.colour = flags.colour_always || (may_colour && !flags.colour_never);
  return style;
}

int Present(const AttentionAnswer& answer, const AttentionFlags& flags, bool json) {
  absl::Status status = absl::OkStatus();
  if (!flags.npz.empty()) status = WriteNpz(answer.trace, answer.tokens, flags.spec, flags.npz);
  if (status.ok() && !flags.csv.empty()) {
    status = WriteCsv(answer.trace, answer.tokens, flags.spec, flags.csv);
  }
  if (!status.ok()) return ReportFailure(status);
  if (json) return kOk;
  const absl::StatusOr<std::string> picture =
      DrawAttention(answer.trace, answer.tokens, flags.spec, flags.look);
  return picture.ok() ? PrintAnswer(*picture) : ReportFailure(picture.status());
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
  absl::StatusOr<SequenceTokens> tokens =
      request_id.empty() ? TokensOfPrompt(client, request, cancellation)
                         : KeptTokens(client, request_id, attention.look.choice, cancellation);
  if (!tokens.ok()) return Explain(tokens.status());
  absl::Status completed = CompleteAttention(tokens->prompt_tokens, &attention);
  if (!completed.ok()) return completed;
  if (!request_id.empty()) {
    return Replay(client, request_id, attention.spec, *std::move(tokens), connection.json,
                  cancellation);
  }
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
  command.attention.look.style = StyleOf(command.attention);

  const absl::StatusOr<std::unique_ptr<GenerateClient>> client =
      ConnectToServer(command.connection.options, cancellation);
  if (!client.ok()) return ReportNoConnection(client.status());
  const absl::StatusOr<AttentionAnswer> answer = command.Ask(client->get(), cancellation);
  if (!answer.ok()) return ReportFailure(answer.status());
  return Present(*answer, command.attention, command.connection.json);
}

}  // namespace vitrine::client
