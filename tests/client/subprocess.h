// Runs a program with its standard streams connected to the test.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace vitrine::client {

// One run; not thread-safe. The destructor kills what still runs.
class Subprocess {
 public:
  // Starts `arguments[0]`; standard input holds `input` and then ends.
  explicit Subprocess(const std::vector<std::string>& arguments, const std::string& input = "");
  ~Subprocess();
  Subprocess(const Subprocess&) = delete;
  Subprocess& operator=(const Subprocess&) = delete;

  // Reads until stdout holds `text`; false when the program ended first.
  bool WaitForOut(const std::string& text);
  void Signal(int number) const;
  // Reads both streams to their end. The exit code, or 128 + the signal that ended the program.
  int Wait();

  const std::string& out() const { return out_; }
  const std::string& err() const { return err_; }

 private:
  // Waits for output and appends it; false when both streams have ended.
  bool Read();

  pid_t pid_ = -1;
  int out_fd_ = -1;
  int err_fd_ = -1;
  std::string out_;
  std::string err_;
};

// What a run left behind.
struct Outcome {
  int exit_code = -1;
  std::string out;
  std::string err;
};

Outcome RunToEnd(const std::vector<std::string>& arguments, const std::string& input = "");

std::vector<std::string> Lines(const std::string& text);
std::string ReadFile(const std::string& path);

}  // namespace vitrine::client
