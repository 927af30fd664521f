#include "client/attention_answer.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/attention_export.h"
#include "client/attention_view.h"
#include "client/exit_code.h"
#include "client/output.h"
#include "client/report.h"
#include "vitrine/v1/attention.pb.h"
#include "vitrine/v1/inspection.pb.h"

namespace vitrine::client {
namespace {

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

absl::StatusOr<AttentionAnswer> Receive(GenerateClient* client, const std::string& request_id,
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
  if (!status.ok()) return ExplainInspection(status);
  absl::StatusOr<AttentionTrace> trace = assembly.Finish();
  if (!trace.ok()) return trace.status();
  return AttentionAnswer{.trace = *std::move(trace), .tokens = std::move(tokens)};
}

// What the terminal can show, where the flags leave it open.
HeatStyle TerminalStyle(const AttentionFlags& flags) {
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

}  // namespace

absl::Status ExplainInspection(const absl::Status& status) {
  const bool says_how =
      std::string(status.message()).find("--allow_inspection") != std::string::npos;
  if (status.code() != absl::StatusCode::kFailedPrecondition || says_how) return status;
  return absl::Status(status.code(),
                      absl::StrCat(std::string(status.message()),
                                   "\n  attention is shown by a server that was started with "
                                   "--allow_inspection"));
}

absl::StatusOr<AttentionAnswer> ReplayAttention(GenerateClient* client,
                                                const std::string& request_id, bool json,
                                                AttentionFlags* attention,
                                                Cancellation* cancellation) {
  absl::StatusOr<SequenceTokens> tokens =
      KeptTokens(client, request_id, attention->look.choice, cancellation);
  if (!tokens.ok()) return ExplainInspection(tokens.status());
  const absl::Status completed = CompleteAttention(tokens->prompt_tokens, attention);
  if (!completed.ok()) return completed;
  return Receive(client, request_id, attention->spec, *std::move(tokens), json, cancellation);
}

int PresentAttention(const AttentionAnswer& answer, bool json, const AttentionFlags& flags) {
  absl::Status status = absl::OkStatus();
  if (!flags.npz.empty()) status = WriteNpz(answer.trace, answer.tokens, flags.spec, flags.npz);
  if (status.ok() && !flags.csv.empty()) {
    status = WriteCsv(answer.trace, answer.tokens, flags.spec, flags.csv);
  }
  if (!status.ok()) return ReportFailure(status);
  if (json) return kOk;
  AttentionViewOptions look = flags.look;
  look.style = TerminalStyle(flags);
  const absl::StatusOr<std::string> picture =
      DrawAttention(answer.trace, answer.tokens, flags.spec, look);
  return picture.ok() ? PrintAnswer(*picture) : ReportFailure(picture.status());
}

}  // namespace vitrine::client
