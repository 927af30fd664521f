// Ends of a command: what is printed, and the exit code that goes with it.
#pragma once

#include <string_view>

#include "absl/status/status.h"
#include "client/command_line.h"

namespace vitrine::client {

// The command line is wrong (or help was asked for, which is no fault).
int ReportUsage(const CommandLine& command_line, const absl::Status& status);

// ConnectToServer failed.
int ReportNoConnection(const absl::Status& status);

// The server refused or the RPC broke.
int ReportFailure(const absl::Status& status);

// Prints the answer on stdout; a failure to do so is reported.
int PrintAnswer(std::string_view text);

}  // namespace vitrine::client
