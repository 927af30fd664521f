// Serves a model over gRPC, or runs one of the offline commands.
#include "server/offline_commands.h"
#include "server/options.h"
#include "server/serve_command.h"

int main(int argc, char** argv) {
  const auto options = vitrine::server::ParseOptions(argc, argv);
  if (!options.ok()) return vitrine::server::ReportError(options.status());
  return options->command.empty() ? vitrine::server::RunServer(*options)
                                  : vitrine::server::RunOfflineCommand(*options);
}
