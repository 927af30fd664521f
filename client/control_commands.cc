// The commands that ask one question about the server and print the answer.
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/cancellation.h"
#include "client/command_line.h"
#include "client/commands.h"
#include "client/connection.h"
#include "client/generate_client.h"
#include "client/output.h"
#include "client/report.h"
#include "vitrine/v1/control.pb.h"

namespace vitrine::client {
namespace {

template <typename Response>
using Question = absl::StatusOr<Response> (GenerateClient::*)(Cancellation* cancellation);

template <typename Response>
int AskAndPrint(const CommandLine& command_line, ConnectionFlags* flags,
                const std::vector<std::string>& arguments, Question<Response> question,
                Cancellation* cancellation) {
  const absl::Status parsed = ParseWithConnection(command_line, arguments, flags);
  if (!parsed.ok()) return ReportUsage(command_line, parsed);
  const absl::StatusOr<std::unique_ptr<GenerateClient>> client =
      ConnectToServer(flags->options, cancellation);
  if (!client.ok()) return ReportNoConnection(client.status());
  const absl::StatusOr<Response> response = ((**client).*question)(cancellation);
  if (!response.ok()) return ReportFailure(response.status());
  return PrintAnswer(flags->json ? ToJson(*response) + "\n" : ToText(*response));
}

}  // namespace

int RunDescribe(const std::vector<std::string>& arguments, Cancellation* cancellation) {
  ConnectionFlags flags;
  CommandLine command_line("describe", "", "Prints the model served, its limits and abilities.");
  AddConnectionFlags(&command_line, &flags);
  return AskAndPrint(command_line, &flags, arguments, &GenerateClient::DescribeModel, cancellation);
}

int RunLoad(const std::vector<std::string>& arguments, Cancellation* cancellation) {
  ConnectionFlags flags;
  CommandLine command_line("load", "", "Prints how busy the server is.");
  AddConnectionFlags(&command_line, &flags);
  return AskAndPrint(command_line, &flags, arguments, &GenerateClient::GetLoad, cancellation);
}

}  // namespace vitrine::client
