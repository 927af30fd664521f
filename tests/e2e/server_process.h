// Runs the built server as its users do: a process with flags, a line on stdout, an exit code.
#pragma once

#include <memory>
#include <string>
#include <vector>

namespace vitrine {

struct ExitReport {
  int exit_code = -1;  // 128 + signal when a signal ended it.
  std::string standard_error;
  long peak_memory_kib = 0;
};

class ServerProcess {
 public:
  // Starts `server --listen=127.0.0.1:0 flags...` and waits until it listens. Null, with the
  // report filled in, when it exits instead.
  static std::unique_ptr<ServerProcess> Start(const std::vector<std::string>& flags,
                                              ExitReport* report);
  // Runs it to its end, for starts that are expected to fail and for offline commands.
  static ExitReport Run(const std::vector<std::string>& arguments);

  ~ServerProcess();
  ServerProcess(const ServerProcess&) = delete;
  ServerProcess& operator=(const ServerProcess&) = delete;

  const std::string& address() const { return address_; }
  void Signal(int signal) const;
  ExitReport Wait();

 private:
  ServerProcess() = default;
  void Spawn(const std::vector<std::string>& arguments);
  bool ReadAddress();

  int pid_ = -1;
  int stdout_ = -1;
  std::string stderr_path_;
  std::string address_;
};

// The model of the tests, from VITRINE_TEST_MODEL.
std::string TestModelPath();

}  // namespace vitrine
