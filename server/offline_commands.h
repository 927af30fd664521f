// Commands for people who prepare models: no server is started.
#pragma once

#include "server/options.h"

namespace vitrine::server {

// Runs options.command. Returns the exit code: 0, or 1 with one line on stderr that names the rule.
int RunOfflineCommand(const ServerOptions& options);

// "vitrine-server: MESSAGE" as one line on stderr. Returns 1.
int ReportError(const absl::Status& status);

}  // namespace vitrine::server
