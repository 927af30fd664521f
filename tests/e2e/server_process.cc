#include "tests/e2e/server_process.h"

#include <signal.h>
// NOLINTNEXTLINE(misc-include-cleaner): completes the rusage that sys/wait.h only declares.
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <stdexcept>

namespace vitrine {
namespace {

constexpr std::string_view kListening = "listening on ";

std::string ReadAll(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream content;
  content << file.rdbuf();
  return content.str();
}

}  // namespace

std::unique_ptr<ServerProcess> ServerProcess::Start(const std::vector<std::string>& flags,
                                                    ExitReport* report) {
  std::unique_ptr<ServerProcess> server(new ServerProcess);
  std::vector<std::string> arguments = {"--listen=127.0.0.1:0"};
  arguments.insert(arguments.end(), flags.begin(), flags.end());
  server->Spawn(arguments);
  if (server->ReadAddress()) return server;
  *report = server->Wait();
  return nullptr;
}

ExitReport ServerProcess::Run(const std::vector<std::string>& arguments) {
  ServerProcess server;
  server.Spawn(arguments);
  server.ReadAddress();
  return server.Wait();
}

ServerProcess::~ServerProcess() {
  if (pid_ > 0) {
    Signal(SIGKILL);
    Wait();
  }
  if (stdout_ >= 0) close(stdout_);
  if (!stderr_path_.empty()) unlink(stderr_path_.c_str());
}

void ServerProcess::Spawn(const std::vector<std::string>& arguments) {
  std::string path = "/tmp/vitrine-server-stderr-XXXXXX";
  const int error_file = mkstemp(path.data());
  int pipe_ends[2];
  if (error_file < 0 || pipe(pipe_ends) != 0) throw std::runtime_error("cannot make pipes");
  stderr_path_ = path;
  pid_ = fork();
  if (pid_ == 0) {
    dup2(pipe_ends[1], STDOUT_FILENO);
    dup2(error_file, STDERR_FILENO);
    close(pipe_ends[0]);
    close(pipe_ends[1]);
    close(error_file);
    std::vector<char*> argv = {const_cast<char*>(VITRINE_SERVER)};
    for (const std::string& argument : arguments)
      argv.push_back(const_cast<char*>(argument.c_str()));
    argv.push_back(nullptr);
    execv(VITRINE_SERVER, argv.data());
    _exit(127);
  }
  close(pipe_ends[1]);
  close(error_file);
  stdout_ = pipe_ends[0];
}

bool ServerProcess::ReadAddress() {
  std::string line;
  char c = 0;
  while (read(stdout_, &c, 1) == 1) {
    if (c != '\n') {
      line.push_back(c);
      continue;
    }
    if (line.starts_with(kListening)) {
      address_ = line.substr(kListening.size());
      return true;
    }
    line.clear();
  }
  return false;
}

void ServerProcess::Signal(int signal) const { kill(pid_, signal); }

ExitReport ServerProcess::Wait() {
  ExitReport report;
  int status = 0;
  rusage usage{};
  if (wait4(pid_, &status, 0, &usage) == pid_) {
    report.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    report.peak_memory_kib = usage.ru_maxrss;
  }
  pid_ = -1;
  report.standard_error = ReadAll(stderr_path_);
  return report;
}

std::string TestModelPath() {
  const char* path = std::getenv("VITRINE_TEST_MODEL");
  if (path == nullptr) {
    throw std::runtime_error("VITRINE_TEST_MODEL must name SmolLM2-135M-Instruct.Q4_1.gguf");
  }
  return path;
}

}  // namespace vitrine
