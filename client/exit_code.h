// What the process says to the shell; part of the command line's contract.
#pragma once

namespace vitrine::client {

enum ExitCode : int {
  kOk = 0,
  kRequestFailed = 1,
  kUsageError = 2,
  kCannotConnect = 3,
};

}  // namespace vitrine::client
