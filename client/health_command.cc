#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/cancellation.h"
#include "client/command_line.h"
#include "client/commands.h"
#include "client/connection.h"
#include "client/exit_code.h"
#include "client/generate_client.h"
#include "client/output.h"
#include "client/report.h"
#include "grpc/health/v1/health.pb.h"

namespace vitrine::client {

int RunHealth(const std::vector<std::string>& arguments, Cancellation* cancellation) {
  using grpc::health::v1::HealthCheckResponse;
  ConnectionFlags flags;
  std::string service;
  CommandLine command_line("health", "",
                           "Prints the health of the server; exit code 0 only when SERVING.");
  command_line.Add({.name = "service",
                    .placeholder = "NAME",
                    .help = "Full service name; default: the server as a whole.",
                    .set = TakesText([&service](const std::string& v) { service = v; })});
  AddConnectionFlags(&command_line, &flags);
  const absl::Status parsed = ParseWithConnection(command_line, arguments, &flags);
  if (!parsed.ok()) return ReportUsage(command_line, parsed);

  const absl::StatusOr<std::unique_ptr<GenerateClient>> client =
      ConnectToServer(flags.options, cancellation);
  if (!client.ok()) return ReportNoConnection(client.status());
  const absl::StatusOr<HealthCheckResponse> health = (*client)->CheckHealth(service, cancellation);
  if (!health.ok()) return ReportFailure(health.status());
  const std::string text =
      flags.json ? ToJson(*health) : HealthCheckResponse::ServingStatus_Name(health->status());
  if (const int exit_code = PrintAnswer(text + "\n"); exit_code != kOk) return exit_code;
  return health->status() == HealthCheckResponse::SERVING ? kOk : kRequestFailed;
}

}  // namespace vitrine::client
