#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/answer_printer.h"
#include "client/answer_stream.h"
#include "client/cancellation.h"
#include "client/command_line.h"
#include "client/commands.h"
#include "client/connection.h"
#include "client/exit_code.h"
#include "client/generate_client.h"
#include "client/output.h"
#include "client/report.h"
#include "client/request_flags.h"
#include "vitrine/v1/generation.pb.h"

namespace vitrine::client {
namespace {

void AddRequestFlags(CommandLine* command_line, v1::GenerateRequest* request) {
  command_line->Section("Request");
  command_line->Add({.name = "model",
                     .placeholder = "NAME",
                     .help = "Default: the one served.",
                     .set = TakesText([request](const std::string& v) { request->set_model(v); })});
  command_line->Add({.name = "parse_special",
                     .placeholder = "",
                     .help = "Reads texts of control tokens in the prompt as these tokens.",
                     .set = TakesSwitch([request](bool v) { request->set_parse_special(v); })});
  command_line->Add({.name = "priority",
                     .placeholder = "NUMBER",
                     .help = "Higher goes first; default 0.",
                     .set = TakesInteger(std::numeric_limits<int32_t>::min(),
                                         std::numeric_limits<int32_t>::max(), [request](int64_t v) {
                                           request->set_priority(static_cast<int32_t>(v));
                                         })});
  command_line->Add(
      {.name = "cache_salt",
       .placeholder = "TEXT",
       .help = "Shares cached prefixes only with requests of the same salt.",
       .set = TakesText([request](const std::string& v) { request->set_cache_salt(v); })});
  command_line->Add(
      {.name = "client_request_id",
       .placeholder = "TEXT",
       .help = "A name of your own for this request, for logs.",
       .set = TakesText([request](const std::string& v) { request->set_client_request_id(v); })});
}

int Ask(GenerateClient* client, const v1::GenerateRequest& request, bool json,
        Cancellation* cancellation) {
  const absl::StatusOr<v1::GenerateResponse> response =
      client->GenerateUnary(request, cancellation);
  if (!response.ok()) return ReportFailure(response.status());
  if (json) return PrintAnswer(ToJson(*response) + "\n");
  AnswerPrinter printer(request.output().return_token_ids_only());
  if (absl::Status status = printer.Print(*response); !status.ok()) return ReportFailure(status);
  printer.EndLine(/*always=*/false);
  printer.PrintLogprobs();
  printer.PrintUsage();
  return kOk;
}

}  // namespace

int RunGenerate(const std::vector<std::string>& arguments, Cancellation* cancellation) {
  ConnectionFlags flags;
  PromptFlags prompt;
  bool unary = false;
  v1::GenerateRequest request;
  CommandLine command_line("generate", "PROMPT",
                           "Continues a prompt and streams the text to stdout; PROMPT - reads "
                           "standard input.\nUsage and errors go to stderr.");
  AddPromptFlags(&command_line, &prompt);
  AddSamplingFlags(&command_line, request.mutable_sampling());
  AddStopFlags(&command_line, request.mutable_stop());
  AddOutputFlags(&command_line, request.mutable_output());
  command_line.Add({.name = "unary",
                    .placeholder = "",
                    .help = "Waits for the whole answer instead of streaming it.",
                    .set = TakesSwitch([&unary](bool v) { unary = v; })});
  AddRequestFlags(&command_line, &request);
  AddConnectionFlags(&command_line, &flags);

  std::vector<std::string> positional;
  absl::Status parsed = ParseWithConnection(command_line, arguments, &flags, &positional);
  if (parsed.ok()) parsed = ReadPrompt(prompt, positional, &request);
  if (!parsed.ok()) return ReportUsage(command_line, parsed);

  const absl::StatusOr<std::unique_ptr<GenerateClient>> client =
      ConnectToServer(flags.options, cancellation);
  if (!client.ok()) return ReportNoConnection(client.status());
  if (unary) return Ask(client->get(), request, flags.json, cancellation);
  StreamedAnswer answer;
  const absl::Status status =
      StreamAnswer(client->get(), request, {.json = flags.json}, cancellation, &answer);
  return status.ok() ? kOk : ReportFailure(status);
}

}  // namespace vitrine::client
