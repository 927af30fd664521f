#include <memory>
#include <string>
#include <vector>

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

int RunDescribe(const std::vector<std::string>& arguments, Cancellation* cancellation) {
  ConnectionFlags flags;
  CommandLine command_line("describe", "", "Prints the model served, its limits and abilities.");
  AddConnectionFlags(&command_line, &flags);
  const absl::Status parsed = ParseWithConnection(command_line, arguments, &flags);
  if (!parsed.ok()) return ReportUsage(command_line, parsed);

  const absl::StatusOr<std::unique_ptr<GenerateClient>> client =
      ConnectToServer(flags.options, cancellation);
  if (!client.ok()) return ReportNoConnection(client.status());
  const absl::StatusOr<v1::DescribeModelResponse> model = (*client)->DescribeModel(cancellation);
  if (!model.ok()) return ReportFailure(model.status());
  return PrintAnswer(flags.json ? ToJson(*model) + "\n" : ToText(*model));
}

}  // namespace vitrine::client
