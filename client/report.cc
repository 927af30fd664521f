#include "client/report.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "client/command_line.h"
#include "client/exit_code.h"
#include "client/output.h"

namespace vitrine::client {

int ReportUsage(const CommandLine& command_line, const absl::Status& status) {
  if (absl::IsCancelled(status)) return kOk;
  const char* command = command_line.command().c_str();
  std::fprintf(stderr, "vitrine %s: %s\nSee: vitrine help %s\n", command,
               std::string(status.message()).c_str(), command);
  return kUsageError;
}

int ReportNoConnection(const absl::Status& status) {
  if (absl::IsCancelled(status)) return ReportFailure(status);
  std::fprintf(stderr,
               "vitrine: %s\n"
               "Start one with: vitrine-server --model PATH, or name another with --server.\n",
               std::string(status.message()).c_str());
  return kCannotConnect;
}

int ReportFailure(const absl::Status& status) {
  if (absl::IsCancelled(status)) {
    std::fputs("vitrine: cancelled\n", stderr);
  } else {
    std::fprintf(stderr, "vitrine: %s: %s\n", absl::StatusCodeToString(status.code()).c_str(),
                 std::string(status.message()).c_str());
  }
  return kRequestFailed;
}

int PrintAnswer(std::string_view text) {
  if (WriteOut(text)) return kOk;
  std::fprintf(stderr, "vitrine: cannot write the answer: %s\n", std::strerror(errno));
  return kRequestFailed;
}

}  // namespace vitrine::client
