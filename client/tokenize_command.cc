#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/cancellation.h"
#include "client/command_line.h"
#include "client/commands.h"
#include "client/connection.h"
#include "client/generate_client.h"
#include "client/output.h"
#include "client/report.h"
#include "client/request_flags.h"
#include "vitrine/v1/generation.pb.h"

namespace vitrine::client {
namespace {

int Detokenize(GenerateClient* client, const v1::GenerateRequest& prompt, bool json,
               Cancellation* cancellation) {
  v1::DetokenizeRequest request;
  request.set_model(prompt.model());
  *request.mutable_token_ids() = prompt.token_ids().ids();
  const absl::StatusOr<v1::DetokenizeResponse> response = client->Detokenize(request, cancellation);
  if (!response.ok()) return ReportFailure(response.status());
  return PrintAnswer(json ? ToJson(*response) + "\n" : response->text());
}

int Tokenize(GenerateClient* client, v1::GenerateRequest prompt, bool json,
             Cancellation* cancellation) {
  v1::TokenizeRequest request;
  request.set_model(prompt.model());
  if (prompt.has_chat()) {
    *request.mutable_chat() = std::move(*prompt.mutable_chat());
  } else {
    request.set_text(std::move(*prompt.mutable_text()));
  }
  if (prompt.has_parse_special()) request.set_parse_special(prompt.parse_special());
  const absl::StatusOr<v1::TokenizeResponse> response = client->Tokenize(request, cancellation);
  if (!response.ok()) return ReportFailure(response.status());
  return PrintAnswer(
      absl::StrCat(json ? ToJson(*response) : absl::StrJoin(response->token_ids(), " "), "\n"));
}

}  // namespace

int RunTokenize(const std::vector<std::string>& arguments, Cancellation* cancellation) {
  ConnectionFlags flags;
  PromptFlags prompt;
  v1::GenerateRequest request;
  CommandLine command_line("tokenize", "TEXT",
                           "Prints the token ids of a text on one line; TEXT - reads standard "
                           "input.\nWith --token_ids, prints the bytes of the ids instead.");
  command_line.Add({.name = "model",
                    .placeholder = "NAME",
                    .help = "Default: the one served.",
                    .set = TakesText([&request](const std::string& v) { request.set_model(v); })});
  command_line.Add({.name = "parse_special",
                    .placeholder = "",
                    .help = "Reads texts of control tokens as these tokens.",
                    .set = TakesSwitch([&request](bool v) { request.set_parse_special(v); })});
  AddPromptFlags(&command_line, &prompt);
  AddConnectionFlags(&command_line, &flags);

  std::vector<std::string> positional;
  absl::Status parsed = ParseWithConnection(command_line, arguments, &flags, &positional);
  if (parsed.ok()) parsed = ReadPrompt(prompt, positional, &request);
  if (parsed.ok() && request.has_token_ids() && request.has_parse_special()) {
    parsed = absl::InvalidArgumentError("--parse_special goes with text");
  }
  if (!parsed.ok()) return ReportUsage(command_line, parsed);

  const absl::StatusOr<std::unique_ptr<GenerateClient>> client =
      ConnectToServer(flags.options, cancellation);
  if (!client.ok()) return ReportNoConnection(client.status());
  return request.has_token_ids()
             ? Detokenize(client->get(), request, flags.json, cancellation)
             : Tokenize(client->get(), std::move(request), flags.json, cancellation);
}

}  // namespace vitrine::client
