#include "tests/client/subprocess.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstddef>
#include <cstdio>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace vitrine::client {
namespace {

void ReadSome(pollfd* polled, std::string* text) {
  if (polled->revents == 0) return;
  char buffer[4096];
  const ssize_t count = read(polled->fd, buffer, sizeof(buffer));
  if (count > 0) {
    text->append(buffer, static_cast<size_t>(count));
  } else {
    close(polled->fd);
    polled->fd = -1;
  }
}

}  // namespace

Subprocess::Subprocess(const std::vector<std::string>& arguments, const std::string& input) {
  std::vector<char*> argv;
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);

  // A file, so that neither side can block on the other.
  std::FILE* in = std::tmpfile();
  if (in == nullptr || std::fwrite(input.data(), 1, input.size(), in) != input.size() ||
      std::fseek(in, 0, SEEK_SET) != 0) {
    throw std::runtime_error("cannot write the program's input");
  }
  int out[2];
  int err[2];
  if (pipe2(out, O_CLOEXEC) != 0 || pipe2(err, O_CLOEXEC) != 0) {
    throw std::runtime_error("cannot make pipes");
  }
  pid_ = fork();
  if (pid_ < 0) throw std::runtime_error("cannot fork");
  if (pid_ == 0) {
    dup2(fileno(in), STDIN_FILENO);
    dup2(out[1], STDOUT_FILENO);
    dup2(err[1], STDERR_FILENO);
    execv(argv[0], argv.data());
    _exit(127);
  }
  std::fclose(in);
  close(out[1]);
  close(err[1]);
  out_fd_ = out[0];
  err_fd_ = err[0];
}

Subprocess::~Subprocess() {
  if (out_fd_ >= 0) close(out_fd_);
  if (err_fd_ >= 0) close(err_fd_);
  if (pid_ < 0) return;
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
}

bool Subprocess::Read() {
  pollfd polled[] = {{.fd = out_fd_, .events = POLLIN, .revents = 0},
                     {.fd = err_fd_, .events = POLLIN, .revents = 0}};
  if (out_fd_ < 0 && err_fd_ < 0) return false;
  poll(polled, 2, -1);
  ReadSome(&polled[0], &out_);
  ReadSome(&polled[1], &err_);
  out_fd_ = polled[0].fd;
  err_fd_ = polled[1].fd;
  return true;
}

bool Subprocess::WaitForOut(const std::string& text) {
  while (out_.find(text) == std::string::npos) {
    if (!Read()) return false;
  }
  return true;
}

void Subprocess::Signal(int number) const { kill(pid_, number); }

int Subprocess::Wait() {
  while (Read()) {
  }
  int status = 0;
  waitpid(pid_, &status, 0);
  pid_ = -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

Outcome RunToEnd(const std::vector<std::string>& arguments, const std::string& input) {
  Subprocess process(arguments, input);
  const int exit_code = process.Wait();
  return {.exit_code = exit_code, .out = process.out(), .err = process.err()};
}

std::vector<std::string> Lines(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

}  // namespace vitrine::client
